"""What is tried: the best few plans of a program, each in its forms, and the program left to XLA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from shardc.cost.prefetch import time_of
from shardc.cost.together import blocking_s
from shardc.errors import ShardcError
from shardc.interface.asked import Asked
from shardc.ir.plan import Loop, Schedule, Together, every_step
from shardc.ir.program import Program
from shardc.lowering.timed import brings_at_most
from shardc.lowering.together import candidates, spelled
from shardc.lowering.tpu import on_chip
from shardc.planner import Idle, Objective, PlannedProgram, plan_program, planned_at_once
from shardc.planner.budget import Spent
from shardc.planner.options import Options
from shardc.planner.program.chunked import chunks_of
from shardc.planner.program.others import strategies

XLA = "XLA"
DIMS, COUNTS = 3, 2  # cut in chunks: the likely ones by price, and of each so many counts


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan in one form: where it is from, what of it is done as one."""

    name: str
    how: str
    found: PlannedProgram
    predicted_s: float | None  # None: no price is known of what is XLA's choice

    @property
    def label(self) -> str:
        return f"{self.name}, {self.how}" if self.how else self.name


def plans(found: PlannedProgram, asked: Asked, few: int) -> Iterator[Candidate]:
    """The plan, its steps by themselves, and up to so many others, of which no two have the same steps."""
    if found.schedule.together:
        cost = replace(found.cost, time_s=blocking_s(found.schedule.steps))
        found = replace(found, schedule=found.schedule.blocking, cost=cost)
    seen = set[object]()
    for name, each in _every(found, asked):
        key = (each.schedule.by, tuple((step.op, step.operands, step.results) for step in each.schedule.steps))
        if key in seen or (asked.memory is not None and each.cost.peak_bytes > asked.memory):
            continue
        seen.add(key)
        yield Candidate(name, "", each, each.cost.time_s)
        if len(seen) > few:
            return


def as_planned(found: PlannedProgram) -> Iterator[Candidate]:
    """The plan with what is done as one in it, if anything is."""
    schedule = found.schedule
    if schedule.together:
        how = "; ".join(spelled(schedule, group) for group in schedule.together)
        yield Candidate("the plan", how, found, found.cost.time_s)


def by_xla(found: PlannedProgram, asked: Asked) -> Candidate:
    """The program left to XLA, on the mesh as given."""
    uncut = found
    if found.schedule.by is not None:
        uncut = plan_program(found.schedule.program if found.whole is None else found.whole.program, asked.model)
    return Candidate(XLA, "", replace(uncut, schedule=replace(uncut.schedule, by_xla=True)), None)


def forms(plan: Candidate, asked: Asked) -> Iterator[tuple[Schedule, Together, Candidate]]:
    """A plan with one of its products done together with collectives, each by itself."""
    for ordered, group in candidates(plan.found.schedule):
        yield ordered, group, together(plan, replace(ordered, together=(group,)), asked)


def in_chunks(plan: Candidate, asked: Asked) -> Iterator[Candidate]:
    """A plan with steps in chunks of one dim after another, where what lies between them has no room on the chip as a
    whole. The compiler makes one loop of a trip's steps or several, which no price knows."""
    target = asked.model.target
    cut = chunks_of(plan.found, asked.model, on_chip(target) or brings_at_most(target))
    found = [sorted(made, key=lambda each: each.planned.cost.time_s)[:COUNTS] for made in cut]
    likely = sorted(found, key=lambda made: made[0].planned.cost.time_s)[:DIMS]
    for each in (each for made in likely for each in made):
        yield Candidate(plan.name, str(each), each.planned, each.planned.cost.time_s)


def has_chunks(plan: Candidate) -> bool:
    """Whether steps are in chunks already."""
    loops = (done.step.op for done in every_step(plan.found.schedule.block) if isinstance(done.step.op, Loop))
    return any(loop.is_of_chunks for loop in loops)


def together(plan: Candidate, schedule: Schedule, asked: Asked) -> Candidate:
    """A plan with the groups of this schedule."""
    found = replace(plan.found, schedule=schedule)
    how = "; ".join(spelled(schedule, group) for group in schedule.together)
    return Candidate(plan.name, how, found, time_of(schedule, asked.model.on(schedule.by)))


def _every(found: PlannedProgram, asked: Asked) -> Iterator[tuple[str, PlannedProgram]]:
    """Plans by several ways to plan, the likely ones first."""
    program = (found.whole or found.schedule).program
    yield "the plan", found
    yield from _made("idle axes used", lambda: _with_idle(program, asked)) if asked.idle is Idle.USE else ()
    yield from ((f"strategy {n}", each) for n, each in enumerate(strategies(found, asked.model), 2))
    yield from _made("on whole axes", lambda: plan_program(program, asked.model, asked.objective, idle=asked.idle))
    other = Objective.BYTES if asked.objective is Objective.TIME else Objective.TIME
    yield from _made(f"by {other.value}", lambda: plan_program(program, asked.model, other, idle=asked.idle))


def _made(name: str, make: Callable[[], PlannedProgram]) -> Iterator[tuple[str, PlannedProgram]]:
    try:
        yield name, make()
    except (ShardcError, Spent):
        return


def _with_idle(program: Program, asked: Asked) -> PlannedProgram:
    return planned_at_once(program, asked.model, asked.objective, Options(idle=True))
