"""A program's plan: the best over the axes written, over idle ones, on finer meshes, within a memory limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import islice, tee

from shardc.cost.model import CostModel
from shardc.cost.rate import picoseconds
from shardc.ir.plan import Schedule
from shardc.ir.program import Program, every_statement
from shardc.ir.refine import Refinement
from shardc.lowering.tpu import LARGE_SLICE
from shardc.planner.bounds.held import least_held, least_peak
from shardc.planner.budget import Budget
from shardc.planner.idle import Idle, is_alone, is_worth_it, only_moves
from shardc.planner.options import Objective, Options
from shardc.planner.planned import PlannedProgram, Planning, Refused, Within, budget_of, computed, may_gain, may_repeat
from shardc.planner.program import pareto as fronts
from shardc.planner.program.finer import SMALL, Finer
from shardc.planner.program.loops import AtOnce
from shardc.planner.program.memory import LONG, Left, Limited, too_large
from shardc.planner.program.others import strategies, with_others
from shardc.planner.program.respelled import in_rounds


def plan_program(
    program: Program,
    model: CostModel,
    objective: Objective = Objective.TIME,
    memory: int | None = None,
    idle: Idle = Idle.USE,
) -> PlannedProgram:
    """The cheaper of each statement's plan in turn and of all together, within `memory` bytes per device if given.

    Each value's type says along which axes it is equal. Where the budget ends first, the best that is found, with its
    gap.
    SHC220 if moves cannot reach a sharding asked for, SHC410 if no plan that is found keeps the limit.
    """
    return _cheapest(AsGiven, program, model, Planning(objective, idle, AtOnce(), is_typed=True))(memory)


def plan_with_subaxes(
    program: Program,
    model: CostModel,
    objective: Objective = Objective.TIME,
    memory: int | None = None,
    idle: Idle = Idle.USE,
) -> PlannedProgram:
    """As `plan_program`; on a mesh with axes cut where that is cheaper by the objective, or alone keeps the limit: by
    bytes if it saves any, by time a hundredth. Programs that take or give partial sums are left on their mesh."""
    found = _cheapest(_OnAnyMesh, program, model, Planning(objective, idle, AtOnce()))(memory)
    return found if program.mesh.devices < LARGE_SLICE else in_rounds(found, model)


def otherwise(found: PlannedProgram, model: CostModel, idle: Idle) -> Iterator[PlannedProgram]:
    """Other plans of a program, which may be the better ones with products done as one with collectives: strategies of
    its plan; of a small one the plan on the mesh as given, with its strategies, and the plan by bytes there."""
    program = (found.whole or found.schedule).program
    yield from strategies(found, model)
    if not 0 < computed(program) <= SMALL:
        return
    if found.schedule.by is not None:
        whole = plan_program(program, model, idle=idle)
        yield from (whole, *strategies(whole, model))
    yield plan_program(program, model, Objective.BYTES, idle=idle)


def pareto(
    program: Program,
    model: CostModel,
    objective: Objective = Objective.TIME,
    memory: int | None = None,
    most: int = fronts.MAX_POINTS,
    idle: Idle = Idle.USE,
    say: fronts.Say = fronts.silent,
    finished: Callable[[fronts.Within], fronts.Within] = lambda within: within,
) -> fronts.Front:
    """Time against memory: what `plan_with_subaxes` finds under every limit up to `memory`, as it is finished."""
    planned = _cheapest(_OnAnyMesh, program, model, Planning(objective, idle, AtOnce()))
    return fronts.front(finished(planned), objective, memory, most, say)


def _cheapest(
    kind: type[AsGiven | _OnAnyMesh], program: Program, model: CostModel, planning: Planning
) -> fronts.Within:
    """The cheapest of the plans of a program as written, and with what it writes several times as arrays."""
    within: Within = kind.of(program, model, planning).within
    if may_repeat(program):
        from shardc.planner.program.repeated import cheapest  # few programs come here

        within = cheapest(program, planning.objective, within, lambda each: kind.of(each, model, planning).within)
    return partial(_kept, program, within)


def _kept(program: Program, within: Within, memory: int | None) -> PlannedProgram:
    """SHC410 if no plan that is found keeps the limit."""
    found = within(memory)
    if isinstance(found, Refused):
        assert memory is not None, "nothing is refused without a limit"
        raise too_large(program, memory, found, _kept(program, within, None))
    return found


@dataclass(frozen=True)  # without slots: what is planned under a limit is kept
class _OnAnyMesh:
    """Plans of a program on its mesh, or on a finer one, under any limit; those without a limit are made once."""

    as_given: AsGiven
    free: PlannedProgram  # on any mesh, without a limit

    @classmethod
    def of(cls, program: Program, model: CostModel, planning: Planning, beside: Refinement | None = None) -> _OnAnyMesh:
        given = AsGiven.of(program, model, planning)
        free = Finer(given.best, model, planning, None, _whole, given.apart, beside=beside).best(None, given.budget)
        assert isinstance(free, PlannedProgram), "nothing is refused without a limit"
        return cls(given, free)

    def within(self, memory: int | None) -> PlannedProgram | Refused:
        """The plan under a limit: the one without, if that keeps it."""
        if memory is None or self.free.cost.peak_bytes <= memory:
            return self.free
        if self.free.cost.peak_bytes <= least_peak(self.as_given.program):
            return Refused(self.free.cost.peak_bytes)
        in_chunks = self._in_chunks(memory)
        if not isinstance(in_chunks, Refused) and self._is_as_cheap(in_chunks):
            return in_chunks
        here = self.as_given
        leanest = None if memory >= least_held(here.program) else here.leanest(memory)
        found = self._limited(memory) if leanest is None else Refused(leanest)
        if isinstance(found, Refused):
            found = self._leanest(memory, found)
        found = self._cheaper(in_chunks, self._or_leaner(memory, found))
        return found if isinstance(found, Refused) else self._or_below(found)

    def _or_below(self, found: PlannedProgram) -> PlannedProgram:
        """What is planned under the first limit that a plan does not keep, as long as that is cheaper: where there are
        several statements, a limit may make a choice that does better later. Of a long program all that is known was
        compared."""
        objective = self.as_given.planning.objective
        while 1 < len(list(every_statement(self.as_given.program))) < LONG:
            below = self._limited(found.cost.peak_bytes - 1)
            if isinstance(below, Refused) or below.measure(objective) >= found.measure(objective):
                break
            found = below
        return found

    def _or_leaner(self, memory: int, found: PlannedProgram | Refused) -> PlannedProgram | Refused:
        """The first leaner plan instead, where that keeps the limit too and is cheaper."""
        leaner, objective = self._leaner, self.as_given.planning.objective
        if isinstance(leaner, Refused):
            return found
        keeps = leaner.cost.peak_bytes <= memory
        if isinstance(found, Refused):
            return leaner if keeps else Refused(min(found.smallest, leaner.cost.peak_bytes))
        return leaner if keeps and leaner.measure(objective) < found.measure(objective) else found

    def _in_chunks(self, memory: int) -> PlannedProgram | Refused:
        """The plan without a limit with steps in chunks, which keeps the limit so."""
        from shardc.planner.program.chunked import within  # which a plan without a limit needs not

        return within(self.free, self.as_given.model, self.as_given.planning.objective, memory)

    def _is_as_cheap(self, found: PlannedProgram) -> bool:
        """Whether what costs less is not worth looking for: no plan under a limit is known to cost less than the one
        without."""
        free, time = self.free.cost, Objective.TIME
        brings_more = self.as_given.planning.objective is Objective.BYTES and found.cost.wire_bytes > free.wire_bytes
        return not brings_more and self.free.measure(time) >= time.clearly_less(found.measure(time))

    def _cheaper(self, one: PlannedProgram | Refused, other: PlannedProgram | Refused) -> PlannedProgram | Refused:
        if isinstance(one, Refused):
            return Refused(min(one.smallest, other.smallest)) if isinstance(other, Refused) else other
        if isinstance(other, Refused):
            return one
        return min(other, one, key=partial(PlannedProgram.price, objective=self.as_given.planning.objective))

    @cached_property
    def _leaner(self) -> PlannedProgram | Refused:
        """What is planned under the first limit that the free plan does not keep. It may keep much smaller ones, where
        what is looked for under those is dearer."""
        return self._limited(self.free.cost.peak_bytes - 1)

    @cached_property
    def _limited(self) -> Callable[[int], PlannedProgram | Refused]:
        return cache(self._planned_within)

    def _planned_within(self, memory: int) -> PlannedProgram | Refused:
        """Where the first limit that the free plan does not keep finds nothing leaner, smaller ones find nothing."""
        if memory < self.free.cost.peak_bytes - 1 and isinstance(self._leaner, Refused):
            return self._leaner
        here, found = self.as_given, self.as_given.within(memory)
        refused = found if isinstance(found, Refused) else None
        whole = here.best if isinstance(found, Refused) else found
        finer = Finer(whole, here.model, here.planning, memory, _whole, here.apart, Left.of(here.program))
        return finer.best(refused, here.budget)

    def _leanest(self, memory: int, refused: Refused) -> PlannedProgram | Refused:
        """What a refusal names is planned: done at once, the moves of that plan may need less, and keep the limit."""
        found = self._limited(refused.smallest)
        if isinstance(found, Refused):
            return Refused(min(found.smallest, refused.smallest))
        return found if found.cost.peak_bytes <= memory else Refused(min(found.cost.peak_bytes, refused.smallest))


@dataclass(frozen=True, slots=True)
class AsGiven:
    """What is planned without a limit, and from there on, one by one, what is asked for."""

    program: Program
    model: CostModel
    planning: Planning
    free: PlannedProgram  # each statement after the one before, if that was planned
    plans: tuple[PlannedProgram, ...]  # the best first
    budget: Budget  # what they leave
    _leaner: Iterator[PlannedProgram] = field(repr=False)  # of all together; copied, so that each begins anew

    @classmethod
    def of(cls, program: Program, model: CostModel, planning: Planning) -> AsGiven:
        """The cheapest of each statement's plan in turn, over idle axes, and of all together.

        Where the statements are planned together, in turn they seldom cost less: no longer than one statement may take
        is spent on that.
        """
        together = _together(program, model, planning)
        whole = next(together, None)
        if whole is None or is_alone(program):
            meter = budget_of(program).meter()
            free = planning.planned(program, model, Options(), meter)
            over_idle, budget = _over_idle_axes(program, model, free, planning, meter.budget)
            in_turn = [free] if over_idle is None else [over_idle, free]
        else:
            in_turn, budget = _quickly_in_turn(program, model, planning), budget_of(program)
            free = in_turn[-1] if in_turn else whole
        plans = _cheapest_first(program, model, planning, in_turn, whole)
        return cls(program, model, planning, free, plans, budget, tee(together, 1)[0])

    @property
    def best(self) -> PlannedProgram:
        return self.plans[0]

    def apart(self, whole: Schedule) -> Callable[[PlannedProgram], PlannedProgram | None]:
        """What has each array move as it does alone, in other plans than that, which is on the mesh as given."""
        from shardc.planner.program.apart import Reshards  # few plans come here

        def alone(program: Program, beside: Refinement | None) -> PlannedProgram:
            return _OnAnyMesh.of(program, self.model, self.planning, beside).free

        return Reshards(whole, self.model, self.planning.objective, alone).apart

    def leanest(self, memory: int) -> int | None:
        """Of a limit that no plan keeps: the smallest peak of all statements together, and of the statements in turn,
        with and without it. None where they are not planned together."""
        together = [*copy(self._leaner)]
        if not together:
            return None
        in_turn = islice(Limited.of(self.program, self.model, memory, self.planning).keeping(Options()), 1)
        return min(each.cost.peak_bytes for each in (*self.plans, *together, *in_turn))

    def within(self, memory: int | None) -> PlannedProgram | Refused:
        """The best that keeps the memory limit: of those without one, of leaner ones, and of the statements in turn; a
        long program's are tried so only where no other plan keeps it."""
        if memory is None or self.best.cost.peak_bytes <= memory:
            return self.best
        known = [*self.plans, *copy(self._leaner)]
        keeping = [planned for planned in known if planned.cost.peak_bytes <= memory]
        limited = Limited.of(self.program, self.model, memory, self.planning)
        first = known if limited.is_long else self.plans
        price = partial(PlannedProgram.price, objective=self.planning.objective)
        if any(planned.cost.peak_bytes <= memory for planned in first):
            return min(keeping, key=price)
        in_turn = limited.within(self.free, min(planned.cost.peak_bytes for planned in known))
        if isinstance(in_turn, Refused):
            return min(keeping, key=price, default=in_turn)
        return min([in_turn, *keeping], key=price)


def _whole(program: Program, model: CostModel, planning: Planning) -> Iterator[PlannedProgram]:
    """All statements together; of one statement with what else is known of it alone."""
    from shardc.planner.whole.plan import plan_whole  # with NumPy, which nothing else here needs

    every = plan_whole(program, model, planning)
    if len(program.statements) > 1:
        return every
    in_turn = planning.attempt(program, model, Options()).planned
    return iter(()) if in_turn is None else (with_others(each, in_turn) for each in every)


def _together(program: Program, model: CostModel, planning: Planning) -> Iterator[PlannedProgram]:
    """All statements planned together, then ever leaner plans; nothing where that gains nothing, or is too much."""
    if not may_gain(program, planning):
        return iter(())
    from shardc.planner.whole.plan import plan_whole  # with NumPy, which nothing else here needs

    return plan_whole(program, model, planning)


def _cheapest_first(
    program: Program,
    model: CostModel,
    planning: Planning,
    in_turn: list[PlannedProgram],
    together: PlannedProgram | None,
) -> tuple[PlannedProgram, ...]:
    """What is planned in turn, with the products of chains joined too, and what is planned together."""
    if not may_gain(program, planning):
        return tuple(in_turn)
    from shardc.planner.whole.plan import in_turn_joined  # as above
    from shardc.planner.whole.spaces import IN_TURN, spaces_of

    whole = [] if together is None else [with_others(together, in_turn[-1]) if in_turn else together]
    joined = in_turn_joined(program, model, planning, with_short=not whole)
    found = in_turn if joined is None else [*in_turn, joined]
    if together is None and spaces_of(program, planning.axes(program)) is None:
        found = [replace(each, notes=(*each.notes, IN_TURN)) for each in found]
    return tuple(sorted([*found, *whole], key=lambda each: each.price(planning.objective)))


def _quickly_in_turn(program: Program, model: CostModel, planning: Planning) -> list[PlannedProgram]:
    """The statements in turn, the last without more idle axes than by bytes; none where that takes too long."""
    found, left = planning.attempt(program, model, Options(must_plan=False), Budget.of(1))
    if found is None:
        return []
    over_idle, _ = _over_idle_axes(program, model, found, planning, left)
    return [found] if over_idle is None else [over_idle, found]


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
    return (over_idle if over_idle is not None and is_worth_it(over_idle.cost, cost, moves) else None), left
