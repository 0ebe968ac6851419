"""Along which axes JAX must be told that a value is equal.

JAX's types inside shard_map: `f32[8]{V:X}` may differ along X, `f32[8]` is equal there. An AllGather leaves its result
varying, unless it is told `to="invarying"`; that is needed where the result is required to be equal on all devices, and
elsewhere the plain form has the better gradient (a reduce-scatter). So the demand for equal values is followed from the
outputs back to the gathers. Partial sums are varying values too, those that arrive so included (`partial_sums`).
An exchange that leaves a value equal along an axis which sharded it, `A[I_X] → A[I_Y]`, cannot say so: the value stays
of a varying type, and so does what is made of it, until the program's end (`partial_sums.border`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import assert_never

from shardc.ir.collectives import UnevenExchange
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Loop, Single, Step, ValueNumber
from shardc.ir.sharding import Sharding
from shardc.lowering.repeats import repeats

AxisSet = frozenset[str]


def equal_along(block: Block, mesh: Mesh, of_outputs: Sequence[AxisSet] | None = None) -> tuple[AxisSet, ...]:
    """Per value the axes along which it must be equal. An output: along those given, or all that it does not use."""
    every = frozenset(mesh.names)
    demand = [frozenset[str]()] * len(block.values)
    untyped = untyped_along(block)
    for place, output in enumerate(block.outputs):
        free = every - block.values[output].sharding.used - untyped[output]
        demand[output] |= free if of_outputs is None else of_outputs[place]
    again = repeats(block)
    for place, step in reversed([*enumerate(block.steps)]):
        below = _demands(step, demand, block, mesh)
        for operand, axes in zip(step.operands, below, strict=True):
            demand[operand] |= axes
        wait = _wait(step, again.get(place, ()), demand, block, untyped)
        if wait is not None:
            demand[wait] |= below[0]
    return tuple(demand)


def waited_for(
    block: Block, equal: Sequence[AxisSet], held: Collection[ValueNumber] | None = None
) -> dict[int, ValueNumber | None]:
    """The steps that are done once more, by place: each with the value to wait for, if there is any; of those that are
    `held`, where a part of the block holds but these."""
    untyped, found = untyped_along(block), dict[int, ValueNumber | None]()
    for place, every in repeats(block).items():
        might = [value for value in every if held is None or value in held]
        found[place] = _wait(block.steps[place], might, equal, block, untyped)
    return found


def _wait(
    step: Step, might: Sequence[ValueNumber], demand: Sequence[AxisSet], block: Block, untyped: Sequence[AxisSet]
) -> ValueNumber | None:
    """The first value that can be equal wherever the operand, behind a barrier with it, must be."""
    if not might:
        return None
    assert not isinstance(step.op, Loop)
    must = _demand_below(step.op, demand[step.result])
    return next((each for each in might if must.isdisjoint(block.values[each].sharding.used | untyped[each])), None)


def untyped_along(block: Block) -> tuple[AxisSet, ...]:
    """Per value the axes along which it is equal, and of a type that varies. Nothing of the kind goes into a loop."""
    found = [frozenset[str]()] * len(block.values)
    for step in block.steps:
        if isinstance(step.op, Loop):
            continue
        below = frozenset[str]().union(*(found[operand] for operand in step.operands))
        if isinstance(step.op, UnevenExchange):
            below |= untyped_by(step.op, block.values[step.operands[0]].sharding)
        says_so = step.op.facts.kind in (Kind.GATHER, Kind.SUM)
        found[step.result] = below.difference(step.op.axes if says_so else (), block.values[step.result].sharding.used)
    return tuple(found)


def untyped_by(op: UnevenExchange, before: Sharding) -> AxisSet:
    """The axes along which an exchange leaves equal values of a varying type. Those of one device take no part."""
    return frozenset((*op.axes, *before.sharded)).difference(*op.dims)


def equal_within(step: Step, loop: Loop, demand: Sequence[AxisSet], block: Block, mesh: Mesh) -> tuple[AxisSet, ...]:
    """Per value of a loop's body. What is carried has one type from trip to trip: it is equal wherever it can be."""
    used = [block.values[value].sharding.used for value in step.results[: loop.carried]]
    carried = [frozenset(mesh.names) - axes for axes in used]
    return equal_along(loop.body, mesh, [*carried, *(demand[value] for value in step.results[loop.carried :])])


def _demands(step: Step, demand: Sequence[AxisSet], block: Block, mesh: Mesh) -> list[AxisSet]:
    """What each operand must satisfy so that the results do."""
    if not isinstance(step.op, Loop):
        return [_demand_below(step.op, demand[step.result])] * len(step.operands)
    within = equal_within(step, step.op, demand, block, mesh)
    below = [within[value] for value in step.op.body.inputs]
    for place in range(step.op.fixed, step.op.fixed + step.op.carried):
        below[place] = frozenset(mesh.names) - block.values[step.operands[place]].sharding.used
    return below


def _demand_below(op: Single, demand: AxisSet) -> AxisSet:
    """What the operands must satisfy so that the result does."""
    match op.facts.kind:
        case Kind.GATHER | Kind.SUM | Kind.SCATTER | Kind.SLICE | Kind.MASK:
            return demand.difference(op.axes)
        case Kind.EXCHANGE | Kind.PERMUTE | Kind.LOCAL | Kind.LOOP:
            return demand
        case kind:
            assert_never(kind)
