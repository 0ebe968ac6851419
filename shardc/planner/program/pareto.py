"""Time against memory: from the plan of a program that is fastest to the one that needs the least memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardc.errors import ShardcError
from shardc.planner.options import Objective
from shardc.planner.planned import PlannedProgram

MAX_POINTS = 16


@dataclass(frozen=True, slots=True)
class Front:
    """Plans, each worse by objective than the one before and leaner; `whole` if nothing leaner was found."""

    points: tuple[PlannedProgram, ...]
    whole: bool


Say = Callable[[str], None]
Within = Callable[[int | None], PlannedProgram]  # what is planned within a limit


def silent(_line: str) -> None:
    """Nobody is told."""


def front(
    plan: Within,
    objective: Objective,
    memory: int | None,
    most: int = MAX_POINTS,
    say: Say = silent,
) -> Front:
    """What is planned under every limit up to `memory`, less what another equals or betters in both.

        limit        none    46 MB - 1    41 MB - 1    37 MB - 1    33 MB - 1
        its plan     340 µs  410 µs       434 µs       457 µs       SHC410: the front is whole
        peak bytes   46 MB   41 MB        37 MB        33 MB

    Each is planned within one byte less than the one before needs, at most `most` times, so that of a long front the
    lean end is missing. A plan is left out where one that needs less memory is as good: statements are planned one
    after another, and a limit may make a choice that does better later. A point is what is planned within its own
    peak, so that asked for by that peak it is found again. `say` is told of each. Raises what the first plan raises.
    """
    found: list[PlannedProgram] = []
    for _ in range(most):
        try:
            planned = _settled(plan, plan(memory), objective)
        except ShardcError as error:
            if error.code != "SHC410" or not found:
                raise
            return Front(tuple(found), whole=True)
        while found and planned.measure(objective) <= found[-1].measure(objective):
            found.pop()
        found.append(planned)
        memory = planned.cost.peak_bytes - 1
        say(f"looking for leaner plans: {len(found)} so far, the leanest takes {memory + 1:,} bytes")
    return Front(tuple(found), whole=False)


def _settled(plan: Within, found: PlannedProgram, objective: Objective) -> PlannedProgram:
    """What is planned within the peak of a plan, as long as that is as good."""
    while True:
        again = plan(found.cost.peak_bytes)
        if again.measure(objective) > found.measure(objective):
            return found
        if again.cost.peak_bytes == found.cost.peak_bytes:
            return again
        found = again
