"""The products of a plan done as one with the collectives beside them, each in the form of the least price."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from shardc.cost.memory import peak_of
from shardc.cost.model import LinkModel
from shardc.cost.together import blocking_s, by_ways, group_s, has_its_links, knows_ways, time_together
from shardc.ir.plan import Einsum, How, Schedule, Together
from shardc.lowering.together import all_of, candidates
from shardc.planner.options import Objective
from shardc.planner.planned import PlannedProgram
from shardc.planner.program.runs import Run, with_runs
from shardc.planner.program.scattered import scatters


def as_one(found: PlannedProgram, model: LinkModel, least: float = 0.0) -> PlannedProgram:
    """The plan with what gains by it done as one, more than this part of its time; as it is where nothing does. Sums of
    which each device keeps its part are done as a ReduceScatter where that gains as much more."""
    model = model.on(found.schedule.by)
    made, gaining = _grouped(found, model, least), list[Run]()
    for product, run in scatters(found.schedule.block, model):
        other = _grouped(with_runs([run], found, Objective.TIME), model, least)
        if made.cost.time_s - other.cost.time_s > least * blocking_s((product, *run.steps)):
            gaining.append(run)
    return _grouped(with_runs(gaining, found, Objective.TIME), model, least) if gaining else made


def _grouped(found: PlannedProgram, model: LinkModel, least: float) -> PlannedProgram:
    """The steps as they are, with what gains by it done as one. What is priced by the ways of its blocks takes another
    form's place where it is that much better."""
    best = dict[int, tuple[float, Schedule, Together]]()
    for ordered, group in candidates(found.schedule):
        gain = _gain(ordered, group, model, least)
        if gain and by_ways(ordered, group, model):
            gain -= min(gain / 2, least * group_s(ordered, group, model))
        product = next(s.result for s in ordered.steps[group.first : group.last + 1] if isinstance(s.op, Einsum))
        if gain > best.get(product, (0.0,))[0]:
            best[product] = (gain, ordered, group)
    if not best:
        return found
    grouped = all_of(found.schedule, [(ordered, group) for _, ordered, group in best.values()])
    schedule, saved = _with_turned(grouped), found.cost.time_s - time_together(grouped, model)
    more = sum(step.cost.wire_bytes for step in schedule.steps) - sum(step.cost.wire_bytes for step in grouped.steps)
    cost = replace(
        found.cost,
        wire_bytes=found.cost.wire_bytes + more,
        time_s=found.cost.time_s - saved,
        peak=partial(peak_of, schedule),
    )
    return replace(found, schedule=schedule, cost=cost)


def _with_turned(schedule: Schedule) -> Schedule:
    """What is turned to where it meets another operand brings the busiest device one block more than gathered."""
    steps = list(schedule.steps)
    for group in (each for each in schedule.together if each.how is How.RINGS):
        for place in range(group.first, group.last):
            step = steps[place]
            more = schedule.values[step.operands[0]].local_bytes(schedule.mesh)
            steps[place] = replace(step, cost=replace(step.cost, wire_bytes=step.cost.wire_bytes + more))
    return replace(schedule, block=replace(schedule.block, steps=tuple(steps)))


def _gain(schedule: Schedule, group: Together, model: LinkModel, least: float) -> float:
    """Seconds saved, if these are enough. What is left to XLA it windows only where two operands are gathered over two
    axes: no price says so, and tuning tries it."""
    steps = schedule.steps[group.first : group.last + 1]
    linked = all(has_its_links(s.op.axes, model) for s in steps if s.is_collective)
    known = {How.PARTITIONER: False, How.RING: linked, How.RINGS: knows_ways(model), How.CHUNKS: True}
    if not known[group.how]:
        return 0.0
    before = blocking_s(steps)
    saved = before - group_s(schedule, group, model)
    return saved if saved > least * before else 0.0
