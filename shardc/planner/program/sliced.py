"""Shares of what lies nowhere, computed of shares.

    f = a + b; s = sum_V(f ⊙ f); y = f ⊙ rsqrt(s)         Y is idle, and takes part in the sum

    f = a + b; f' = Slice_Y f; s' = sum f' ⊙ f'; …        the TPU's compiler writes f, since a part of it is taken
    a' = Slice_Y a; b' = Slice_Y b; f' = a' + b'; …       f is computed as each reads it, and lies nowhere

The norm of f32(x) took 2.2 times as long so on v5e:2x4, that of a + b 1.9 times. What lies in memory anyway is sliced
as it is: outputs, what collectives and loops read, and what is computed of a product's tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from shardc.ir.collectives import Slice, apply
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Loop, Step, StepCost, ValueNumber
from shardc.lowering.fusion import Reads, kinds_of, needs_whole, readers_of
from shardc.lowering.repeats import is_again


def with_shares_computed(block: Block, mesh: Mesh) -> Block:
    """A block with each such share computed of shares, in the bodies of its loops too."""
    steps = tuple(
        replace(step, op=replace(step.op, body=with_shares_computed(step.op.body, mesh)))
        if isinstance(step.op, Loop)
        else step
        for step in block.steps
    )
    shares = [step.result for step in reversed(steps) if step.op.facts.kind is Kind.SLICE]
    return _all_sunk(replace(block, steps=steps), shares, mesh)


def _all_sunk(block: Block, shares: Sequence[ValueNumber], mesh: Mesh) -> Block:
    """With each of some shares computed so; the same block where none is."""
    found, around = block, None
    for share in shares:
        around = around or _Around(found)
        sunk = _sunk(around, share, mesh)
        if sunk is not None:
            found, around = sunk, None
    return found


def _sunk(around: _Around, share: ValueNumber, mesh: Mesh) -> Block | None:
    """With a share computed of the shares of what it is a part of, if something that others read as well lies nowhere
    then; None where nothing does."""
    block = around.block
    cut = around.made[share]
    whole = around.made.get(cut.operands[0])
    if whole is None or share in block.outputs or cut.rule.is_named or not around.is_computed(whole):
        return None
    below = _cut_below(block, cut, whole, mesh)
    found = _all_sunk(below.block, below.shares, mesh)
    is_read = len(around.readers[whole.result]) > 1 or found is not below.block
    return found if is_read else None


@dataclass(frozen=True)  # without slots: what is asked of it is kept
class _Around:
    block: Block

    @cached_property
    def made(self) -> Mapping[ValueNumber, Step]:
        return {result: step for step in self.block.steps for result in step.results}

    @cached_property
    def readers(self) -> Mapping[int, list[Step]]:
        return readers_of(self.block.steps)

    @cached_property
    def kinds(self) -> Mapping[ValueNumber, Reads]:
        return kinds_of(self.block, self.block.steps)

    @cached_property
    def tiles(self) -> frozenset[ValueNumber]:
        """What is a product's, or computed with its tiles, as large as these."""
        block, tiles = self.block, set[ValueNumber]()
        for step in block.steps:
            if isinstance(step.op, Loop):
                continue
            value, kind, rank = step.result, self.kinds[step.result], len(block.values[step.result].dims)
            whole = {each for each in step.operands if len(block.values[each].dims) >= rank}
            passes = kind is Reads.ELEMENTS and not step.op.facts.is_move and value not in block.outputs
            tiles |= {value} if kind is Reads.PRODUCT or (passes and not tiles.isdisjoint(whole)) else set()
        return frozenset(tiles)

    def is_computed(self, step: Step) -> bool:
        """Whether what a step leaves is computed of elements by each that reads it, and of no product's tiles."""
        if isinstance(step.op, Loop) or step.op.facts.is_move or not step.operands or is_again(step.op):
            return False
        if self.kinds[step.result] is not Reads.ELEMENTS:
            return False
        if step.result in self.block.outputs or any(
            needs_whole(each, self.kinds) for each in self.readers[step.result]
        ):
            return False
        rank = len(self.block.values[step.result].dims)
        return not any(len(self.block.values[each].dims) >= rank for each in self.tiles.intersection(step.operands))


@dataclass(frozen=True, slots=True)
class _Below:
    block: Block
    shares: tuple[ValueNumber, ...]  # of what the whole is computed of


def _cut_below(block: Block, cut: Step, whole: Step, mesh: Mesh) -> _Below:
    """With the Slice done to the operands of the step before it, and that step to their shares."""
    assert isinstance(cut.op, Slice)
    values, steps, operands = [*block.values], list[Step](), list[ValueNumber]()
    for value, place in zip(whole.operands, _places(block, whole, cut.op.dim), strict=True):
        if place is None:
            operands.append(value)
            continue
        op, array = replace(cut.op, dim=place), values[value]
        values.append(replace(array, sharding=apply(op, array.sharding, mesh)))
        operands.append(ValueNumber(len(values) - 1))
        steps.append(replace(cut, op=op, operands=(value,), results=(operands[-1],), cost=StepCost(), seen=()))
    parts = math.prod(mesh.size(axis) for axis in cut.op.axes)
    share = replace(
        whole,
        operands=tuple(operands),
        results=cut.results,
        statement=cut.statement,
        cost=_shared(whole.cost, parts),
    )
    made = tuple(_with(block.steps, cut, [*steps, share]))
    is_gone = all(whole.result not in step.operands for step in made)
    made = tuple(step for step in made if not (is_gone and step is whole))
    return _Below(replace(block, values=tuple(values), steps=made), tuple(step.result for step in steps))


def _with(steps: tuple[Step, ...], cut: Step, made: list[Step]) -> Iterator[Step]:
    for step in steps:
        yield from made if step is cut else [step]


def _places(block: Block, whole: Step, dim: int) -> list[int | None]:
    """Of each operand the place of the dim at this place of the result."""
    name = block.values[whole.result].dims[dim]
    seen = whole.seen or tuple(block.values[value].dims for value in whole.operands)
    return [dims.index(name) if name in dims else None for dims in seen]


def _shared(cost: StepCost, parts: int) -> StepCost:
    """Of a step that is done to one of so many parts."""
    if not cost.time_s and not cost.flops:
        return cost
    spelled = cost.spelled

    def formula() -> str:
        return f"({spelled() if spelled is not None else '0'})/{parts}"

    return replace(cost, flops=cost.flops // parts, time_s=cost.time_s / parts, spelled=formula)
