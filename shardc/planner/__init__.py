"""The cheapest plan of a program, its alternatives and its lower bound."""

from shardc.planner.objective import Objective
from shardc.planner.program import PlannedProgram, plan_program
from shardc.planner.statement import PlannedStatement

__all__ = ["Objective", "PlannedProgram", "PlannedStatement", "plan_program"]
