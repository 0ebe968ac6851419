"""A program's statements planned one after another, each the cheapest given what the ones before left."""

from __future__ import annotations

import math

from shardc.cost.model import CostModel
from shardc.cost.sums import cost_of
from shardc.errors import ShardcError
from shardc.ir.plan import Schedule
from shardc.ir.program import Program, check_divisible, every_statement
from shardc.planner.budget import Budget
from shardc.planner.meshes.idle import axes_to_search
from shardc.planner.objective import Objective
from shardc.planner.options import CHEAPEST, Options
from shardc.planner.planned import PlannedProgram, gaps_of
from shardc.planner.problem import Problem
from shardc.planner.program.loops import add
from shardc.planner.program.progress import PartialPlan
from shardc.planner.statement.orders import order_notes


def planned_at_once(
    program: Program,
    model: CostModel,
    objective: Objective,
    options: Options = CHEAPEST,
    budget: Budget | None = None,
) -> PlannedProgram:
    """The cheapest plan that the options allow.

    SHC220 where there is none. Idle axes are moved by bytes, if nothing else is asked for: what stands along them is
    a copy of the same computation, which takes no time. Raises Spent where the budget ends first, unless `must_plan`.
    """
    check_divisible(program)
    pool, notes = axes_to_search(program, objective is Objective.BYTES if options.idle is None else options.idle)
    budget = Budget.of(len(list(every_statement(program)))) if budget is None else budget
    state = PartialPlan(Problem(program, model, objective, pool, options, budget))
    statements = tuple(add(state, number, statement) for number, statement in enumerate(program.statements))
    schedule = state.schedule()
    check_bytes(schedule)
    notes += tuple(str(gap) for statement in statements for gap in gaps_of(statement))
    notes += order_notes(program)
    return PlannedProgram(schedule, statements, cost_of(schedule), notes, peaks=tuple(state.peaks))


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
