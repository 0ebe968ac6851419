"""The cheapest plan of a program, its alternatives, its lower bound, and leaner plans."""

from shardc.planner.objective import Objective
from shardc.planner.program.at_once import PlannedProgram, planned_at_once
from shardc.planner.program.pareto import Front, pareto
from shardc.planner.program.plan import plan_program
from shardc.planner.program.subaxes import plan_with_subaxes
from shardc.planner.statement.planned import PlannedLoop, PlannedStatement

__all__ = [
    "Front",
    "Objective",
    "PlannedLoop",
    "PlannedProgram",
    "PlannedStatement",
    "pareto",
    "plan_program",
    "plan_with_subaxes",
    "planned_at_once",
]
