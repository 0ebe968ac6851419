"""Statements, one after another, and loops: a loop's body is planned once, as a program of its own.

    x[B_X, D] = …                            before: x is brought to where it is carried
    for L { x = relu(x · W[L, D, F]) … }     what is fixed, carried and scanned are inputs of the body
    … = x                                    after: x lies where it is carried

What is carried has one sharding. Where the text leaves it open, that is one of those on the way: where it lies before,
and where a trip leaves it most cheaply; the one at which before + trips · body is least. What a trip does to fixed
arrays alone is done once, before the loop, but for collectives that the text names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from shardc.cost.copied import turned, with_first
from shardc.cost.model import CostModel
from shardc.cost.rate import picoseconds
from shardc.cost.sums import cost_of, loop_cost
from shardc.errors import ShardcError
from shardc.ir.expressions import Pattern, Use
from shardc.ir.plan import Einsum, Loop, Rule, StatementNumber, ValueNumber
from shardc.ir.program import For, Input, Program, Statement, bindings_of, check_divisible, pinned
from shardc.ir.sharding import Array, Sharding
from shardc.planner.budget import Meter
from shardc.planner.idle import axes_to_search
from shardc.planner.options import CHEAPEST, Objective, Options
from shardc.planner.planned import (
    PlannedLoop,
    PlannedProgram,
    PlannedStatement,
    budget_of,
    check_bytes,
    gaps_of,
    settled,
)
from shardc.planner.problem import Problem, Scratch
from shardc.planner.program.partial import PartialPlan
from shardc.planner.program.progress import Choice, add, built
from shardc.planner.program.scattered import with_sums_scattered
from shardc.planner.program.trips import Lies, Trip, left_by, trip_of
from shardc.planner.statement.build import Builder
from shardc.planner.statement.orders import order_notes

MAX_TRIED = 3  # shardings of what is carried, each where the one before led to


def add_next(
    progress: PartialPlan, number: StatementNumber, statement: Statement | For
) -> tuple[PartialPlan, PlannedStatement | PlannedLoop]:
    """A plan with the next statement of its program; with a loop and all of its own."""
    if isinstance(statement, Statement):
        return add(progress, number, statement)
    return _Looped(progress, number, statement).added()


def add_all(
    progress: PartialPlan, statements: Sequence[Statement | For]
) -> tuple[PartialPlan, tuple[PlannedStatement | PlannedLoop, ...]]:
    """A plan with all statements of its program, one after another."""
    planned = list[PlannedStatement | PlannedLoop]()
    for number, statement in enumerate(statements):
        progress, found = add_next(progress, StatementNumber(number), statement)
        planned.append(found)
    return progress, tuple(planned)


@dataclass(frozen=True, slots=True)
class _Looped:
    """A loop, and the plan that it is to be added to."""

    progress: PartialPlan
    number: StatementNumber
    loop: For

    @property
    def program(self) -> Program:
        return self.progress.problem.program

    @property
    def trips(self) -> int:
        return self.program.shape((self.loop.dim,))[0]

    def added(self) -> tuple[PartialPlan, PlannedLoop]:
        ready = replace(self, progress=self._declared())
        trip = min(ready._tried(), key=ready._price)
        progress, moved = ready.progress, list[ValueNumber]()
        for array in trip.carries:
            builder, value = self._bringing(progress, array)
            progress = progress.adopted(builder)
            moved.append(value)
        around, block = dict(trip.around), trip.block
        for step in trip.first:
            operands, made = tuple(around[operand] for operand in step.operands), [block.values[step.result]]
            own = tuple(progress.values[operand].dims for operand in operands)
            seen = step.seen or tuple(block.values[operand].dims for operand in step.operands)
            seen = () if seen == own else seen
            progress, left = progress.append(step.op, operands, made, self.number, step.cost, step.rule, seen)
            around[step.result] = left[0]
        fixed, rows = block.inputs[: trip.fixed], list[ValueNumber]()
        for value in block.inputs[trip.fixed + trip.carried :]:
            dims = progress.values[around[value]].dims
            place = self._whole(block.values[value].name).index(self.loop.dim)
            progress, row = self._turned(progress, around[value], with_first(dims, place))
            rows.append(row)
        progress = self._repeated(progress, trip, (*(around[value] for value in fixed), *moved, *rows))
        return progress, PlannedLoop(self.loop.text, trip.statements)

    def _repeated(self, progress: PartialPlan, trip: Trip, operands: tuple[ValueNumber, ...]) -> PartialPlan:
        """With the loop itself, and its results under their names."""
        loop = Loop(self.loop.dim, self.trips, self.loop.down, trip.block, trip.fixed, trip.carried)
        cost = loop_cost(loop)
        progress, values = progress.append(loop, operands, left_by(self.loop, loop), self.number, cost, Rule())
        for value, bound in zip(values, bindings_of(self.loop), strict=True):
            progress, turned = self._turned(progress, value, bound.dims)
            progress = progress.bound_anew(bound.name, turned)
        return progress

    # --- before the loop

    def _declared(self) -> PartialPlan:
        """With inputs that the loop is the first to use; what the text leaves open lies as a trip would have it."""
        progress = self._with_all_rows(self.progress.declared({array.name for array in self.loop.takes}))
        held, scanned = progress.problem.environment.held, {array.name: array.dims for array in self.loop.scanned}
        left_open = [array for array in self.loop.takes if array.name not in held]
        lies = {name: progress.values[held[name][0]].sharding for name in self.loop.carried if name in held}
        given = replace(self, progress=progress)._planned(lies, {}).given if left_open else {}
        for array in left_open:
            sharding, dims = given[array.name], scanned.get(array.name, array.dims)
            if array.name in scanned:
                place = dims.index(self.loop.dim)
                sharding = Sharding((*sharding.dims[:place], (), *sharding.dims[place:]), sharding.unreduced)
            progress = progress.holding(Array(array.name, dims, self.program.shape(dims), sharding, array.dtype))
        return progress

    def _with_all_rows(self, progress: PartialPlan) -> PartialPlan:
        """With what no device has all rows of brought to where each has: `U[L_X, D]` to `U[L, D]`, or `U[L, D_X]`."""
        scanned = {array.name for array in self.loop.scanned}
        for array in self.loop.takes:
            is_there = array.name in scanned and array.name in progress.problem.environment.held
            if is_there and not any(replace(self, progress=progress)._given(array, {})):
                whole = self._whole(array.name)
                pattern = array.pattern.along(whole.index(self.loop.dim))
                builder, value = self._bringing(progress, replace(array, dims=whole, pattern=pattern))
                progress = progress.adopted(builder)
                there = progress.problem.environment.holding_first(array.name, value)
                progress = replace(progress, problem=progress.problem.given(there))
        return progress

    def _bringing(self, progress: PartialPlan, array: Input) -> tuple[Builder, ValueNumber]:
        """The steps that bring an array to where the loop takes it, and its value there."""
        use = Use(array.name, array.dims, None, array.dtype)
        statement = Statement(array.name, array.dims, array.pattern, use, array.dtype, "", self.loop.span)
        return built(progress, self.number, statement)

    def _turned(
        self, progress: PartialPlan, value: ValueNumber, dims: tuple[str, ...]
    ) -> tuple[PartialPlan, ValueNumber]:
        """With the array with its dims in this order."""
        before = progress.values[value]
        if before.dims == dims:
            return progress, value
        after, cost = turned(before, dims, progress.problem.model)
        rule = Rule(f"rows along {self.loop.dim}")
        progress, (found,) = progress.append(Einsum(), (value,), [after], self.number, cost, rule)
        return progress, found

    # --- the body

    def _tried(self) -> Iterator[Trip]:
        """Bodies that leave what they carry as they found it."""
        asked = {bound.name: bound.pattern for bound in bindings_of(self.loop)}
        exact = {name: sharding for name in self.loop.carried if (sharding := asked[name].exact) is not None}
        held, values = self.progress.problem.environment.held, self.progress.values
        lies = {name: asked[name].laid_on(values[held[name][0]].sharding) for name in self.loop.carried}
        tried: list[Lies] = []
        while lies not in tried and len(tried) < MAX_TRIED:
            tried.append(lies)
            trip = self._planned(lies, exact)
            left = {name: array.sharding for name, array in zip(self.loop.carried, trip.leaves, strict=True)}
            if left != lies:
                yield self._planned(lies, lies)
            else:
                yield trip
            lies = left

    def _planned(self, before: Lies, after: Lies) -> Trip:
        """The body, what is carried lying so before and after a trip; without a word of it, as is cheapest."""
        patterns = {name: Pattern.exactly(sharding) for name, sharding in after.items()}
        inside = self.program.inside(self.loop)
        inside = replace(inside, statements=pinned(inside.statements, patterns))
        state, around = PartialPlan(self.progress.problem.within(inside)), dict[ValueNumber, ValueNumber]()
        for array in self.loop.takes:
            for given, outer in self._given(array, before):
                if outer is not None:
                    around[ValueNumber(len(state.values))] = outer
                state = state.holding(given)
        state, statements = add_all(state, inside.statements)
        problem = state.problem
        block, statements = with_sums_scattered(state.schedule().block, statements, problem.model, problem.objective)
        return trip_of(self.loop, block, state.given, around, statements)

    def _given(self, array: Input, before: Lies) -> Iterator[tuple[Array, ValueNumber | None]]:
        """What the body has of an array: all that is held of it around, by any name, each with its value there; what
        is carried, in one sharding."""
        shape = self.program.shape(array.dims)
        if array.name in self.loop.carried:
            if array.name in before:
                yield Array(array.name, array.dims, shape, before[array.name], array.dtype), None
            return
        there = self.progress.problem.environment
        held = there.held.get(array.name, ())
        every = dict.fromkeys(value for outer in held for value in there.alike.get(outer, (outer,)))
        for outer in reversed(every):
            whole = there.values[outer]
            axes = dict(zip(self._whole(array.name), whole.sharding.dims, strict=True))  # not by its own dims' names
            if axes.get(self.loop.dim):  # no device has all rows
                continue
            sharding = Sharding(tuple(axes[dim] for dim in array.dims), whole.sharding.unreduced)
            yield Array(array.name, array.dims, shape, sharding, array.dtype), outer

    def _whole(self, name: str) -> tuple[str, ...]:
        """The dims of what a trip takes, as the text around the loop names them."""
        every = {array.name: array.dims for array in self.loop.takes}
        return (every | {array.name: array.dims for array in self.loop.scanned})[name]

    def _price(self, trip: Trip) -> float:
        """Before the loop, and in all trips."""
        try:
            builders = [self._bringing(self.progress, array)[0] for array in trip.carries]
        except ShardcError:  # nothing leads there
            return math.inf
        brought = [step for builder in builders for step in builder.steps[len(self.progress.steps) :]]
        price = self.progress.problem.objective.price
        once = sum(price(picoseconds(step.cost.time_s), step.cost.wire_bytes) for step in brought)
        return once + self._price_of_trips(trip)

    def _price_of_trips(self, trip: Trip) -> int:
        """And of what is done for all of them at once."""
        price = self.progress.problem.objective.price
        costs = [(1, step) for step in trip.first] + [(self.trips, step) for step in trip.block.steps]
        return sum(times * price(picoseconds(step.cost.time_s), step.cost.wire_bytes) for times, step in costs)


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
    return AtOnce()(program, model, objective, options, budget_of(program).meter() if meter is None else meter)


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Makes such plans for one question, and knows what was tried under the limits before.

    A limit asks no more than which of a statement's strategies is taken: the first that keeps it. Of A, B:

        limits 9, 9    A 8 bytes      B 9 bytes
        limits 8, 8    A, as it is    B 9 bytes, and its next strategy: 7
        limits 7, 8    A's next: 7    B anew, after that
    """

    _begun: dict[tuple[Program, CostModel, Objective, Options], _SoFar] = field(default_factory=dict, repr=False)

    def __call__(
        self, program: Program, model: CostModel, objective: Objective, options: Options, meter: Meter
    ) -> PlannedProgram:
        check_divisible(program)
        pool, notes = axes_to_search(program, objective is Objective.BYTES if options.idle is None else options.idle)
        problem = Problem(program, model, objective, pool, options, scratch=Scratch(meter))
        if options.memory is None:
            state, statements = add_all(PartialPlan(problem), program.statements)
        else:
            end = self._within(problem)
            state, statements = end.plan, end.statements
        schedule = state.schedule()
        block, statements = with_sums_scattered(schedule.block, statements, model, objective)
        if model.alone.measured is not None:
            from shardc.planner.program.sliced import with_shares_computed  # which a plan for no slice needs not

            block = with_shares_computed(block, program.mesh)
        schedule = settled(replace(schedule, block=block), model)
        check_bytes(schedule)
        notes += tuple(str(gap) for statement in statements for gap in gaps_of(statement))
        notes += order_notes(program)
        found = PlannedProgram(schedule, statements, cost_of(schedule, model), notes, peaks=state.peaks)
        if not any(gap for each in statements for gap in gaps_of(each)) or options.has_limits:
            return found
        from shardc.planner.program.written import or_as_written  # most searches end before their budget

        return or_as_written(found, model, objective)

    def _within(self, problem: Problem) -> _SoFar:
        """The last statement keeps the limit of all, those before it what is asked of them; one that cannot takes the
        strategy that needs least. The work is counted by the problem's meter."""
        program, limits, meter = problem.program, problem.options, problem.meter
        free = replace(limits, memory=None, memory_before=None, leaner=True)
        key = program, problem.model, problem.objective, free
        if key not in self._begun:
            begun = replace(problem, options=free, scratch=Scratch(Meter(meter.total)))
            self._begun[key] = _SoFar(PartialPlan(begun))
        way = self._begun[key]
        own = way.plan.problem.meter
        own.total = meter.total
        try:
            for number, statement in enumerate(program.statements):
                limit = limits.memory if number == len(program.statements) - 1 else limits.memory_before
                way = way.on(StatementNumber(number), statement, math.inf if limit is None else limit)
        finally:
            meter.total = own.total
        return way


@dataclass(slots=True)
class _SoFar:
    """What is planned so far, and where the strategies of the next statement lead that were taken."""

    plan: PartialPlan
    statements: tuple[PlannedStatement | PlannedLoop, ...] = ()
    _choice: Choice | None = None
    _next: dict[int, _SoFar] = field(default_factory=dict)

    def on(self, number: StatementNumber, statement: Statement | For, limit: float) -> _SoFar:
        """With the next statement, within the limit if it can."""
        if isinstance(statement, For):
            if not self._next:
                self._next[0] = self._with(*add_next(self.plan, number, statement))
            return self._next[0]
        if self._choice is None:
            self._choice = Choice.of(self.plan, number, statement)
        place = self._choice.within(limit)
        if place not in self._next:
            self._next[place] = self._with(*self._choice.taken(place))
        return self._next[place]

    def _with(self, plan: PartialPlan, planned: PlannedStatement | PlannedLoop) -> _SoFar:
        return _SoFar(plan, (*self.statements, planned))
