"""A statement added to what is planned so far: the cheapest of its strategies, or the first within a memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from shardc.cost.rate import picoseconds
from shardc.ir.expressions import uses
from shardc.ir.plan import StatementNumber, Strategy, ValueNumber
from shardc.ir.program import Input, Statement, read_by
from shardc.ir.sharding import Array, ShardingNumber
from shardc.planner.budget import DEEP, LISTED, PLAN, STRATEGY, Meter, Spent
from shardc.planner.options import Method, Objective
from shardc.planner.paths.tables import Table
from shardc.planner.planned import Gap, PlannedStatement, ranking, shares, shown_cases
from shardc.planner.problem import Problem
from shardc.planner.program.partial import PartialPlan, binding, taken_names
from shardc.planner.statement.alternatives import strategies
from shardc.planner.statement.build import Builder, Candidate, costs_of
from shardc.planner.statement.gaps import bound_of
from shardc.planner.statement.strategies import candidates, cheapest_input, searched

SHARED = 12  # strategies that are built where a statement uses an array twice; planned whole, all are compared
SHARED_OF_MANY, MANY = 2, 24  # and in a program of so many statements: a layer and its gradients plan twice as fast
TOLD, TOLD_OF_MANY = 64, 3  # that are built to tell the cheapest of them first; in a program of so many
LEANER = 64  # built under a memory limit, of each of several statements: all are no leaner, in four times as long
LEANER_OF_MANY = 8


@dataclass(frozen=True, slots=True)
class _Trial:
    """A candidate of a statement, with its steps and the value that they leave."""

    candidate: Candidate
    builder: Builder
    value: ValueNumber


def add(plan: PartialPlan, number: StatementNumber, statement: Statement) -> tuple[PartialPlan, PlannedStatement]:
    """With the cheapest steps of the next statement."""
    choice = Choice.of(plan, number, statement)
    return choice.taken(choice.cheapest())


def built(plan: PartialPlan, number: StatementNumber, statement: Statement) -> tuple[Builder, ValueNumber]:
    """The cheapest steps of a statement, and the value that it leaves; nothing is added yet."""
    problem = plan.problem
    try:
        own = searched(problem, statement)
    except Spent:
        problem = problem.by_routes()
        own = searched(problem, statement)
    trial = next(_Built(plan, number, statement, problem, own).each())
    return trial.builder, trial.value


@dataclass(frozen=True, slots=True)
class _Built:
    """A statement's strategies after what is planned so far. `own` is the search's table, and where in it the plan is;
    `proved` a price that none is below, where the search ended with the budget."""

    plan: PartialPlan
    number: StatementNumber
    statement: Statement
    problem: Problem
    own: tuple[Table, ShardingNumber]
    proved: int = 0

    def in_order(self) -> Iterator[_Trial]:
        """The cheapest first."""
        found, count = self.each(), len(self.problem.program.statements)
        if self.problem.options.leaner and count > 1:
            found = islice(found, LEANER if count < MANY else LEANER_OF_MANY)
        return self._by_what_they_take(found) if self.is_compared else found

    def each(self) -> Iterator[_Trial]:
        """Each with its steps, the plan's own first; as many as the budget allows."""
        problem, own = self.problem, self.own
        found = candidates(problem, self.statement, own, over_others=problem.options.leaner)
        while True:
            try:
                candidate = next(found, None)
                if candidate is None:
                    return
                builder = self.plan.begin(self.number, problem, self.statement.name, candidate.in_digits)
                value = builder.build_result(candidate.root, candidate.goal)
                problem.meter.pay(STRATEGY if candidate.root is not own[0] else 0)
            except Spent:
                return
            yield _Trial(candidate, builder, value)

    def _by_what_they_take(self, found: Iterator[_Trial]) -> Iterator[_Trial]:
        """The search charges a move of an array for each use; done, it is done once. What takes nothing comes first."""
        most = SHARED if len(self.problem.program.statements) < MANY else SHARED_OF_MANY
        few = found if self.problem.options.leaner else islice(found, most)
        first = list(islice(few, 1))
        if first and not any(self.problem.objective.measures(self.price(first[0]))):
            yield first.pop()
        yield from sorted([*first, *few], key=self.price)

    @property
    def is_compared(self) -> bool:
        """Whether strategies are compared as built. The search charges a move of an array for each use, and done, it
        is done once; and what steps copy because of one another (`statement.copies`) it does not know."""
        problem = self.plan.problem
        copies = problem.model.alone.measured is not None and problem.objective is Objective.TIME
        return shares(self.statement) or (copies and problem.options.searches)

    @property
    def told(self) -> int:
        """How many are built before the first is told; none where they are found in their order."""
        few = len(self.problem.program.statements) < MANY
        return (TOLD if few else TOLD_OF_MANY) if self.is_compared else 0

    def price(self, trial: _Trial) -> int:
        """Of the steps that the statement adds."""
        price, first = self.problem.objective.price, len(self.plan.steps)
        return sum(price(picoseconds(c.time_s), c.wire_bytes) for c in costs_of(trial.builder.steps, first))

    def gap(self, trial: _Trial) -> Gap:
        """How far the plan may be from the cheapest, where the search ended with the budget."""
        problem, statement, price = self.plan.problem, self.statement, self.price(trial)
        bound = max(self.proved, self.own[0].proved(self.own[1]), bound_of(problem, statement, self.own[0]))
        return Gap(statement.name, problem.objective.first(price), problem.objective.first(min(price, bound)))


@dataclass(slots=True)
class Choice:
    """The strategies of a statement, as far as somebody asked for them, and the bytes that each needs.

    A limit changes nothing but which of them is taken: what was built for one serves all others.
    """

    _all: _Built
    _rest: Iterator[_Trial]
    _left: int  # of the work that the statement may take
    _is_spent: bool  # whether that ended a search
    _known: list[_Trial] = field(default_factory=list)
    _peaks: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, plan: PartialPlan, number: StatementNumber, statement: Statement) -> Choice:
        """By routes, where the budget ends and there must be a plan."""
        meter, options = plan.problem.meter, plan.problem.options
        meter.begin(DEEP if options.method is Method.ROUTES_IN_DIGITS else PLAN)
        ready = _with_inputs(plan.declared(set(read_by(statement))), statement)
        try:
            every = _Built(ready, number, statement, ready.problem, searched(ready.problem, statement))
        except Spent as spent:
            if not options.must_plan:
                raise
            problem = ready.problem.by_routes()
            every = _Built(ready, number, statement, problem, searched(problem, statement), spent.bound)
        return cls(every, every.in_order(), every.problem.meter.left, meter.is_spent)

    def cheapest(self) -> int:
        """Where the cheapest is among what is known."""
        self._known.append(next(self._rest))
        self._is_spent = self._is_spent or self._all.plan.problem.meter.is_spent
        return 0

    def within(self, limit: float) -> int:
        """Where the first that keeps a limit is, or that which needs least."""
        meter = self._all.problem.meter
        meter.begin(self._left)
        place = 0
        while self._is_built(place):
            if self._peaks[place] <= limit:
                break
            place += 1
        self._left, self._is_spent = meter.left, self._is_spent or meter.is_spent
        return place if place < len(self._peaks) else self._peaks.index(min(self._peaks))

    def taken(self, place: int) -> tuple[PartialPlan, PlannedStatement]:
        """The plan with one of them."""
        trial, every = self._known[place], self._all
        statement, problem = every.statement, every.problem
        is_last = every.number == len(problem.program.statements) - 1
        after = replace(
            every.plan.with_steps(trial.builder, lambda there: binding(there, statement, trial.value)),
            results=(*every.plan.results, trial.value),
            peaks=(*every.plan.peaks, *(() if is_last or not self._peaks else (self._peaks[place],))),
        )
        planned = PlannedStatement(
            statement.text,
            shown_cases(trial.candidate.cases, statement, problem.program),
            partial(_alternatives, every.number, statement, problem, every.own),
            ranking(problem.objective),
            every.told,
            every.gap(trial) if self._is_spent else None,
        )
        return after, planned

    def _is_built(self, place: int) -> bool:
        """Whether there are so many."""
        if place == len(self._known):
            trial = next(self._rest, None)
            if trial is None:
                return False
            self._known.append(trial)
            self._peaks.append(self._all.plan.peak_with(trial.builder, trial.value, self._all.number))
        return True


def _with_inputs(plan: PartialPlan, statement: Statement) -> PartialPlan:
    """An input left open and used more than once lies one way: that which makes the statement cheapest."""
    used = [use.name for use in uses(statement.expr)]
    for given in plan.problem.program.inputs:
        if given.name not in plan.given and used.count(given.name) > 1:
            plan = plan.holding(_chosen(plan, given, statement))
    return plan


def _chosen(plan: PartialPlan, given: Input, statement: Statement) -> Array:
    """How an input is to lie: by routes where the budget ends."""
    try:
        return cheapest_input(plan.problem, given, statement)
    except Spent:
        if not plan.problem.options.must_plan:
            raise
        return cheapest_input(plan.problem.by_routes(), given, statement)


def _alternatives(
    number: StatementNumber, statement: Statement, problem: Problem, own: tuple[Table, ShardingNumber]
) -> Iterator[Strategy]:
    """Every strategy, of a planner that knows what there was before the statement, within a budget of its own."""
    before, values = problem.afresh(Meter(LISTED, LISTED)), problem.environment.values
    found = candidates(before, statement, own)
    return strategies(before, statement, number, values, taken_names(before.program, values), found)
