"""A program's statements planned one after another, each the cheapest given what the ones before left."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from shardc.cost.memory import peak_bytes, peak_of
from shardc.cost.model import picoseconds
from shardc.errors import ShardcError
from shardc.ir.digits import Reshape
from shardc.ir.expressions import uses
from shardc.ir.plan import Block, Op, Schedule, Step, StepCost, Strategy
from shardc.ir.program import Program, Statement, read_by, same_array
from shardc.ir.sharding import Array
from shardc.planner.budget import DEEP, LISTED, PLAN, STRATEGY, Budget, Spent
from shardc.planner.digits.chosen import Chosen
from shardc.planner.idle import mentioned
from shardc.planner.options import Method, Objective
from shardc.planner.paths.tables import Table
from shardc.planner.planned import Gap, PlannedStatement, ranking, shares
from shardc.planner.problem import Problem
from shardc.planner.statement.alternatives import strategies
from shardc.planner.statement.build import Builder, Done
from shardc.planner.statement.gaps import bound_of
from shardc.planner.statement.nodes import cheapest, choices_of
from shardc.planner.statement.strategies import candidates, root_table, searched

SHARED = 12  # strategies that are built where a statement uses an array twice; planned whole, all are compared


@dataclass(slots=True)
class PartialPlan:
    """The plan so far. Of a memory limit the last statement keeps all, those before it what is asked of them.

    A statement that cannot takes the strategy that needs least.
    """

    problem: Problem
    values: list[Array] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    given: dict[str, int] = field(default_factory=dict)  # the value of each input
    results: list[int] = field(default_factory=list)  # the value of each result
    done: dict[Done, int] = field(default_factory=dict)  # as of Builder
    sources: dict[int, int] = field(default_factory=dict)  # of what moves left, what was moved first
    peaks: list[int] = field(default_factory=list)  # up to each statement but the last, if memory is limited

    def add(self, number: int, statement: Statement) -> PlannedStatement:
        self.problem.budget.begin(DEEP if self.problem.options.method is Method.ROUTES_IN_DIGITS else PLAN)
        self.declare(set(read_by(statement)))
        problem, size = self.problem, len(self.values)
        try:
            self._choose_inputs(statement)
            size = len(self.values)
            builder, value, own = self._cheapest_that_fits(number, statement, problem)
        except Spent:
            if not self.problem.options.must_plan:
                raise
            problem = self.problem.by_routes()
            builder, value, own = self._cheapest_that_fits(number, statement, problem)
        gap = self._gap(statement, builder, own)
        find = self._alternatives(number, statement, problem, size, own)
        self.adopt(builder)
        self.results.append(value)
        self._bind(statement, value)
        cases = shown_cases(builder.cases, statement, problem.program)
        compared = self._is_compared(statement)
        return PlannedStatement(statement.text, cases, find, ranking(problem.objective), compared, gap)

    def _bind(self, statement: Statement, value: int) -> None:
        """What a name holds is one array, in some shardings; bound to another array, in a loop, it holds that alone."""
        held = self.problem.held.setdefault(statement.name, [])
        if not same_array(statement):
            held.clear()
        if value not in held:
            held.append(value)

    def _is_compared(self, statement: Statement) -> bool:
        """Whether strategies are compared as built. The search charges a move of an array for each use, and done, it
        is done once; and what steps copy because of one another (`statement.copies`) it does not know."""
        problem = self.problem
        copies = problem.model.alone.measured is not None and problem.objective is Objective.TIME
        return shares(statement) or (copies and problem.options.searches)

    def _gap(self, statement: Statement, builder: Builder, own: tuple[Table, int]) -> Gap | None:
        """How far the plan may be from the cheapest, if its search ended with the budget."""
        problem = self.problem
        if not problem.budget.is_spent:
            return None
        steps = builder.steps[len(self.steps) :]
        price = sum(problem.objective.price(picoseconds(s.cost.time_s), s.cost.wire_bytes) for s in steps)
        bound = max(problem.budget.bound, own[0].proved(own[1]) or 0, bound_of(problem, statement, own[0]))
        return Gap(statement.name, problem.objective.first(price), problem.objective.first(min(price, bound)))

    def _cheapest_that_fits(
        self, number: int, statement: Statement, problem: Problem
    ) -> tuple[Builder, int, tuple[Table, int]]:
        """The steps of the first strategy within the limit, or of that which needs least; its result, and the table
        and sharding that it is of."""
        built = self._trials(number, statement, problem)
        options = self.problem.options
        if self._is_compared(statement):
            built = self._by_what_they_take(built)
        if options.memory is None:
            return next(iter(built))
        is_last = number == len(self.problem.program.statements) - 1
        before = math.inf if options.memory_before is None else options.memory_before
        limit = options.memory if is_last else before
        least, leanest = math.inf, None
        for trial in built:
            builder, value, _ = trial
            peak = self._whole_peak(builder, value) if is_last else self._peak(builder, value, number)
            if peak < least:
                least, leanest = peak, trial
            if peak <= limit:
                break
        assert leanest is not None
        if not is_last:
            self.peaks.append(int(least))
        return leanest

    def _by_what_they_take(
        self, built: Iterator[tuple[Builder, int, tuple[Table, int]]]
    ) -> Iterator[tuple[Builder, int, tuple[Table, int]]]:
        """The search charges a move of an array for each use; done, it is done once. What takes nothing comes first."""
        few = built if self.problem.options.memory is not None else islice(built, SHARED)
        first = list(islice(few, 1))
        if first and not any(self.problem.objective.measures(self._own_price(first[0][0]))):
            yield first.pop()
        yield from sorted([*first, *few], key=lambda trial: self._own_price(trial[0]))

    def _trials(
        self, number: int, statement: Statement, problem: Problem
    ) -> Iterator[tuple[Builder, int, tuple[Table, int]]]:
        """The steps of each strategy, the value of its result, and what it is of; as many as the budget allows."""
        own = searched(problem, statement)
        try:
            over_others = problem.options.memory is not None
            for candidate in candidates(problem, statement, own, over_others):
                builder = self._builder(number, problem, statement.name, candidate.in_digits)
                value = builder.build_result(candidate.root, candidate.goal)
                problem.budget.pay(STRATEGY if candidate.root is not own[0] else 0)
                yield builder, value, own
        except Spent:
            return

    def _own_price(self, builder: Builder) -> int:
        """Of the steps that a statement adds."""
        price, own = self.problem.objective.price, builder.steps[len(self.steps) :]
        return sum(price(picoseconds(step.cost.time_s), step.cost.wire_bytes) for step in own)

    def _whole_peak(self, builder: Builder, value: int) -> int:
        """The peak of the program that ends so."""
        given = self.given | builder.chosen
        results = [*self.results, value]
        return peak_of(self._schedule(builder.values, builder.steps, given, results))

    def schedule(self) -> Schedule:
        """The whole plan."""
        return self._schedule(self.values, self.steps, self.given, self.results)

    def _schedule(
        self, values: list[Array], steps: list[Step], given: Mapping[str, int], results: list[int]
    ) -> Schedule:
        program = self.problem.program
        inputs = tuple(given[array.name] for array in program.inputs)
        outputs = tuple(results[number] for number in program.outputs)
        return Schedule(program, Block(tuple(values), inputs, outputs, _needed(steps, outputs)))

    def _peak(self, builder: Builder, value: int, number: int) -> int:
        """Bytes alive at most up to this statement; what later ones use stays alive, and inputs always do."""
        program, results = self.problem.program, [*self.results, value]
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

    def _builder(self, number: int, problem: Problem, name: str, in_digits: Chosen) -> Builder:
        names = _taken(problem.program, self.values)
        return Builder(
            problem, list(self.values), list(self.steps), number, name, names, in_digits=in_digits, done=dict(self.done)
        )

    def declare(self, wanted: set[str]) -> None:
        """Inputs with a written sharding are values from their first use on."""
        program = self.problem.program
        for given in program.inputs:
            exact = given.pattern.exact
            if given.name not in wanted or given.name in self.given or exact is None:
                continue
            self.hold(Array(given.name, given.dims, program.shape(given.dims), exact, given.dtype))

    def _choose_inputs(self, statement: Statement) -> None:
        """An input left open and used more than once lies one way: that which makes the statement cheapest."""
        program = self.problem.program
        used = [use.name for use in uses(statement.expr)]
        for given in program.inputs:
            if given.name in self.given or used.count(given.name) < 2:
                continue
            search = self.problem.search(given.dims, given.dtype)
            options = [search.graph.shardings[number] for number in choices_of(self.problem, given.pattern, search)]
            arrays = [Array(given.name, given.dims, search.shape, option, given.dtype) for option in options]
            self.hold(min(arrays, key=lambda array: self._price_with(array, statement)))

    def _price_with(self, array: Array, statement: Statement) -> float:
        """The price of a statement if an input lies so; infinite if that does not do."""
        problem = self.problem
        held = problem.held | {array.name: [len(problem.shardings)]}
        shardings = [*problem.shardings, array.sharding]
        trial = replace(problem.afresh(), held=held, shardings=shardings)
        try:
            root = root_table(trial, statement)
            return root.paths().price[cheapest(root, statement)]
        except ShardcError:
            return math.inf

    def hold(self, array: Array) -> None:
        self.values.append(array)
        self.problem.shardings.append(array.sharding)
        self.given[array.name] = len(self.values) - 1
        self.problem.held.setdefault(array.name, []).insert(0, len(self.values) - 1)

    def adopt(self, builder: Builder) -> None:
        new = builder.steps[len(self.steps) :]
        self.values, self.steps, self.done = builder.values, builder.steps, builder.done
        self.problem.shardings[:] = [array.sharding for array in self.values]
        for step in new:
            if step.is_collective or isinstance(step.op, Reshape):
                self._note_alike(step.operands[0], step.result)
        for name, value in builder.chosen.items():
            self.given[name] = value
            self.problem.held.setdefault(name, []).insert(0, value)

    def _note_alike(self, before: int, after: int) -> None:
        """What a move leaves is the same array: a later use of one may begin at the other, unless it has digits."""
        source = self.sources[after] = self.sources.get(before, before)
        if self.values[after].dims == self.values[source].dims:
            alike = (*self.problem.alike.get(source, (source,)), after)
            self.problem.alike.update(dict.fromkeys(alike, alike))

    def append(
        self, op: Op, operands: tuple[int, ...], arrays: Sequence[Array], number: int, cost: StepCost, rule: str
    ) -> tuple[int, ...]:
        """A step that no search found; the values that it leaves."""
        left = tuple(range(len(self.values), len(self.values) + len(arrays)))
        self.values += arrays
        self.problem.shardings += [array.sharding for array in arrays]
        self.steps.append(Step(op, operands, left, number, cost, rule))
        return left

    def bind_anew(self, name: str, value: int) -> None:
        """The next result: its name holds this value alone."""
        self.results.append(value)
        self.problem.held[name] = [value]

    def built(self, number: int, statement: Statement) -> tuple[Builder, int]:
        """The cheapest steps of a statement, and the value that it leaves; nothing is added yet."""
        try:
            builder, value, _ = next(self._trials(number, statement, self.problem))
        except Spent:
            builder, value, _ = next(self._trials(number, statement, self.problem.by_routes()))
        return builder, value

    def _alternatives(
        self, number: int, statement: Statement, problem: Problem, size: int, own: tuple[Table, int]
    ) -> Callable[[], Iterator[Strategy]]:
        """Every strategy, of a planner that knows what there was before the statement, within a budget of its own."""
        held = {name: list(held) for name, held in problem.held.items()}
        shardings, alike = list(problem.shardings), dict(problem.alike)
        values = tuple(self.values[:size])

        def find() -> Iterator[Strategy]:
            own_budget = Budget(LISTED, LISTED)
            before = replace(problem.afresh(), held=held, shardings=shardings, alike=alike, budget=own_budget)
            taken = _taken(before.program, values)
            return strategies(before, statement, number, values, taken, candidates(before, statement, own))

        return find


def _taken(program: Program, values: Sequence[Array]) -> set[str]:
    """The names that a new value must not bear."""
    named = {bound.name for bound in program.results} | {array.name for array in program.inputs}
    return named | {array.name for array in values}


def _needed(steps: list[Step], outputs: tuple[int, ...]) -> tuple[Step, ...]:
    """Those that an output depends on: a name may be bound again and never used."""
    needed = set(outputs)
    kept = []
    for step in reversed(steps):
        if needed.intersection(step.results):
            needed.update(step.operands)
            kept.append(step)
    return tuple(reversed(kept))


def shown_cases(cases: dict[str, int], statement: Statement, program: Program) -> dict[str, int]:
    """The cases of the axes that the statement writes; of all axes if it writes none."""
    if not cases:
        return {}
    axes = mentioned(program, statement) or program.mesh.names
    return {axis: cases.get(axis, 1) for axis in axes}
