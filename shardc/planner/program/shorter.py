"""The meshes on which a route with an exchange in unequal pieces brings least, where that alone is too long to be
written: see `rules.unequal`."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from shardc.ir.plan import Schedule
from shardc.ir.refine import Refinement
from shardc.planner.idle import is_alone, only_moves
from shardc.planner.planned import PlannedProgram

MOST_TRIED = 1  # whose rounds are worked out


def is_one_array(schedule: Schedule) -> bool:
    """Whether one array moves, and nothing else is done."""
    return is_alone(schedule.program) and only_moves(schedule.program) and len(schedule.inputs) == 1


def meshes_to_exchange_on(whole: PlannedProgram, factors: Sequence[Refinement]) -> list[Refinement | None]:
    """Of one array that moves: the best first, of those as good the one of fewest axes; None for the mesh as it is.
    `factors` are the finest first."""
    schedule = whole.schedule
    if not is_one_array(schedule):
        return []
    from shardc.rules.unequal import unequal  # few plans come here

    array, target = schedule.values[schedule.inputs[0]], schedule.values[schedule.outputs[0]].sharding
    found = list[tuple[int, int, int, Refinement | None]]()
    for place, by in enumerate((None, *reversed(factors))):
        mesh = schedule.mesh if by is None else by.fine
        before, after = (each if by is None else by.sharding(each) for each in (array.sharding, target))
        way = unequal(before, after, array.shape, mesh, mesh.names)
        if way is not None:
            found.append((way.brings, way.numbers, place, by))
    return [by for *_, by in sorted(found, key=itemgetter(0, 1, 2))[:MOST_TRIED]]
