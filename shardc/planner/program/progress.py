"""A plan in the making: the steps so far, what holds which array, and the next statement's choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardc.cost.memory import peak_bytes, peak_of
from shardc.cost.model import picoseconds
from shardc.errors import ShardcError
from shardc.ir.digits import Reshape
from shardc.ir.plan import Block, Op, Schedule, Step, StepCost, Strategy
from shardc.ir.program import Statement, read_by, same_array, uses
from shardc.ir.sharding import Array
from shardc.planner.budget import DEEP, LISTED, PLAN, STRATEGY, Budget, Spent
from shardc.planner.paths.tables import Table
from shardc.planner.statement.alternatives import candidates, strategies
from shardc.planner.statement.build import Builder, Done
from shardc.planner.statement.gaps import Gap, bound_of
from shardc.planner.statement.nodes import Planner
from shardc.planner.statement.planned import PlannedStatement, ranking, shares, shown_cases
from shardc.planner.statement.root import cheapest, root_table, searched


@dataclass(slots=True)
class Progress:
    """The plan so far. With `memory` the last statement keeps that limit, and those before it `early`, where they can.

    A statement that cannot takes the strategy that needs least.
    """

    planner: Planner
    memory: int | None
    early: int | None = None
    values: list[Array] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    given: dict[str, int] = field(default_factory=dict)  # the value of each input
    results: list[int] = field(default_factory=list)  # the value of each result
    done: dict[Done, int] = field(default_factory=dict)  # as of Builder
    sources: dict[int, int] = field(default_factory=dict)  # of what moves left, what was moved first
    peaks: list[int] = field(default_factory=list)  # up to each statement but the last, if memory is limited
    hurried: bool = True  # whether a statement that is too much to search gets a plan all the same; else raises Spent

    def add(self, number: int, statement: Statement) -> PlannedStatement:
        self.planner.budget.begin(DEEP if self.planner.deep else PLAN)
        self.declare(set(read_by(statement)))
        planner, size = self.planner, len(self.values)
        try:
            self._choose_inputs(statement)
            size = len(self.values)
            builder, value, own = self._cheapest_that_fits(number, statement, planner)
        except Spent:
            if not self.hurried:
                raise
            planner = self.planner.hurried()
            builder, value, own = self._cheapest_that_fits(number, statement, planner)
        gap = self._gap(statement, builder, own)
        find = self._alternatives(number, statement, planner, size, own)
        self.adopt(builder)
        self.results.append(value)
        self._bind(statement, value)
        cases = shown_cases(builder.cases, statement, planner)
        return PlannedStatement(statement.text, cases, find, ranking(planner.objective), shares(statement), gap)

    def _bind(self, statement: Statement, value: int) -> None:
        """What a name holds is one array, in some shardings; bound to another array, in a loop, it holds that alone."""
        held = self.planner.held.setdefault(statement.name, [])
        if not same_array(statement):
            held.clear()
        if value not in held:
            held.append(value)

    def _gap(self, statement: Statement, builder: Builder, own: tuple[Table, int]) -> Gap | None:
        """How far the plan may be from the cheapest, if its search ended with the budget."""
        planner = self.planner
        if not planner.budget.is_spent:
            return None
        steps = builder.steps[len(self.steps) :]
        price = sum(planner.objective.price(picoseconds(s.cost.time_s), s.cost.wire_bytes) for s in steps)
        bound = max(planner.budget.bound, own[0].proved(own[1]) or 0, bound_of(planner, statement))
        return Gap(statement.name, planner.objective.first(price), planner.objective.first(min(price, bound)))

    def _cheapest_that_fits(
        self, number: int, statement: Statement, planner: Planner
    ) -> tuple[Builder, int, tuple[Table, int]]:
        """The steps of the first strategy within the limit, or of that which needs least; its result, and the table
        and sharding that it is of."""
        built: Iterable[tuple[Builder, int, tuple[Table, int]]] = self._trials(number, statement, planner)
        if shares(statement):
            # The search charges a move of an array for each use; done, it is done once.
            built = sorted(built, key=lambda trial: self._built_price(trial[0]))
        if self.memory is None:
            return next(iter(built))
        is_last = number == len(self.planner.program.statements) - 1
        limit = self.memory if is_last else math.inf if self.early is None else self.early
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

    def _trials(
        self, number: int, statement: Statement, planner: Planner
    ) -> Iterator[tuple[Builder, int, tuple[Table, int]]]:
        """The steps of each strategy, the value of its result, and what it is of; as many as the budget allows."""
        own = searched(planner, statement)
        try:
            for root, goal, digits in candidates(planner, statement, own, over_others=self.memory is not None):
                builder = self._builder(number, planner, statement.name)
                builder.digits = digits and not planner.quick
                value = builder.build(root, goal, statement.name)
                planner.budget.pay(STRATEGY if root is not own[0] else 0)
                yield builder, value, own
        except Spent:
            return

    def _built_price(self, builder: Builder) -> int:
        price = self.planner.objective.price
        return sum(price(picoseconds(step.cost.time_s), step.cost.wire_bytes) for step in builder.steps)

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
        program = self.planner.program
        inputs = tuple(given[array.name] for array in program.inputs)
        outputs = tuple(results[number] for number in program.outputs)
        return Schedule(program, Block(tuple(values), inputs, outputs, _needed(steps, outputs)))

    def _peak(self, builder: Builder, value: int, number: int) -> int:
        """Bytes alive at most up to this statement; what later ones use stays alive, and inputs always do."""
        program, results = self.planner.program, [*self.results, value]
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

    def _builder(self, number: int, planner: Planner, name: str) -> Builder:
        names = {bound.name for bound in self.planner.program.results}
        names |= {array.name for array in self.planner.program.inputs} | {array.name for array in self.values}
        return Builder(planner, list(self.values), list(self.steps), number, name, names, done=dict(self.done))

    def declare(self, wanted: set[str]) -> None:
        """Inputs with a written sharding are values from their first use on."""
        program = self.planner.program
        for given in program.inputs:
            exact = given.pattern.exact
            if given.name not in wanted or given.name in self.given or exact is None:
                continue
            self.hold(Array(given.name, given.dims, program.shape(given.dims), exact, given.dtype))

    def _choose_inputs(self, statement: Statement) -> None:
        """An input left open and used more than once lies one way: that which makes the statement cheapest."""
        program = self.planner.program
        used = [use.name for use in uses(statement.expr)]
        for given in program.inputs:
            if given.name in self.given or used.count(given.name) < 2:
                continue
            search = self.planner.search(given.dims, given.dtype)
            options = [search.graph.shardings[number] for number in self.planner.choices(given.pattern, search)]
            arrays = [Array(given.name, given.dims, search.shape, option, given.dtype) for option in options]
            self.hold(min(arrays, key=lambda array: self._price_with(array, statement)))

    def _price_with(self, array: Array, statement: Statement) -> float:
        """The price of a statement if an input lies so; infinite if that does not do."""
        planner = self.planner
        held = planner.held | {array.name: [len(planner.shardings)]}
        shardings = [*planner.shardings, array.sharding]
        trial = replace(
            planner, held=held, shardings=shardings, limit=None, most_wire=None, _searches={}, _products_of={}
        )
        try:
            root = root_table(trial, statement)
            return root.paths().price[cheapest(root, statement)]
        except ShardcError:
            return math.inf

    def hold(self, array: Array) -> None:
        self.values.append(array)
        self.planner.shardings.append(array.sharding)
        self.given[array.name] = len(self.values) - 1
        self.planner.held.setdefault(array.name, []).insert(0, len(self.values) - 1)

    def adopt(self, builder: Builder) -> None:
        new = builder.steps[len(self.steps) :]
        self.values, self.steps, self.done = builder.values, builder.steps, builder.done
        self.planner.shardings[:] = [array.sharding for array in self.values]
        for step in new:
            if step.is_collective or isinstance(step.op, Reshape):
                self._note_alike(step.operands[0], step.result)
        for name, value in builder.chosen.items():
            self.given[name] = value
            self.planner.held.setdefault(name, []).insert(0, value)

    def append(
        self, op: Op, operands: tuple[int, ...], arrays: Sequence[Array], number: int, cost: StepCost, rule: str
    ) -> tuple[int, ...]:
        """A step that no search found; the values that it leaves."""
        left = tuple(range(len(self.values), len(self.values) + len(arrays)))
        self.values += arrays
        self.planner.shardings += [array.sharding for array in arrays]
        self.steps.append(Step(op, operands, left, number, cost, rule))
        return left

    def bind_anew(self, name: str, value: int) -> None:
        """The next result: its name holds this value alone."""
        self.results.append(value)
        self.planner.held[name] = [value]

    def built(self, number: int, statement: Statement) -> tuple[Builder, int]:
        """The cheapest steps of a statement, and the value that it leaves; nothing is added yet."""
        try:
            builder, value, _ = next(self._trials(number, statement, self.planner))
        except Spent:
            builder, value, _ = next(self._trials(number, statement, self.planner.hurried()))
        return builder, value

    def _note_alike(self, before: int, after: int) -> None:
        """What a move leaves is the same array: a later use of one may begin at the other, unless it has digits."""
        source = self.sources[after] = self.sources.get(before, before)
        if self.values[after].dims == self.values[source].dims:
            alike = (*self.planner.alike.get(source, (source,)), after)
            self.planner.alike.update(dict.fromkeys(alike, alike))

    def _alternatives(
        self, number: int, statement: Statement, planner: Planner, size: int, own: tuple[Table, int]
    ) -> Callable[[], Iterator[Strategy]]:
        """Every strategy, of a planner that knows what there was before the statement, within a budget of its own."""
        before = replace(
            planner,
            held={name: list(held) for name, held in planner.held.items()},
            shardings=list(planner.shardings),
            alike=dict(planner.alike),
            limit=None,
            most_wire=None,
            budget=Budget(LISTED, LISTED),
            _searches={},
            _products_of={},
        )
        values = tuple(self.values[:size])
        taken = self._builder(number, planner, statement.name).taken
        return lambda: strategies(before, statement, number, values, taken, own)


def _needed(steps: list[Step], outputs: tuple[int, ...]) -> tuple[Step, ...]:
    """Those that an output depends on: a name may be bound again and never used."""
    needed = set(outputs)
    kept = []
    for step in reversed(steps):
        if needed.intersection(step.results):
            needed.update(step.operands)
            kept.append(step)
    return tuple(reversed(kept))
