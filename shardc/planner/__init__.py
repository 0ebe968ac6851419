"""The cheapest plan of a program, its alternatives, its lower bound, and leaner plans."""

from shardc.planner.idle import Idle
from shardc.planner.options import Objective, Overlap
from shardc.planner.planned import PlannedLoop, PlannedProgram, PlannedStatement
from shardc.planner.program.loops import planned_at_once
from shardc.planner.program.overlap import or_as_one, overlapped
from shardc.planner.program.pareto import Front
from shardc.planner.program.plan import otherwise, pareto, plan_program, plan_with_subaxes
from shardc.planner.program.written import Written, as_written

__all__ = [
    "Front",
    "Idle",
    "Objective",
    "Overlap",
    "PlannedLoop",
    "PlannedProgram",
    "PlannedStatement",
    "Written",
    "as_written",
    "or_as_one",
    "otherwise",
    "overlapped",
    "pareto",
    "plan_program",
    "plan_with_subaxes",
    "planned_at_once",
]
