"""Time against memory: from the plan of a program that is fastest to the one that needs the least memory."""

from __future__ import annotations

from shardc.cost.model import CostModel, picoseconds
from shardc.errors import ShardcError
from shardc.ir.program import Program
from shardc.planner.objective import Objective
from shardc.planner.program import PlannedProgram, plan_program

MAX_POINTS = 16


def pareto(
    program: Program, model: CostModel, objective: Objective = Objective.TIME, most: int = MAX_POINTS
) -> tuple[PlannedProgram, ...]:
    """Plans none of which another equals or betters in both: from the best by objective to the leanest found.

    Each is planned within one byte less than the one before needs, at most `most` times, so that of a long front the
    lean end is missing. A plan is left out where one that needs less memory is as good: statements are planned one
    after another, and a limit may make a choice that does better later. Raises what the unlimited plan raises.
    """
    front: list[PlannedProgram] = []
    memory: int | None = None
    for _ in range(most):
        try:
            found = plan_program(program, model, objective, memory)
        except ShardcError as error:
            if error.code != "SHC410":
                raise
            break
        while front and _measure(found, objective) <= _measure(front[-1], objective):
            front.pop()
        front.append(found)
        memory = found.cost.peak_bytes - 1
    return tuple(front)


def _measure(planned: PlannedProgram, objective: Objective) -> int:
    """Time in whole picoseconds: two plans of the same steps in another order differ in the last bits of a float."""
    return picoseconds(planned.cost.time_s) if objective is Objective.TIME else planned.cost.wire_bytes
