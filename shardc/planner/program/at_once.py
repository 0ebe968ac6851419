"""A program's statements planned one after another, each the cheapest given what the ones before left."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from shardc.cost.model import CostModel, picoseconds
from shardc.cost.sums import cost_of
from shardc.ir.plan import Cost, Schedule
from shardc.ir.program import Program, check_divisible, every_statement
from shardc.planner.bounds.bound import lower_bound
from shardc.planner.budget import Budget
from shardc.planner.objective import Objective
from shardc.planner.program.limits import axes_to_search, check_bytes
from shardc.planner.program.loops import add
from shardc.planner.program.progress import Progress
from shardc.planner.statement.nodes import Planner
from shardc.planner.statement.orders import order_notes
from shardc.planner.statement.planned import PlannedLoop, PlannedStatement, gaps_of


@dataclass(frozen=True)
class PlannedProgram:
    """The steps, their cost, and what each statement could do instead."""

    schedule: Schedule
    statements: tuple[PlannedStatement | PlannedLoop, ...]
    cost: Cost
    notes: tuple[str, ...] = ()
    whole: Schedule | None = None  # of a plan on a finer mesh, the one on the mesh as given
    peaks: tuple[int, ...] = ()  # up to each statement but the last, where memory is limited

    @cached_property
    def bound_bytes(self) -> int:
        """The wire bytes below which no method gets."""
        return lower_bound(self.whole or self.schedule)


def planned_at_once(
    program: Program,
    model: CostModel,
    objective: Objective,
    *,
    memory: int | None = None,
    early: int | None = None,
    cap: int | None = None,
    limit: int | None = None,
    with_idle: bool | None = None,
    most_wire: int | None = None,
    budget: Budget | None = None,
    hurried: bool = True,
    quick: bool = False,
    deep: bool = False,
) -> PlannedProgram:
    """The cheapest plan, no step larger than `cap`; with `memory` and `early` as of Progress.

    Of one product or reshard, SHC220 where none costs less than `limit`, in picoseconds or bytes. No array's moves
    bring more than `most_wire` bytes. Idle axes are moved by bytes, if nothing else is asked for: what stands along
    them is a copy of the same computation, which takes no time. Raises Spent where the budget ends first, unless a
    hurried plan will do.
    """
    check_divisible(program)
    pool, notes = axes_to_search(program, objective is Objective.BYTES if with_idle is None else with_idle)
    most = None if limit is None else objective.below(limit)
    budget = Budget.of(len(list(every_statement(program)))) if budget is None else budget
    planner = Planner(
        program, model, objective, pool, cap=cap, limit=most, most_wire=most_wire, budget=budget, quick=quick, deep=deep
    )
    state = Progress(planner, memory, early, hurried=hurried)
    statements = tuple(add(state, number, statement) for number, statement in enumerate(program.statements))
    schedule = state.schedule()
    check_bytes(schedule)
    notes += tuple(str(gap) for statement in statements for gap in gaps_of(statement))
    notes += order_notes(program)
    return PlannedProgram(schedule, statements, cost_of(schedule), notes, peaks=tuple(state.peaks))


def price_of(planned: PlannedProgram, objective: Objective) -> int:
    """What plans are compared by: of all steps, whichever came first."""
    steps = planned.schedule.steps
    return sum(objective.price(picoseconds(step.cost.time_s), step.cost.wire_bytes) for step in steps)
