"""A program's plans on its mesh as it is: the best first, then ever leaner ones, made once for all memory limits."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice, tee

from shardc.cost.model import CostModel, picoseconds
from shardc.ir.plan import Cost
from shardc.ir.program import Program
from shardc.planner.budget import Budget
from shardc.planner.idle import is_alone, only_moves
from shardc.planner.options import Objective, Options
from shardc.planner.planned import (
    PlannedProgram,
    PlannedStatement,
    Planning,
    Refused,
    budget_of,
    may_gain,
)
from shardc.planner.program.memory import Limited

IN_TURN = "the shardings of all statements together are too many to go through: each is planned after the one before"


@dataclass(frozen=True, slots=True)
class AsGiven:
    """What is planned without a limit, and from there on, one by one, what is asked for."""

    program: Program
    model: CostModel
    planning: Planning
    free: PlannedProgram  # each statement after the one before
    plans: tuple[PlannedProgram, ...]  # the best first
    budget: Budget  # what they leave
    _leaner: Iterator[PlannedProgram] = field(
        repr=False
    )  # of all statements together; copied, so that each begins anew

    @classmethod
    def of(cls, program: Program, model: CostModel, planning: Planning) -> AsGiven:
        """The cheapest of each statement's plan in turn, over idle axes, and of all together."""
        meter = budget_of(program).meter()
        free = planning.planned(program, model, Options(), meter)
        over_idle, budget = _over_idle_axes(program, model, free, planning, meter.budget)
        in_turn = [free] if over_idle is None else [over_idle, free]
        plans, together = _all_together(program, model, planning, in_turn)
        return cls(program, model, planning, free, plans, budget, tee(together, 1)[0])

    @property
    def best(self) -> PlannedProgram:
        return self.plans[0]

    @property
    def leanest(self) -> PlannedProgram | None:
        """Of all statements together the plan of the smallest peak; None where they are not planned together."""
        return min(copy(self._leaner), key=lambda each: each.cost.peak_bytes, default=None)

    def within(self, memory: int | None) -> PlannedProgram | Refused:
        """The best that keeps the memory limit, or a leaner one."""
        for planned in self.plans:
            if memory is None or planned.cost.peak_bytes <= memory:
                return planned
        assert memory is not None
        leaner, smallest = None, min(planned.cost.peak_bytes for planned in self.plans)
        for planned in copy(self._leaner):
            smallest = min(smallest, planned.cost.peak_bytes)
            if planned.cost.peak_bytes <= memory:
                leaner = planned
                break
        in_turn = Limited(self.program, self.model, memory, self.planning).within(self.free, smallest)
        if leaner is None or isinstance(in_turn, Refused):
            return leaner or in_turn
        return min(in_turn, leaner, key=lambda each: each.price(self.planning.objective))


def _all_together(
    program: Program, model: CostModel, planning: Planning, in_turn: list[PlannedProgram]
) -> tuple[tuple[PlannedProgram, ...], Iterator[PlannedProgram]]:
    """What is planned in turn and all statements planned together, the cheapest first; and leaner ones than those."""
    if not may_gain(program, planning):
        return tuple(in_turn), iter(())
    from shardc.planner.whole.plan import (  # with NumPy, which nothing else here needs
        in_turn_joined,
        is_too_much,
        plan_whole,
    )

    together = plan_whole(program, model, planning)
    whole = [_with_others(each, in_turn[-1]) for each in islice(together, 1)]
    joined = in_turn_joined(program, model, planning, with_short=not whole)
    found = in_turn if joined is None else [*in_turn, joined]
    if is_too_much(program, len(planning.axes(program))):
        found = [replace(each, notes=(*each.notes, IN_TURN)) for each in found]
    return tuple(sorted([*found, *whole], key=lambda each: each.price(planning.objective))), together


def _with_others(whole: PlannedProgram, in_turn: PlannedProgram) -> PlannedProgram:
    """Of a program of one statement, what else it could do: all that is known of the statement alone."""
    match whole.statements, in_turn.statements:
        case (PlannedStatement() as own,), (PlannedStatement() as others,):
            return replace(whole, statements=(others.led_by(own.cheapest(1)[0], own.gap),))
        case _:
            return whole


def _over_idle_axes(
    program: Program, model: CostModel, plain: PlannedProgram, planning: Planning, budget: Budget
) -> tuple[PlannedProgram | None, Budget]:
    """By time a plan that also moves axes written nowhere, if it is worth it; and what is left of the budget.

    What lies along such an axis is a copy, so that a product is shared over it, and smaller blocks are moved.

    `A[I_X, J] → A[I_Y, J]` on X=4, Y=4, Z=4: sliced over Z, 1/16 of A is permuted instead of 1/4, and gathered over the
    links of X and Z. But `A[I_X, J] → A[I, J]` stays one AllGather over X: over Y and Z as well it takes a third of
    the time, and brings more.
    """
    cost, moves = plain.cost, only_moves(program)
    if planning.objective is not Objective.TIME or (moves and not cost.wire_bytes) or not planning.has_idle(program):
        return None, budget
    limit = planning.objective.clearly_less(picoseconds(cost.time_s))
    below = limit if is_alone(program) else None
    options = Options(below=below, idle=True, most_wire=cost.wire_bytes if moves else None, must_plan=False)
    over_idle, left = planning.attempt(program, model, options, budget)
    return (over_idle if over_idle is not None and _is_worth_it(over_idle.cost, cost, moves) else None), left


def _is_worth_it(over_idle: Cost, plain: Cost, moves: bool) -> bool:
    """Whether it takes a fiftieth less time; a tenth, if it brings more bytes or needs more memory. To move arrays, no
    more bytes are worth it."""
    time, before = picoseconds(over_idle.time_s), picoseconds(plain.time_s)
    if moves:
        return over_idle.wire_bytes <= plain.wire_bytes and time < Objective.TIME.clearly_less(before)
    if over_idle.wire_bytes > plain.wire_bytes or over_idle.peak_bytes > plain.peak_bytes:
        return 10 * time < 9 * before
    return time < Objective.TIME.clearly_less(before)
