"""The products of a plan done as one with the collectives beside them, each in the form of the least price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from shardc.cost.memory import peak_of
from shardc.cost.model import CostModel, LinkModel
from shardc.cost.prefetch import prefetched_s, time_of
from shardc.cost.together import blocking_s, group_s, has_its_links, knows_ways
from shardc.ir.plan import How, Schedule, Step, Together
from shardc.lowering.timed import gathers_beside_products
from shardc.lowering.together import all_of, apart, candidates
from shardc.planner.options import Objective
from shardc.planner.planned import PlannedProgram
from shardc.planner.program.runs import Run, with_runs
from shardc.planner.program.scattered import scatters

LONGER = 1 / 200  # of a plan's time, that each ring gains which nobody asked for: its text is long


class _Choice(NamedTuple):
    """A product done as one with collectives, in an order of the steps that lets it; the seconds that it takes, and
    that it gains so."""

    gain: float
    seconds: float
    ordered: Schedule
    group: Together

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.ordered.steps[self.group.first : self.group.last + 1]


def as_one(found: PlannedProgram, model: LinkModel, least: float = 0.0) -> PlannedProgram:
    """The plan with what gains by it done as one, more than this part of its time, and if that is any, enough of the
    plan's; as it is where nothing does. Sums of which each device keeps its part are done as a ReduceScatter where that
    gains as much more."""
    model = model.on(found.schedule.by)
    made, gaining = _grouped(found, model, least), list[Run]()
    for product, run in scatters(found.schedule.block, model):
        other = _grouped(with_runs([run], found, Objective.TIME, model), model, least)
        if made.cost.time_s - other.cost.time_s > least * blocking_s((product, *run.steps)):
            gaining.append(run)
    return _grouped(with_runs(gaining, found, Objective.TIME, model), model, least) if gaining else made


def _grouped(found: PlannedProgram, model: LinkModel, least: float) -> PlannedProgram:
    """The steps as they are, with what gains by it done as one."""
    worth = found.cost.time_s * LONGER if least else 0.0
    every = (_gaining(ordered, group, model, least, worth) for ordered, group in candidates(found.schedule))
    gaining = sorted((each for each in every if each is not None), key=lambda each: -each.gain)
    best = apart(gaining, lambda each: (each.ordered, each.group))
    chosen = _chosen(found.schedule, best, model, least)
    if not chosen:
        return found
    grouped = _with(found.schedule, chosen)
    schedule = _with_turned(grouped)
    more = sum(step.cost.wire_bytes for step in schedule.steps) - sum(step.cost.wire_bytes for step in grouped.steps)
    cost = replace(
        found.cost,
        wire_bytes=found.cost.wire_bytes + more,
        time_s=time_of(grouped, model),
        prefetched_s=prefetched_s(grouped, model),
        peak=partial(peak_of, schedule),
    )
    return replace(found, schedule=schedule, cost=cost)


def _chosen(schedule: Schedule, every: Sequence[_Choice], model: LinkModel, least: float) -> list[_Choice]:
    """Those with which the plan takes least: what they would hide, the compiler may hide as well (`cost.prefetch`)."""
    if not gathers_beside_products(model.target):
        return list(every)

    known, taking = dict[tuple[int, ...], float](), {each.steps[-1].results: each.seconds for each in every}

    def of_group(grouped: Schedule, group: Together, _: CostModel) -> float:
        return taking[grouped.steps[group.last].results]  # the same beside others

    def seconds(choices: Sequence[_Choice]) -> float:
        key = tuple(map(id, choices))  # `every` holds them; a hash would go through all steps
        if key not in known:
            known[key] = time_of(_with(schedule, choices), model, of_group)
        return known[key]

    def gains(choice: _Choice, others: list[_Choice]) -> bool:
        return seconds(others) - seconds([*others, choice]) > least * blocking_s(choice.steps)

    up, down = list[_Choice](), list(every)
    for choice in every:
        up += [choice] if gains(choice, up) else []
    for choice in reversed(every):
        others = [each for each in down if each is not choice]
        down = down if gains(choice, others) else others
    return min(up, down, key=seconds)


def _with(schedule: Schedule, choices: Sequence[_Choice]) -> Schedule:
    return all_of(schedule, [(each.ordered, each.group) for each in choices]) if choices else schedule


def _with_turned(schedule: Schedule) -> Schedule:
    """What is turned to where it meets another operand brings the busiest device one block more than gathered."""
    steps = list(schedule.steps)
    for group in (each for each in schedule.together if each.how is How.RINGS):
        for place in range(group.first, group.last):
            step = steps[place]
            more = schedule.values[step.operands[0]].local_bytes(schedule.mesh)
            steps[place] = replace(step, cost=replace(step.cost, wire_bytes=step.cost.wire_bytes + more))
    return replace(schedule, block=replace(schedule.block, steps=tuple(steps)))


def _gaining(schedule: Schedule, group: Together, model: LinkModel, least: float, worth: float) -> _Choice | None:
    """A group, if it saves enough: as a part of what its steps take, and more seconds than are `worth` it. What is left
    to XLA it windows only where two operands are gathered over two axes: no price says so, and tuning tries it."""
    steps = schedule.steps[group.first : group.last + 1]
    linked = all(has_its_links(s.op.axes, model) for s in steps if s.is_collective)
    known = {How.PARTITIONER: False, How.RING: linked, How.RINGS: knows_ways(model), How.CHUNKS: True}
    before = blocking_s(steps)
    enough = max(worth, least * before)
    if not known[group.how] or blocking_s(tuple(s for s in steps if s.is_collective)) <= enough:  # all there is to save
        return None
    taken = group_s(schedule, group, model)
    return _Choice(before - taken, taken, schedule, group) if before - taken > enough else None
