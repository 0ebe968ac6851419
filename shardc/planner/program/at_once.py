"""A program's plan, statement after statement, under given options: what all others are put together from."""

from __future__ import annotations

import math

from shardc.cost.model import CostModel
from shardc.cost.sums import cost_of
from shardc.errors import ShardcError
from shardc.ir.plan import Schedule
from shardc.ir.program import Program, check_divisible
from shardc.planner.budget import Meter
from shardc.planner.idle import axes_to_search
from shardc.planner.options import CHEAPEST, Objective, Options
from shardc.planner.planned import PlannedProgram, budget_of, gaps_of
from shardc.planner.problem import Problem, Scratch
from shardc.planner.program.loops import add_all
from shardc.planner.program.progress import PartialPlan
from shardc.planner.statement.orders import order_notes


def planned_at_once(
    program: Program,
    model: CostModel,
    objective: Objective,
    options: Options = CHEAPEST,
    meter: Meter | None = None,
) -> PlannedProgram:
    """The cheapest plan that the options allow.

    SHC220 where there is none. Idle axes are moved by bytes, if nothing else is asked for: what stands along them is
    a copy of the same computation, which takes no time. Raises Spent where the budget ends first, unless `must_plan`.
    """
    check_divisible(program)
    pool, notes = axes_to_search(program, objective is Objective.BYTES if options.idle is None else options.idle)
    scratch = Scratch(budget_of(program).meter() if meter is None else meter)
    start = PartialPlan(Problem(program, model, objective, pool, options, scratch=scratch))
    state, statements = add_all(start, program.statements)
    schedule = state.schedule()
    check_bytes(schedule)
    notes += tuple(str(gap) for statement in statements for gap in gaps_of(statement))
    notes += order_notes(program)
    return PlannedProgram(schedule, statements, cost_of(schedule), notes, peaks=state.peaks)


def check_bytes(schedule: Schedule) -> None:
    """SHC406 for an array of 2^63 bytes or more."""
    for array in schedule.values:
        size = math.prod(array.shape) * array.dtype.bytes
        if size >= 2**63:
            raise ShardcError(
                "SHC406",
                f"`{array.name}` has {array.dtype.bytes}·{'·'.join(map(str, array.shape))} bytes; the limit is 2^63",
                help="make its dims smaller",
            )
