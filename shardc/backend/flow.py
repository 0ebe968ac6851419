"""Along which axes JAX must be told that a value is equal, and which values it types as unreduced.

JAX's types inside shard_map: `f32[8]{V:X}` may differ along X, `f32[8]{U:X}` is a partial sum along X.
A sum over a sharded dim leaves `{V:X}`; only an unreduced input arrives as `{U:X}`. An AllGather leaves
its result varying, unless it is told `to="invarying"`; that is needed where the result is required to be
equal on all devices, and elsewhere the plain form has the better gradient (a reduce-scatter). So the
demand for equal values is followed from the outputs back to the gathers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    JointExchange,
    JointGather,
    JointScatter,
    ReduceScatter,
    Slice,
)
from shardc.ir.digits import Reshape
from shardc.ir.plan import Apply, Einsum, Schedule, Step

AxisSet = frozenset[str]


@dataclass(frozen=True, slots=True)
class Flow:
    """Per value: the axes typed unreduced, and those along which it must be equal."""

    unreduced: tuple[AxisSet, ...]
    equal: tuple[AxisSet, ...]


def flow(schedule: Schedule) -> Flow:
    unreduced = _typed_unreduced(schedule)
    return Flow(unreduced, _demanded(schedule, unreduced))


def _typed_unreduced(schedule: Schedule) -> tuple[AxisSet, ...]:
    found: dict[int, AxisSet] = {value: schedule.values[value].sharding.unreduced for value in schedule.inputs}
    for step in schedule.steps:
        merged = frozenset[str]().union(*(found[value] for value in step.operands))
        if isinstance(step.op, AllReduce | ReduceScatter):
            merged -= set(step.op.axes)
        found[step.result] = merged
    return tuple(found.get(value, frozenset()) for value in range(len(schedule.values)))


def _demanded(schedule: Schedule, unreduced: tuple[AxisSet, ...]) -> tuple[AxisSet, ...]:
    every = frozenset(schedule.mesh.names)
    demand: dict[int, AxisSet] = dict.fromkeys(range(len(schedule.values)), frozenset())
    for output in schedule.outputs:
        demand[output] |= every - schedule.values[output].sharding.used
    for step in reversed(schedule.steps):
        for operand in step.operands:
            demand[operand] |= _demand_below(step, demand[step.result])
            if isinstance(step.op, Einsum):
                # What multiplies a `{U:X}` value must be equal along X.
                partial = frozenset[str]().union(*(unreduced[other] for other in step.operands))
                demand[operand] |= partial - unreduced[operand]
    return tuple(demand[value] for value in range(len(schedule.values)))


def _demand_below(step: Step, demand: AxisSet) -> AxisSet:
    """What the operands must satisfy so that the result does."""
    match step.op:
        case AllGather(axes) | AllReduce(axes) | ReduceScatter(axes) | Slice(axes):
            return demand - set(axes)
        case JointGather() | JointScatter():
            return demand - set(step.op.axes)
        case AllToAll() | JointExchange() | CollectivePermute() | DirectExchange() | Reshape() | Einsum() | Apply():
            return demand
        case _:
            assert_never(step.op)
