"""A program's statements planned one after another, each the cheapest given what the ones before left."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from shardc.cost.memory import peak_bytes, peak_of
from shardc.cost.rate import picoseconds
from shardc.ir.digits import Reshape
from shardc.ir.expressions import uses
from shardc.ir.plan import Block, Op, Rule, Schedule, StatementNumber, Step, StepCost, Strategy, ValueNumber
from shardc.ir.program import Input, Program, Statement, read_by, same_array
from shardc.ir.sharding import SUM, Array, ShardingNumber
from shardc.planner.budget import DEEP, LISTED, PLAN, STRATEGY, Meter, Spent
from shardc.planner.digits.chosen import Chosen
from shardc.planner.options import Method, Objective
from shardc.planner.paths.tables import Table
from shardc.planner.planned import Gap, PlannedStatement, ranking, shares, shown_cases
from shardc.planner.problem import Environment, Problem, Seen, StepKey, is_done_again, key_of
from shardc.planner.statement.alternatives import strategies
from shardc.planner.statement.build import Builder, Candidate
from shardc.planner.statement.gaps import bound_of
from shardc.planner.statement.strategies import candidates, cheapest_input, searched

SHARED = 12  # strategies that are built where a statement uses an array twice; planned whole, all are compared
SHARED_OF_MANY, MANY = 2, 24  # and in a program of so many statements: a layer and its gradients plan twice as fast
LEANER = 64  # built under a memory limit, of each of several statements: all are no leaner, in four times as long
LEANER_OF_MANY = 8


@dataclass(frozen=True, slots=True)
class _Trial:
    """A candidate of a statement, with its steps and the value that they leave."""

    candidate: Candidate
    builder: Builder
    value: ValueNumber


@dataclass(frozen=True, slots=True)
class PartialPlan:
    """The plan so far: what is added gives another, and leaves this one as it is.

    Of a memory limit the last statement keeps all, those before it what is asked of them. A statement that cannot takes
    the strategy that needs least.
    """

    problem: Problem  # what the next statement is planned with: its environment has the values so far
    steps: tuple[Step, ...] = ()
    given: Mapping[str, ValueNumber] = field(default_factory=dict)  # the value of each input
    results: tuple[ValueNumber, ...] = ()  # the value of each result
    done: Mapping[StepKey, ValueNumber] = field(default_factory=dict)  # as of Builder
    sources: Mapping[ValueNumber, ValueNumber] = field(default_factory=dict)  # of what moves left, what was moved first
    peaks: tuple[int, ...] = ()  # up to each statement but the last, if memory is limited

    @property
    def values(self) -> tuple[Array, ...]:
        return self.problem.environment.values

    # --- a statement

    def add(self, number: StatementNumber, statement: Statement) -> tuple[PartialPlan, PlannedStatement]:
        """With the cheapest steps of the next statement."""
        self.problem.meter.begin(DEEP if self.problem.options.method is Method.ROUTES_IN_DIGITS else PLAN)
        ready, proved = self.declared(set(read_by(statement)))._with_inputs(statement), 0
        problem = ready.problem
        try:
            own = searched(problem, statement)
            trial, peak = ready._cheapest_that_fits(number, statement, problem, own)
        except Spent as spent:
            if not problem.options.must_plan:
                raise
            problem, proved = problem.by_routes(), spent.bound
            own = searched(problem, statement)
            trial, peak = ready._cheapest_that_fits(number, statement, problem, own)
        gap = ready._gap(statement, trial.builder, own, proved)
        after = replace(
            ready._with(trial.builder, lambda there: _binding(there, statement, trial.value)),
            results=(*ready.results, trial.value),
            peaks=(*ready.peaks, *peak),
        )
        planned = PlannedStatement(
            statement.text,
            shown_cases(trial.candidate.cases, statement, problem.program),
            partial(_alternatives, number, statement, problem, own),
            ranking(problem.objective),
            ready._is_compared(statement),
            gap,
        )
        return after, planned

    def _is_compared(self, statement: Statement) -> bool:
        """Whether strategies are compared as built. The search charges a move of an array for each use, and done, it
        is done once; and what steps copy because of one another (`statement.copies`) it does not know."""
        problem = self.problem
        copies = problem.model.alone.measured is not None and problem.objective is Objective.TIME
        return shares(statement) or (copies and problem.options.searches)

    def _gap(
        self, statement: Statement, builder: Builder, own: tuple[Table, ShardingNumber], proved: int
    ) -> Gap | None:
        """How far the plan may be from the cheapest, if its search ended with the budget."""
        problem = self.problem
        if not problem.meter.is_spent:
            return None
        steps = builder.steps[len(self.steps) :]
        price = sum(problem.objective.price(picoseconds(s.cost.time_s), s.cost.wire_bytes) for s in steps)
        bound = max(proved, own[0].proved(own[1]), bound_of(problem, statement, own[0]))
        return Gap(statement.name, problem.objective.first(price), problem.objective.first(min(price, bound)))

    def _cheapest_that_fits(
        self, number: StatementNumber, statement: Statement, problem: Problem, own: tuple[Table, ShardingNumber]
    ) -> tuple[_Trial, list[int]]:
        """The first strategy within the limit, or that which needs least; and before the last statement its peak, if
        memory is limited."""
        built, options = self._trials(number, statement, problem, own), self.problem.options
        if options.memory is not None and (count := len(self.problem.program.statements)) > 1:
            built = islice(built, LEANER if count < MANY else LEANER_OF_MANY)
        if self._is_compared(statement):
            built = self._by_what_they_take(built)
        if options.memory is None:
            return next(iter(built)), []
        is_last = number == len(self.problem.program.statements) - 1
        before = math.inf if options.memory_before is None else options.memory_before
        limit = options.memory if is_last else before
        least, leanest = math.inf, None
        for trial in built:
            peak = self._whole_peak(trial) if is_last else self._peak(trial, number)
            if peak < least:
                least, leanest = peak, trial
            if peak <= limit:
                break
        assert leanest is not None
        return leanest, [] if is_last else [int(least)]

    def _by_what_they_take(self, built: Iterator[_Trial]) -> Iterator[_Trial]:
        """The search charges a move of an array for each use; done, it is done once. What takes nothing comes first."""
        most = SHARED if len(self.problem.program.statements) < MANY else SHARED_OF_MANY
        few = built if self.problem.options.memory is not None else islice(built, most)
        first = list(islice(few, 1))
        if first and not any(self.problem.objective.measures(self._own_price(first[0].builder))):
            yield first.pop()
        yield from sorted([*first, *few], key=lambda trial: self._own_price(trial.builder))

    def _trials(
        self, number: StatementNumber, statement: Statement, problem: Problem, own: tuple[Table, ShardingNumber]
    ) -> Iterator[_Trial]:
        """Each strategy with its steps, the plan's own first; as many as the budget allows."""
        found = candidates(problem, statement, own, over_others=problem.options.memory is not None)
        while True:
            try:
                candidate = next(found, None)
                if candidate is None:
                    return
                builder = self._builder(number, problem, statement.name, candidate.in_digits)
                value = builder.build_result(candidate.root, candidate.goal)
                problem.meter.pay(STRATEGY if candidate.root is not own[0] else 0)
            except Spent:
                return
            yield _Trial(candidate, builder, value)

    def _own_price(self, builder: Builder) -> int:
        """Of the steps that a statement adds."""
        price, own = self.problem.objective.price, builder.steps[len(self.steps) :]
        return sum(price(picoseconds(step.cost.time_s), step.cost.wire_bytes) for step in own)

    def _whole_peak(self, trial: _Trial) -> int:
        """The peak of the program that ends so."""
        builder = trial.builder
        given = {**self.given, **builder.chosen}
        return peak_of(self._schedule(builder.values, builder.steps, given, (*self.results, trial.value)))

    def schedule(self) -> Schedule:
        """The whole plan."""
        return self._schedule(self.values, self.steps, self.given, self.results)

    def _schedule(
        self,
        values: Sequence[Array],
        steps: Sequence[Step],
        given: Mapping[str, ValueNumber],
        results: Sequence[ValueNumber],
    ) -> Schedule:
        program = self.problem.program
        inputs = tuple(given[array.name] for array in program.inputs)
        outputs = tuple(results[number] for number in program.outputs)
        return Schedule(program, Block(tuple(values), inputs, outputs, _needed(steps, outputs)))

    def _peak(self, trial: _Trial, number: StatementNumber) -> int:
        """Bytes alive at most up to this statement; what later ones use stays alive, and inputs always do."""
        program, results, builder = self.problem.program, [*self.results, trial.value], trial.builder
        later = {name for statement in program.statements[number + 1 :] for name in read_by(statement)}
        kept = [r for k, r in enumerate(results) if k in program.outputs or program.results[k].name in later]
        inputs = [*self.given.values(), *builder.chosen.values()]
        waiting = sum(
            Array(array.name, array.dims, program.shape(array.dims), exact, array.dtype).local_bytes(program.mesh)
            for array in program.inputs
            if array.name not in self.given and (exact := array.pattern.exact) is not None
        )
        block = Block(tuple(builder.values), tuple(inputs), tuple(kept), tuple(builder.steps))
        return waiting + peak_bytes(block, program.mesh)

    def _builder(self, number: StatementNumber, problem: Problem, name: str, in_digits: Chosen) -> Builder:
        names = _taken(problem.program, self.values)
        found = Builder(problem, list(self.values), list(self.steps), number, name, names)
        found.in_digits, found.done = in_digits, dict(self.done)
        found.left.update(result for place, result in enumerate(self.results) if place in problem.program.outputs)
        return found

    # --- inputs

    def declared(self, wanted: set[str]) -> PartialPlan:
        """Inputs with a written sharding are values from their first use on."""
        program = self.problem.program
        arrays = [
            Array(each.name, each.dims, program.shape(each.dims), exact, each.dtype)
            for each in program.inputs
            if each.name in wanted and each.name not in self.given and (exact := each.pattern.exact) is not None
        ]
        return self.holding(*arrays) if arrays else self

    def _with_inputs(self, statement: Statement) -> PartialPlan:
        """An input left open and used more than once lies one way: that which makes the statement cheapest."""
        used, found = [use.name for use in uses(statement.expr)], self
        for given in self.problem.program.inputs:
            if given.name not in self.given and used.count(given.name) > 1:
                found = found.holding(found._chosen(given, statement))
        return found

    def _chosen(self, given: Input, statement: Statement) -> Array:
        """How an input is to lie: by routes where the budget ends."""
        try:
            return cheapest_input(self.problem, given, statement)
        except Spent:
            if not self.problem.options.must_plan:
                raise
            return cheapest_input(self.problem.by_routes(), given, statement)

    def holding(self, *arrays: Array) -> PartialPlan:
        """With inputs that lie so."""
        environment, given = self.problem.environment, dict(self.given)
        for array in arrays:
            given[array.name] = ValueNumber(len(environment.values))
            environment = environment.with_value(array)
        return replace(self, problem=self.problem.given(environment), given=given)

    # --- steps

    def adopted(self, builder: Builder) -> PartialPlan:
        """With the steps of a builder, which began where this plan ends."""
        return self._with(builder, lambda there: there)

    def _with(self, builder: Builder, bound: Callable[[Environment], Environment]) -> PartialPlan:
        """The same, and then with what is bound to a name."""
        before = self.problem.environment
        environment, sources = Environment(tuple(builder.values), before.held, before.alike), dict(self.sources)
        for step in builder.steps[len(self.steps) :]:
            moved = step.operands[0] if step.is_collective or isinstance(step.op, Reshape) else None
            if moved is None or builder.values[moved].sharding.reduction != SUM:  # the largest of parts is no array
                continue
            after = step.result
            source = sources[after] = sources.get(moved, moved)
            if builder.values[after].dims == builder.values[source].dims:  # not in digits
                environment = environment.same(source, after)
        for name, value in builder.chosen.items():
            environment = environment.holding_first(name, value)
        return replace(
            self,
            problem=self.problem.given(bound(environment)),
            steps=tuple(builder.steps),
            done=builder.done,
            sources=sources,
            given={**self.given, **builder.chosen},
        )

    def append(
        self,
        op: Op,
        operands: tuple[ValueNumber, ...],
        arrays: Sequence[Array],
        number: StatementNumber,
        cost: StepCost,
        rule: Rule,
        seen: Seen = (),
    ) -> tuple[PartialPlan, tuple[ValueNumber, ...]]:
        """With a step that no search found, done once like any other; and the values that it leaves."""
        done = dict(self.done)
        if len(arrays) == 1 and not is_done_again(op, rule):
            key = key_of(op, operands, seen, arrays[0])
            if key in done:
                return self, (done[key],)
            done[key] = ValueNumber(len(self.values))
        left = tuple(ValueNumber(len(self.values) + place) for place in range(len(arrays)))
        problem = self.problem.given(replace(self.problem.environment, values=(*self.values, *arrays)))
        step = Step(op, operands, left, number, cost, rule, seen)
        return replace(self, problem=problem, steps=(*self.steps, step), done=done), left

    def bound_anew(self, name: str, value: ValueNumber) -> PartialPlan:
        """With the next result: its name holds this value alone."""
        problem = self.problem.given(self.problem.environment.holding(name, (value,)))
        return replace(self, problem=problem, results=(*self.results, value))

    def built(self, number: StatementNumber, statement: Statement) -> tuple[Builder, ValueNumber]:
        """The cheapest steps of a statement, and the value that it leaves; nothing is added yet."""
        problem = self.problem
        try:
            own = searched(problem, statement)
        except Spent:
            problem = problem.by_routes()
            own = searched(problem, statement)
        trial = next(self._trials(number, statement, problem, own))
        return trial.builder, trial.value


def _binding(environment: Environment, statement: Statement, value: ValueNumber) -> Environment:
    """What a name holds is one array, in some shardings; bound to another array, in a loop, it holds that alone."""
    held = environment.held.get(statement.name, ()) if same_array(statement) else ()
    return environment.holding(statement.name, held if value in held else (*held, value))


def _alternatives(
    number: StatementNumber, statement: Statement, problem: Problem, own: tuple[Table, ShardingNumber]
) -> Iterator[Strategy]:
    """Every strategy, of a planner that knows what there was before the statement, within a budget of its own."""
    before, values = problem.afresh(Meter(LISTED, LISTED)), problem.environment.values
    found = candidates(before, statement, own)
    return strategies(before, statement, number, values, _taken(before.program, values), found)


def _taken(program: Program, values: Sequence[Array]) -> set[str]:
    """The names that a new value must not bear."""
    named = {bound.name for bound in program.results} | {array.name for array in program.inputs}
    return named | {array.name for array in values}


def _needed(steps: Sequence[Step], outputs: tuple[ValueNumber, ...]) -> tuple[Step, ...]:
    """Those that an output depends on: a name may be bound again and never used."""
    needed = set(outputs)
    kept = []
    for step in reversed(steps):
        if needed.intersection(step.results):
            needed.update(step.operands)
            kept.append(step)
    return tuple(reversed(kept))
