"""A program's plan: the best over the axes written, over idle ones, on finer meshes, within a memory limit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from shardc.cost.model import CostModel, picoseconds
from shardc.cost.sums import cost_of
from shardc.errors import ShardcError
from shardc.ir.plan import Cost, Schedule
from shardc.ir.program import Program, check_divisible
from shardc.planner.budget import Budget, Meter
from shardc.planner.idle import Idle, axes_to_search, is_alone, only_moves
from shardc.planner.options import CHEAPEST, Objective, Options
from shardc.planner.planned import (
    PlannedProgram,
    PlannedStatement,
    Planning,
    Refused,
    budget_of,
    computed,
    gaps_of,
    may_gain,
)
from shardc.planner.problem import Problem, Scratch
from shardc.planner.program import pareto as fronts
from shardc.planner.program.finer import Finer
from shardc.planner.program.loops import add_all
from shardc.planner.program.memory import Limited
from shardc.planner.program.others import strategies
from shardc.planner.program.progress import PartialPlan
from shardc.planner.statement.orders import order_notes

SMALL = 4  # products and functions of a program that is planned in several ways
IN_TURN = "the shardings of all statements together are too many to go through: each is planned after the one before"


def planned_at_once(
    program: Program,
    model: CostModel,
    objective: Objective,
    options: Options = CHEAPEST,
    meter: Meter | None = None,
) -> PlannedProgram:
    """The cheapest plan that the options allow.

    SHC220 where there is none. Idle axes are moved by bytes, if nothing else is asked for: what stands along them is
    a copy of the same computation, which takes no time. Raises Spent where the budget ends first, unless `must_plan`.
    """
    check_divisible(program)
    pool, notes = axes_to_search(program, objective is Objective.BYTES if options.idle is None else options.idle)
    scratch = Scratch(budget_of(program).meter() if meter is None else meter)
    start = PartialPlan(Problem(program, model, objective, pool, options, scratch=scratch))
    state, statements = add_all(start, program.statements)
    schedule = state.schedule()
    check_bytes(schedule)
    notes += tuple(str(gap) for statement in statements for gap in gaps_of(statement))
    notes += order_notes(program)
    return PlannedProgram(schedule, statements, cost_of(schedule), notes, peaks=state.peaks)


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


def plan_program(
    program: Program,
    model: CostModel,
    objective: Objective = Objective.TIME,
    memory: int | None = None,
    idle: Idle = Idle.USE,
) -> PlannedProgram:
    """The cheaper of each statement's plan in turn and of all together, within `memory` bytes per device if given.

    Where the budget ends first, the best that is found, with its gap.
    SHC220 if moves cannot reach a sharding asked for, SHC410 if no plan that is found keeps the limit.
    """
    found, _ = _planned(program, model, Planning(objective, idle, planned_at_once), memory)
    if isinstance(found, Refused):
        raise too_large(program, memory, found)
    return found


def plan_with_subaxes(
    program: Program,
    model: CostModel,
    objective: Objective = Objective.TIME,
    memory: int | None = None,
    idle: Idle = Idle.USE,
) -> PlannedProgram:
    """As `plan_program`; on a mesh with axes cut where that is cheaper by the objective, or alone keeps the limit.

    By bytes it must save some, by time a hundredth, since the program is longer. Programs that take or give partial
    sums are left on their mesh.
    """
    return _OnAnyMesh.of(program, model, Planning(objective, idle, planned_at_once)).within(memory)


def otherwise(found: PlannedProgram, model: CostModel, idle: Idle) -> Iterator[PlannedProgram]:
    """Other plans of a program, which may be the better ones with products done as one with collectives: strategies of
    its plan; of a small one the plan on the mesh as given, with its strategies, and the plan by bytes there."""
    program = (found.whole or found.schedule).program
    yield from strategies(found)
    if not 0 < computed(program) <= SMALL:
        return
    if found.schedule.by is not None:
        whole = plan_program(program, model, idle=idle)
        yield from (whole, *strategies(whole))
    yield plan_program(program, model, Objective.BYTES, idle=idle)


def pareto(
    program: Program,
    model: CostModel,
    objective: Objective = Objective.TIME,
    memory: int | None = None,
    most: int = fronts.MAX_POINTS,
    idle: Idle = Idle.USE,
) -> fronts.Front:
    """Time against memory: what `plan_with_subaxes` finds under every limit up to `memory`."""
    planned = _OnAnyMesh.of(program, model, Planning(objective, idle, planned_at_once))
    return fronts.front(planned.within, objective, memory, most)


@dataclass(frozen=True)  # without slots: the first leaner plan is kept
class _OnAnyMesh:
    """Plans of a program on its mesh, or on a finer one, under any limit; those without a limit are made once."""

    program: Program
    model: CostModel
    planning: Planning
    whole: PlannedProgram  # on the mesh as it is, without a limit
    free: PlannedProgram  # on any, without a limit

    @classmethod
    def of(cls, program: Program, model: CostModel, planning: Planning) -> _OnAnyMesh:
        whole, budget = _planned(program, model, planning, None)
        assert isinstance(whole, PlannedProgram), "nothing is refused without a limit"
        free = Finer(whole, model, planning, None).best(None, budget)
        assert isinstance(free, PlannedProgram), "nothing is refused without a limit"
        return cls(program, model, planning, whole, free)

    def within(self, memory: int | None) -> PlannedProgram:
        """The plan under a limit: the one without, if that keeps it. SHC410 if no plan that is found does."""
        if memory is None or self.free.cost.peak_bytes <= memory:
            return self.free
        found = self._limited(memory)
        if isinstance(found, Refused):
            found = self._leanest(memory, found)
        found = self._or_leaner(memory, found)
        if isinstance(found, Refused):
            raise too_large(self.program, memory, found)
        return found

    def _or_leaner(self, memory: int, found: PlannedProgram | Refused) -> PlannedProgram | Refused:
        """The first leaner plan instead, where that keeps the limit too and is cheaper."""
        leaner, objective = self._leaner, self.planning.objective
        if isinstance(leaner, Refused):
            return found
        keeps = leaner.cost.peak_bytes <= memory
        if isinstance(found, Refused):
            return leaner if keeps else Refused(min(found.smallest, leaner.cost.peak_bytes))
        return leaner if keeps and leaner.measure(objective) < found.measure(objective) else found

    @cached_property
    def _leaner(self) -> PlannedProgram | Refused:
        """What is planned under the first limit that the free plan does not keep. It may keep much smaller ones, where
        what is looked for under those is dearer."""
        return self._limited(self.free.cost.peak_bytes - 1)

    def _limited(self, memory: int) -> PlannedProgram | Refused:
        found, budget = _planned(self.program, self.model, self.planning, memory)
        refused = found if isinstance(found, Refused) else None
        whole = self.whole if isinstance(found, Refused) else found
        return Finer(whole, self.model, self.planning, memory).best(refused, budget)

    def _leanest(self, memory: int, refused: Refused) -> PlannedProgram | Refused:
        """What a refusal names is planned: done at once, the moves of that plan may need less, and keep the limit."""
        found = self._limited(refused.smallest)
        if isinstance(found, Refused):
            return Refused(min(found.smallest, refused.smallest))
        return found if found.cost.peak_bytes <= memory else Refused(min(found.cost.peak_bytes, refused.smallest))


def too_large(program: Program, memory: int | None, refused: Refused) -> ShardcError:
    return ShardcError(
        "SHC410",
        f"no plan found keeps {memory} bytes per device; the smallest peak found is {refused.smallest}",
        span=program.statements[0].span if len(program.statements) == 1 else None,
        help=f"--memory {refused.smallest}, or shard the arrays over more axes",
    )


def _planned(
    program: Program, model: CostModel, planning: Planning, memory: int | None
) -> tuple[PlannedProgram | Refused, Budget]:
    """On the mesh as it is; and what is left of the budget."""
    meter = budget_of(program).meter()
    free = planning.planned(program, model, Options(), meter)
    over_idle, budget = _over_idle_axes(program, model, free, planning, meter.budget)
    return _within(program, model, planning, memory, free, over_idle), budget


def _within(
    program: Program,
    model: CostModel,
    planning: Planning,
    memory: int | None,
    free: PlannedProgram,
    over_idle: PlannedProgram | None,
) -> PlannedProgram | Refused:
    """The best of these and of all statements planned together that keeps the memory limit, or leaner ones."""
    objective = planning.objective
    found = [free] if over_idle is None else [over_idle, free]
    together: Iterator[PlannedProgram] = iter(())
    if may_gain(program, planning):
        from shardc.planner.whole.plan import (  # with NumPy, which nothing else here needs
            in_turn_joined,
            is_too_much,
            plan_whole,
        )

        together = plan_whole(program, model, planning)
        whole = [_with_others(each, free) for each in islice(together, 1)]
        joined = in_turn_joined(program, model, planning, with_short=not whole)
        found = found if joined is None else [*found, joined]
        if is_too_much(program, len(planning.axes(program))):
            found = [replace(each, notes=(*each.notes, IN_TURN)) for each in found]
        found = sorted([*found, *whole], key=lambda each: each.price(objective))
    for planned in found:
        if memory is None or planned.cost.peak_bytes <= memory:
            return planned
    assert memory is not None
    leaner, smallest = None, min(planned.cost.peak_bytes for planned in found)
    for planned in together:
        smallest = min(smallest, planned.cost.peak_bytes)
        if planned.cost.peak_bytes <= memory:
            leaner = planned
            break
    in_turn = Limited(program, model, memory, planning).within(free, smallest)
    if leaner is None or isinstance(in_turn, Refused):
        return leaner or in_turn
    return min(in_turn, leaner, key=lambda each: each.price(objective))


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
