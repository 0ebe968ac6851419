"""Gathers that other gathers wait for: those that leave an output alone, of what a product made.

    T = x · W; y = AllGather_X T; V = AllGather_X V; z = u · V; return y, z       T, then y, then V, then z

The TPU's compiler goes through the steps from their end: z first, then V, beside which no other gather may be under
way. So y comes before V, and before y all that leads to it: T hides neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.ir.operations import Kind
from shardc.ir.plan import Einsum, Schedule, Step, ValueNumber, operands_of
from shardc.ir.sharding import Array
from shardc.lowering.target import Target
from shardc.lowering.timed import holds_up_gathers


def held_up(schedule: Schedule) -> dict[ValueNumber, set[ValueNumber]]:
    """Of what each gather leaves, what other gathers leave before it begins. Those done as one with a product are none
    of them; and in a trip of a loop, which stacks or carries what is left, none waits."""
    if schedule.is_trip or not holds_up_gathers(Target.of(schedule.program)):
        return {}
    grouped = {place for group in schedule.together for place in group.places}
    single = [step for place, step in enumerate(schedule.steps) if place not in grouped]
    gathers = [step for step in single if step.op.facts.kind is Kind.GATHER]
    read = {value for step in schedule.steps for value in step.operands}
    found, before = dict[ValueNumber, set[ValueNumber]](), set[ValueNumber]()
    for end in (step for step in gathers if step.result in {*schedule.outputs} - read):
        behind = _leading_to(end, schedule)
        if any(multiplies(step, schedule.values) for step in behind):
            before.update(value for step in behind for value in step.results)  # for this end, or for one before it
            for other in (step for step in gathers if step.result in read - before):
                found.setdefault(other.result, set()).add(end.result)
    return found


def multiplies(step: Step, values: Sequence[Array]) -> bool:
    """Whether it is a product of two arrays or more that sums over a dim."""
    if not isinstance(step.op, Einsum) or len(step.operands) == 1:
        return False
    given = {dim for array in operands_of(step, values) for dim in array.dims}
    return not given <= set(values[step.result].dims)


def _leading_to(end: Step, schedule: Schedule) -> list[Step]:
    """The steps before it that it needs; of those done as one all, since they begin together."""
    as_one = {place: group.places for group in schedule.together for place in group.places}
    wanted, found = set[int](end.operands), dict[int, Step]()
    for place, step in reversed([*enumerate(schedule.steps)]):
        if place in found or not wanted.isdisjoint(step.results):
            for each in as_one.get(place, [place]):
                found[each] = schedule.steps[each]
                wanted.update(schedule.steps[each].operands)
    return [*found.values()]
