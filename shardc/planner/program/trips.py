"""What a loop's body becomes once it is planned, and what the loop leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from shardc.ir.expressions import Pattern
from shardc.ir.plan import Block, Loop, Step, ValueNumber
from shardc.ir.program import For, Input, bindings_of
from shardc.ir.sharding import Array, Sharding, with_dim
from shardc.planner.planned import PlannedLoop, PlannedStatement

Lies: TypeAlias = Mapping[str, Sharding]


def left_by(loop: For, op: Loop) -> list[Array]:
    """What a loop leaves, under its names and its dims' names: what is stacked has the loop's dim first."""
    dims, body = {bound.name: bound.dims for each in loop.body for bound in bindings_of(each)}, op.body
    ends = zip(loop.leaves, body.outputs, strict=True)
    found = [replace(body.values[number], name=name, dims=dims[name]) for name, number in ends]
    return [*found[: op.carried], *(with_dim(row, op.dim, op.trips) for row in found[op.carried :])]


@dataclass(frozen=True, slots=True)
class Trip:
    """A body that was planned. `around` has the values outside that its fixed and its scanned inputs are."""

    block: Block  # its inputs: fixed…, carried…, scanned…
    fixed: int
    carried: int
    first: tuple[Step, ...]  # what is done once, before the loop; of the body's values
    around: dict[ValueNumber, ValueNumber]
    statements: tuple[PlannedStatement | PlannedLoop, ...]
    given: Lies  # how each input lies

    @property
    def carries(self) -> tuple[Input, ...]:
        """In the shardings in which it is carried."""
        numbers = self.block.inputs[self.fixed : self.fixed + self.carried]
        arrays = [self.block.values[number] for number in numbers]
        return tuple(Input(each.name, each.dims, Pattern.exactly(each.sharding), each.dtype) for each in arrays)

    @property
    def leaves(self) -> tuple[Array, ...]:
        return tuple(self.block.values[number] for number in self.block.outputs[: self.carried])


def trip_of(
    loop: For,
    block: Block,
    inputs_at: Mapping[str, ValueNumber],
    around: dict[ValueNumber, ValueNumber],
    statements: tuple[PlannedStatement | PlannedLoop, ...],
) -> Trip:
    """The body's steps, without those that all trips have in common."""
    scanned = {array.name for array in loop.scanned}
    rows = [value for value in around if block.values[value].name in scanned]
    once, first, steps = {value for value in around if value not in rows}, list[Step](), list[Step]()
    for step in block.steps:
        common = once.issuperset(step.operands) and not step.rule.is_named and len(step.results) == 1
        (first if common else steps).append(step)
        once |= set(step.results) if common else set()
    used = {operand for step in steps for operand in step.operands}.union(block.outputs)
    fixed = [value for value in sorted(once) if value in used]
    carried = [inputs_at[name] for name in loop.carried]
    inputs = (*fixed, *carried, *(value for value in rows if value in used))
    body = Block(block.values, inputs, block.outputs, tuple(steps))
    given = {name: block.values[value].sharding for name, value in inputs_at.items()}
    return Trip(body, len(fixed), len(carried), tuple(first), around, statements, given)
