"""The orders in which the TPU's compiler may take the steps of a block.

    W = AllGather W; T = x · W; V = AllGather V; y = T · V; dV = T · dy; dV = ReduceScatter dV

With these early both gathers come first, then T, dV and its ReduceScatter, and y last: V is there all the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Step, ValueNumber


def orders(block: Block, early: bool, waits: Mapping[ValueNumber, ValueNumber]) -> Iterator[tuple[Step, ...]]:
    """Each product's first operand made first, or its last; and collectives as early as may be.

    `waits` has of what a repeated gather leaves the value that it waits for: it is no earlier.
    """
    yield _operands_first(block, 1)
    yield _operands_first(block, -1)
    if early:
        yield _moves_first(block, waits)


def _operands_first(block: Block, turn: int) -> tuple[Step, ...]:
    made = {value: place for place, step in enumerate(block.steps) for value in step.results}
    found: dict[int, Step] = {}
    pending = [(number, False) for number in reversed(block.outputs)]
    while pending:
        number, ready = pending.pop()
        place = made.get(number)
        if place is None or place in found:
            continue
        if ready:
            found[place] = block.steps[place]
        else:
            pending.append((number, True))
            pending += [(operand, False) for operand in block.steps[place].operands[::-turn]]
    return tuple(found.values())


def _moves_first(block: Block, waits: Mapping[ValueNumber, ValueNumber]) -> tuple[Step, ...]:
    """Of the steps whose operands are there a collective that is no sum, else one that leads to any, else the first."""
    wanted = _operands_first(block, 1)
    left = [step for step in block.steps if step in wanted]
    leads = _leading_to_collectives(left)
    there, found = set[int](block.inputs), list[Step]()
    while left:
        ready = [step for step in left if there.issuperset(step.operands) and there.issuperset(_waits(step, waits))]
        step = min(ready, key=lambda step: (not _may_be_hidden(step), leads.isdisjoint(step.results)))
        left.remove(step)
        found.append(step)
        there.update(step.results)
    return tuple(found)


def _waits(step: Step, waits: Mapping[ValueNumber, ValueNumber]) -> list[ValueNumber]:
    return [waits[value] for value in step.results if value in waits]


def _may_be_hidden(step: Step) -> bool:
    return step.is_collective and step.op.facts.kind is not Kind.SUM


def _leading_to_collectives(steps: list[Step]) -> set[int]:
    """The values that a collective reads, or what leads to one."""
    found = set[int]()
    for step in reversed(steps):
        if step.is_collective or not found.isdisjoint(step.results):
            found.update(step.operands)
    return found
