"""Time against memory: from the plan of a program that is fastest to the one that needs the least memory."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.cost.model import CostModel
from shardc.errors import ShardcError
from shardc.ir.program import Program
from shardc.planner.objective import Objective
from shardc.planner.program.at_once import PlannedProgram
from shardc.planner.program.subaxes import measure, plan_with_subaxes

MAX_POINTS = 16


@dataclass(frozen=True, slots=True)
class Front:
    """Plans, each worse by objective than the one before and leaner; `whole` if nothing leaner was found."""

    points: tuple[PlannedProgram, ...]
    whole: bool


def pareto(
    program: Program,
    model: CostModel,
    objective: Objective = Objective.TIME,
    memory: int | None = None,
    most: int = MAX_POINTS,
) -> Front:
    """What `plan_with_subaxes` finds under every limit up to `memory`, less what another equals or betters in both.

        limit        none    46 MB - 1    41 MB - 1    37 MB - 1    33 MB - 1
        its plan     340 µs  410 µs       434 µs       457 µs       SHC410: the front is whole
        peak bytes   46 MB   41 MB        37 MB        33 MB

    Each is planned within one byte less than the one before needs, at most `most` times, so that of a long front the
    lean end is missing. A plan is left out where one that needs less memory is as good: statements are planned one
    after another, and a limit may make a choice that does better later. Raises what the first plan raises.
    """
    front: list[PlannedProgram] = []
    for _ in range(most):
        try:
            found = plan_with_subaxes(program, model, objective, memory)
        except ShardcError as error:
            if error.code != "SHC410" or not front:
                raise
            return Front(tuple(front), whole=True)
        while front and measure(found, objective) <= measure(front[-1], objective):
            front.pop()
        front.append(found)
        memory = found.cost.peak_bytes - 1
    return Front(tuple(front), whole=False)
