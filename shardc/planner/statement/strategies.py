"""The strategies of an expression one after another, the cheapest first, with as little search as the next one needs.

One queue, by what each entry costs at least: local products that have been bounded, those that have been priced, and
strategies of the operands. The first is taken out; bounded, it is priced and goes back; priced, it is the next.

    (A[I_X, J] · B[J, K]) · C[K, L]     the first strategy of A·B; with it every product with C, bounded; the first of
                                        these, priced; it is the next, unless the second of A·B may lead to a cheaper
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count, islice
from typing import TypeAlias

from shardc.errors import ShardcError
from shardc.ir.expressions import Call, Expr, Named, Product, operands
from shardc.ir.program import Input, Statement, axes_in, patterns_of
from shardc.ir.sharding import Array, Axes, Sharding, ShardingNumber
from shardc.planner.budget import APPLIED, BOUND, Spent
from shardc.planner.digits.products import chosen_below
from shardc.planner.paths.few import fitted
from shardc.planner.paths.tables import Applied, Multiplied, Origin, Table, unmoved
from shardc.planner.problem import Problem
from shardc.planner.products.ways import Way
from shardc.planner.statement.build import Candidate
from shardc.planner.statement.gaps import alone, arithmetic
from shardc.planner.statement.nodes import (
    choices_of,
    few_calls,
    local_products,
    table_as_written,
    table_of,
    table_or_none,
    ways_of,
)
from shardc.planner.statement.orders import MAX_ORDERS, all_orders, taken
from shardc.planner.statement.refusals import unreachable

MAX_STRATEGIES = 2048
_Places: TypeAlias = tuple[int, ...]  # which strategy of each operand
_Lie: TypeAlias = tuple[tuple[tuple[ShardingNumber, int], ...], ...]  # of each operand, where, and at what price more
_Call: TypeAlias = tuple[ShardingNumber, int, tuple[ShardingNumber, ...]]  # to what, what it adds, from where


def cheapest_first(
    problem: Problem, order: Expr, others: Sequence[Expr], statement: Statement
) -> Iterator[tuple[Table, ShardingNumber]]:
    """Tables that lead to a statement's result, and to which sharding of it.

    One for each strategy of the products in one order, and one for each other order, with all of its strategies.
    """
    ranked = _Ranked(problem, statement, _Strategies(problem, order, statement.pattern.exact), list(others))
    while True:
        try:
            found = ranked.following()
        except Spent:
            yield from ranked.known()
            return
        if found is None:
            return
        yield found


@dataclass(slots=True)
class _Ranked:
    """Tables, by what they cost at least up to the result; with the sharding of it once that is their price."""

    problem: Problem
    statement: Statement
    own: _Strategies
    others: list[Expr]
    _place: int = 0
    _queue: list[tuple[int, int, Table, ShardingNumber | None]] = field(default_factory=list)

    def following(self) -> tuple[Table, ShardingNumber] | None:
        """The cheapest that is left; other orders are looked at when no other can be cheaper."""
        while True:
            first = min((arithmetic_price(self.problem, other) for other in self.others), default=None)
            strategy = self.own.strategy(self._place)
            if strategy is not None and (not self._queue or strategy[0] <= self._queue[0][0]):
                heapq.heappush(self._queue, (strategy[0], self._place, fixed_if_asked(strategy[1]), None))
                self._place += 1
            elif first is not None and (not self._queue or first <= self._queue[0][0]):
                self.try_others()
            elif not self._queue:
                return None
            else:
                _, number, root, goal = heapq.heappop(self._queue)
                if goal is not None:
                    return root, goal
                self._push(number, root)

    def try_others(self) -> None:
        """A table for each other order, with the cheapest of its strategies."""
        while self.others:
            other = self.others.pop(0)
            try:
                root = fixed_if_asked(table_as_written(self.problem, other))
            except ShardcError:  # this order needs what moves cannot do
                continue
            self._push(-1 - len(self.others), root)

    def known(self) -> list[tuple[Table, ShardingNumber]]:
        """Those that have their price."""
        return [(root, goal) for _, _, root, goal in sorted(self._queue) if goal is not None]

    def _push(self, number: int, root: Table) -> None:
        try:
            goal = cheapest(root, self.statement)
        except ShardcError:  # this strategy does not lead to the result
            return
        heapq.heappush(self._queue, (root.paths(goal).price[goal], number, root, goal))


def arithmetic_price(problem: Problem, expr: Expr) -> int:
    return problem.objective.price(arithmetic(problem, expr), 0, steps=0)


@dataclass(slots=True)
class _Entry:
    """Operands by their strategies; or one local product of such, bounded or priced."""

    tables: tuple[Table, ...] = ()
    places: _Places = ()
    way: Way | None = None
    found: tuple[ShardingNumber, int, Origin] | None = None  # a sharding, its price, where it comes from
    own: int = 0  # the price of the product itself


@dataclass(slots=True)
class _Strategies:
    """Tables with one seed each, of an expression whose products are taken as written, in order of price.

    With `wanted`, of what they cost at least up to that sharding.
    """

    problem: Problem
    expr: Expr
    wanted: Sharding | None = None
    _below: list[_Strategies] = field(init=False)
    _whole: Table = field(init=False)
    _alone: int = field(init=False)
    _found: list[tuple[int, Table]] = field(default_factory=list)
    _queue: list[tuple[int, int, _Entry]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _met: set[_Places] = field(default_factory=set)
    _ways: dict[_Lie, list[_Call]] = field(default_factory=dict)  # of a function, by how its operands lie

    def __post_init__(self) -> None:
        self._below = [_Strategies(self.problem, operand) for operand in operands(self.expr)]
        self._whole = Table(self.expr, self.problem.search(self.expr), {}, {})
        time = alone(self.problem, self.expr) if isinstance(self.expr, Product) else 0
        self._alone = self.problem.objective.price(time, 0, steps=0)
        self._meet((0,) * len(self._below))

    def strategy(self, place: int) -> tuple[int, Table] | None:
        """What the strategy at this place costs at least, and its table; None if there are no more."""
        while len(self._found) <= place and self._queue:
            bound, number, entry = heapq.heappop(self._queue)
            if entry.found is not None:
                at, price, origin = entry.found
                self._found.append((bound, Table(self.expr, self._whole.search, {at: price}, {at: origin})))
            elif entry.way is not None:
                self._price(entry, entry.way, number)
            else:
                self._expand(entry)
        return self._found[place] if place < len(self._found) else None

    def _meet(self, places: _Places) -> None:
        """These strategies of the operands, once."""
        if places in self._met:
            return
        self._met.add(places)
        below = [s.strategy(place) for s, place in zip(self._below, places, strict=True)]
        found = [each for each in below if each is not None]
        if len(found) == len(places):
            bound = sum(price for price, _ in found) + self._alone
            self._push(bound, _Entry(tuple(table for _, table in found), places))

    def _push(self, price: int, entry: _Entry, number: int | None = None) -> None:
        heapq.heappush(self._queue, (price, next(self._numbers) if number is None else number, entry))

    def _expand(self, entry: _Entry) -> None:
        tables, expr = entry.tables, self.expr
        match expr:
            case Product():
                usable = tuple(unmoved(table) if expr.local else table for table in tables)
                ways = local_products(self.problem, expr, usable, self._whole.search)
                self.problem.meter.spend(BOUND * len(ways))
                below = [cache(table.bound) for table in usable]
                for way, price in ways:
                    bound = price + sum([bound(at) for bound, at in zip(below, way.at, strict=True)])
                    self._push(bound + self._after(way.result), _Entry(usable, way=way, own=price))
            case Call():
                self.problem.meter.spend(APPLIED)
                for found in self._called(expr, tables):
                    self._push(found[1] + self._after(found[0]), _Entry(found=found))
            case _:
                table = table_or_none(self.problem, expr, tables)
                if table is not None:
                    goal = None if self.wanted is None else self._whole.search.graph.number(self.wanted)
                    self._found.append((min(table.seeds.values()) if goal is None else table.bound(goal), table))
        for number, place in enumerate(entry.places):
            self._meet((*entry.places[:number], place + 1, *entry.places[number + 1 :]))

    def _called(self, expr: Call, tables: tuple[Table, ...]) -> list[tuple[ShardingNumber, int, Origin]]:
        """The ways to apply a function. Of operands that lie alike they are the same, whatever these cost."""
        search = self._whole.search
        if not tables:
            return list(ways_of(self.problem, expr, (), search))
        least = [min(table.seeds.values()) for table in tables]
        lie = tuple(
            tuple((number, price - first) for number, price in table.seeds.items())
            for table, first in zip(tables, least, strict=True)
        )
        if lie not in self._ways:
            ways = few_calls(self.problem, expr, tables, search)
            self._ways[lie] = [(number, price - sum(least), at) for number, price, at in ways]
        return [(number, price + sum(least), Applied(tables, at)) for number, price, at in self._ways[lie]]

    def _price(self, entry: _Entry, way: Way, number: int) -> None:
        price = entry.own
        for table, at in zip(entry.tables, way.at, strict=True):
            cost = table.price(at, None)
            if cost is None:
                return
            price += cost
        found = way.result, price, Multiplied(entry.tables, way.at)
        self._push(price + self._after(way.result), _Entry(found=found), number)

    def _after(self, number: ShardingNumber) -> int:
        """What is left to do costs at least, from one sharding of the result."""
        goal = None if self.wanted is None else self._whole.search.graph.number(self.wanted)
        return self._whole.search.bound(number, goal)


def fixed_if_asked(table: Table) -> Table:
    """What the user fixed is not moved on."""
    expr = table.expr
    is_fixed = isinstance(expr, Named) or (isinstance(expr, Product) and expr.local)
    return replace(table, fixed=True) if is_fixed else table


def cheapest(root: Table, statement: Statement, limit: int | None = None) -> ShardingNumber:
    """The number of the cheapest sharding that the statement's result may have; SHC220 if there is none.

    None as well where the sharding is given, and costs more than the limit.
    """
    exact = statement.pattern.exact
    graph = root.search.graph
    if exact is not None:
        goal = graph.number(exact)
        if root.search.divides(goal) and root.price(goal, limit) is not None:
            return goal
        raise unreachable(statement, map(root.sharding, root.seeds))
    prices = root.paths().price
    fitting = [number for number in prices if statement.pattern.matches(graph.shardings[number])]
    if not root.search.options.searches and not root.fixed and not fitting:
        near = (fitted(statement.pattern, root.sharding(number)) for number in prices)
        asked = dict.fromkeys(number for number in map(graph.number, near) if root.search.divides(number))
        prices = {number: price for number in asked if (price := root.price(number, None)) is not None}
        fitting = [*prices]
    if not fitting:
        raise unreachable(statement, map(root.sharding, root.seeds))
    return min(fitting, key=prices.__getitem__)


def root_table(problem: Problem, statement: Statement) -> Table:
    """The table of a statement's expression; one that the user fixed is not moved on."""
    table = table_of(problem, statement.expr, statement.pattern.exact)
    return fixed_if_asked(table)


def cheapest_input(problem: Problem, given: Input, statement: Statement) -> Array:
    """The input in the one sharding that makes the statement cheapest."""
    search = problem.search(given)
    options = [search.graph.shardings[number] for number in choices_of(problem, given.pattern, search)]
    arrays = [Array(given.name, given.dims, search.shape, option, given.dtype) for option in options]
    return min(arrays, key=lambda array: _price_with(problem, array, statement))


def _price_with(problem: Problem, array: Array, statement: Statement) -> float:
    """The price of a statement if an input lies so; infinite if that does not do."""
    trial = problem.afresh().given(problem.environment.with_value(array))
    try:
        root = root_table(trial, statement)
        found = cheapest(root, statement)
        known = root.paths().price.get(found)
        price = root.price(found, None) if known is None else known  # by routes, paths may lead elsewhere
        return math.inf if price is None else price
    except ShardcError:
        return math.inf


def searched(problem: Problem, statement: Statement) -> tuple[Table, ShardingNumber]:
    """The table of a statement, and which sharding of its result is cheapest."""
    root = root_table(problem, statement)
    return root, cheapest(root, statement, problem.limit)


def candidates(
    problem: Problem, statement: Statement, own: tuple[Table, ShardingNumber] | None = None, over_others: bool = False
) -> Iterator[Candidate]:
    """The plan's own, then every strategy, the cheapest first.

    The plan's own may do its products in digits, as nobody would on paper; then it comes without them as well.
    With `over_others` those follow that nobody would list, but that may need less memory.
    """
    best, goal = own or searched(problem, statement)
    yield Candidate(best, goal, chosen_below(problem, best, goal) if problem.options.searches else {})
    yield Candidate(best, goal)
    if not problem.options.searches:
        return
    narrow = problem.over(problem.mesh.ordered(axes_in(patterns_of((statement,)))) or problem.pool)
    order = taken(best, goal)
    others = (other for other in islice(all_orders(statement.expr), MAX_ORDERS) if other != order)
    found = cheapest_first(narrow, order, list(others), statement)
    for root, found_goal in islice(found, MAX_STRATEGIES):
        yield Candidate(root, found_goal)
    if over_others:
        yield from _others_over(problem, statement, order, best, known=narrow.pool)


def _others_over(problem: Problem, statement: Statement, order: Expr, best: Table, known: Axes) -> Iterator[Candidate]:
    """Strategies over all axes of the problem, if those are not `known`; and a result left open, as it may lie."""
    if known != problem.pool:
        for root, goal in islice(cheapest_first(problem.over(problem.pool), order, [], statement), MAX_STRATEGIES):
            yield Candidate(root, goal)
    if statement.pattern.exact is None:
        prices, graph = best.paths().price, best.search.graph
        fitting = [number for number in prices if statement.pattern.matches(graph.shardings[number])]
        for goal in sorted(fitting, key=prices.__getitem__)[:MAX_STRATEGIES]:
            yield Candidate(best, goal)
