"""Whether products and the collectives beside them are done as one, and steps in chunks to take less time.

off    every step by itself; tuning tries no forms
auto   as a ring where its price is clearly less than its steps', and such prices are known to be right; only by time.
       What the compiler would begin early anyway gains nothing. Tuning tries forms, and keeps what replays fastest
on     each product in the form of the least price, where that is less than its steps'

A memory limit is kept: where what is done as one would hold more, every step is done by itself; and where no plan step
by step keeps it, what holds blocks of an array in place of the whole may. What another plan takes in such forms counts
too (`plan.otherwise`), where that is as much less.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Protocol

from shardc.cost.model import LinkModel
from shardc.ir.program import Program
from shardc.lowering.around import prices_of_rings_hold
from shardc.planner.idle import Idle
from shardc.planner.options import CLEARLY, Objective, Overlap
from shardc.planner.planned import PlannedProgram, Refused
from shardc.planner.program.memory import TooLarge, too_large


class Search(Protocol):
    """A plan of a program within a limit. SHC410 where none that is found keeps it."""

    def __call__(
        self, program: Program, model: LinkModel, objective: Objective, memory: int | None, idle: Idle
    ) -> PlannedProgram: ...


def or_as_one(
    search: Search,
    program: Program,
    model: LinkModel,
    objective: Objective,
    memory: int | None,
    idle: Idle,
    overlap: Overlap,
) -> PlannedProgram:
    """What is planned within a limit; where nothing is, the plan without one with its products done as one with
    collectives, if that keeps it. SHC410 if that does not, which names its peak where no smaller one is known.

    A[I_X, J] · B[J, K_X] → C[I_X, K]      a ring holds two blocks of B at a time, and never the whole
    """
    try:
        return search(program, model, objective, memory, idle)
    except TooLarge as error:
        if overlap is Overlap.OFF or memory is None:
            raise
        found = overlapped(error.free, model, Overlap.ON, objective, None)
        if not found.schedule.together or error.smallest <= found.cost.peak_bytes > memory:
            raise
        if found.cost.peak_bytes > memory:
            raise too_large(program, memory, Refused(found.cost.peak_bytes), error.free) from None
        return found


def overlapped(
    found: PlannedProgram,
    model: LinkModel,
    overlap: Overlap,
    objective: Objective,
    memory: int | None,
    others: Iterable[PlannedProgram] = (),
) -> PlannedProgram:
    """The plan with its products done as one with collectives, where that is asked for, or clearly costs less; or one
    of the others, by time."""
    may_choose = objective is Objective.TIME and prices_of_rings_hold(model.target)
    if overlap is Overlap.OFF or (overlap is Overlap.AUTO and not may_choose):
        return found
    from shardc.planner.program.as_one import as_one  # only who asks for rings waits for what prices them

    least = 0.0 if overlap is Overlap.ON else CLEARLY
    best = found
    for each in chain([found], others if objective is Objective.TIME else ()):
        made = as_one(each, model, least)
        margin = 0.0 if best.schedule.together else least  # of two that are as one the lesser is taken
        saves = each is found or made.cost.time_s < (1 - margin) * best.cost.time_s
        if saves and made.schedule.together and (memory is None or made.cost.peak_bytes <= memory):
            best = made
    return best
