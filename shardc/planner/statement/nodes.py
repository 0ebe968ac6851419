"""The cheapest way to have each expression in each sharding.

A statement is a tree. From the leaves up, each node gets a Table: for every sharding its value can be in,
the price, and where it came from. A node's own operation gives seeds, moves spread them:

    Use       the sharding written (or held)                     seeds {[I, J_X]: 0}
    Product   every local product of two priced operand shardings; of a chain, of every pair of its parts
    Call      every sharding that the function allows
    Named     one move of the kind that the user wrote

Prices add up along the tree, so the least price at the root is the least over all plans of these moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product
from typing import assert_never

from shardc.ir.chains import Chain, Pair, chain_of, is_chain
from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use, operands
from shardc.ir.sharding import Sharding, ShardingNumber
from shardc.planner.budget import NODE, WAY
from shardc.planner.paths.few import few_choices
from shardc.planner.paths.named import named_edges
from shardc.planner.paths.search import Search
from shardc.planner.paths.tables import (
    Applied,
    Held,
    Moved,
    Multiplied,
    Origin,
    Table,
    Waypoint,
    aligned,
    few_alike,
    unmoved,
)
from shardc.planner.problem import Problem
from shardc.planner.products.functions import function_of, of_none
from shardc.planner.products.placing import Movable, few_ways
from shardc.planner.products.ways import Towards, Way, every_priced, way_at
from shardc.planner.statement.refusals import impossible
from shardc.rules.placements import count_placements, placements

FEW = 8  # shardings that an operand is held in, at most, for its product to be searched towards a goal
MAX_WAYS = 200  # for the dims to lie that meet in a product, where none that is written has more


def table_of(problem: Problem, expr: Expr, wanted: Sharding | None = None) -> Table:
    """The table of an expression, all strategies and all orders of its products together.

    With `wanted`, of a product of two given arrays only what leads to that sharding most cheaply.
    """
    if is_chain(expr):
        return _chain(problem, chain_of(expr), wanted)
    return combine(problem, expr, tuple(table_of(problem, operand) for operand in operands(expr)), wanted)


def table_as_written(problem: Problem, expr: Expr) -> Table:
    """The table of an expression with its products in the order as written."""
    return combine(problem, expr, tuple(table_as_written(problem, operand) for operand in operands(expr)))


def _chain(problem: Problem, chain: Chain, wanted: Sharding | None) -> Table:
    """Of each part of a chain one table, which has the best of all pairs that make it."""
    tables = {1 << place: table_of(problem, operand) for place, operand in enumerate(chain.operands)}
    for pair in chain.pairs():
        if pair.left not in tables or pair.right not in tables or not _can_afford(problem, chain, pair):
            continue
        if not problem.options.searches and problem.meter.is_spent and pair not in chain.written:
            continue
        below = (tables[pair.left], tables[pair.right])
        expr = chain.multiply(pair, *(table.expr for table in below))
        made = tables.get(pair.whole) or Table(expr, problem.search(expr), {}, {})
        is_all = len(chain.operands) == 2
        goal = _goal(problem, expr, below, made.search, wanted, is_all) if pair.whole == chain.whole else None
        _seed(problem, made, expr, below, goal)
        if made.seeds:
            tables[pair.whole] = made
    if chain.whole not in tables:
        raise impossible(chain.product)
    return tables[chain.whole]


def _goal(
    problem: Problem, product: Product, below: tuple[Table, ...], search: Search, wanted: Sharding | None, is_all: bool
) -> ShardingNumber | None:
    """The only sharding to be asked of a product, if it `is_all` that is multiplied, and its two arrays lie in a few
    ways."""
    if wanted is None or product.local or len(below) != 2:
        return None
    searched = is_all and problem.options.largest_step is None and all(len(table.seeds) <= FEW for table in below)
    if problem.options.searches and not searched:
        return None
    goal = search.graph.number(wanted)
    return goal if search.divides(goal) else None


def _can_afford(problem: Problem, chain: Chain, pair: Pair) -> bool:
    """Whether a pair that nobody wrote is as easy to search as one that is written, and its numbers to add."""
    if pair in chain.written:
        return True
    size = math.prod(problem.program.shape(chain.dims(pair.whole))) * chain.product.dtype.bytes
    if size >= 2**63 or math.prod(problem.program.shape(chain.meeting(pair))) >= 2**80:
        return False
    widest = max(len(chain.meeting(other)) for other in chain.written)
    meeting = len(chain.meeting(pair))
    return (
        meeting <= widest
        or count_placements(len(problem.pool) - max(0, len(problem.together) - 1), meeting) <= MAX_WAYS
    )


def combine(problem: Problem, expr: Expr, tables: tuple[Table, ...], wanted: Sharding | None = None) -> Table:
    """The table of an expression from its operands' tables; with `wanted` as of `table_of`."""
    found = table_or_none(problem, expr, tables, wanted)
    if found is None:
        raise impossible(expr)
    return found


def table_or_none(
    problem: Problem, expr: Expr, tables: tuple[Table, ...], wanted: Sharding | None = None
) -> Table | None:
    as_asked = problem.options.as_asked and isinstance(expr, Use) and expr.pattern is not None
    found = Table(expr, problem.search(expr), {}, {}, fixed=as_asked)
    goal = _goal(problem, expr, tables, found.search, wanted, is_all=True) if isinstance(expr, Product) else None
    _seed(problem, found, expr, tables, goal)
    return found if found.seeds else None


def _seed(
    problem: Problem, found: Table, expr: Expr, tables: tuple[Table, ...], goal: ShardingNumber | None = None
) -> None:
    for number, price, origin in ways_of(problem, expr, tables, found.search, goal):
        if problem.options.largest_step is not None and not isinstance(expr, Use) and not found.search.divides(number):
            continue
        found.add(number, price, origin)


def ways_of(
    problem: Problem, expr: Expr, tables: tuple[Table, ...], search: Search, goal: ShardingNumber | None = None
) -> Iterator[tuple[ShardingNumber, int, Origin]]:
    """Every (sharding, price, origin) that the expression's own operation gives; of a product, towards a goal."""
    match expr:
        case Use():
            return _leaf(problem, expr, search)
        case Product():
            return _products(problem, expr, tables, search, goal)
        case Call():
            return _calls(problem, expr, tables, search) if tables else _anywhere(problem, expr, search)
        case Named():
            return _named(problem, expr, tables[0], search)
        case _:
            assert_never(expr)


def _leaf(problem: Problem, use: Use, search: Search) -> Iterator[tuple[ShardingNumber, int, Origin]]:
    there = problem.environment
    values = there.held.get(use.name)
    wanted = use.pattern.exact if use.pattern is not None else None
    if values is None:
        left_open = use.pattern or _given_as(problem, use.name)
        yield from ((number, 0, Held(None)) for number in choices_of(problem, left_open, search))
    elif wanted is None:
        newest = {search.graph.number(there.values[value].sharding): value for value in values}
        yield from ((number, 0, Held(value)) for number, value in newest.items())
        alike = dict.fromkeys(other for value in values for other in there.alike.get(value, ()))
        copies = [(search.graph.number(there.values[value].sharding), value) for value in alike if value not in values]
        yield from ((number, 0, Held(value, is_copy=True)) for number, value in copies)
    else:
        bare = Use(use.name, use.dims, None, use.dtype, use.span)
        held = combine(problem, bare, ())
        number = search.graph.number(wanted)
        price = held.paths(number).price.get(number)
        if price is not None:
            yield number, price, Waypoint(held, number)


def _given_as(problem: Problem, name: str) -> Pattern:
    """How an input was first written that is used again before it lies anywhere: another is being placed."""
    return next(given.pattern for given in problem.program.inputs if given.name == name)


def choices_of(problem: Problem, pattern: Pattern, search: Search) -> Iterator[ShardingNumber]:
    """The shardings that match a pattern and divide the array."""
    exact = pattern.exact
    for sharding in [exact] if exact is not None else _matching(problem, pattern):
        number = search.graph.number(sharding)
        if search.divides(number):
            yield number


def _matching(problem: Problem, pattern: Pattern) -> list[Sharding]:
    graph = problem.graph(len(pattern.dims))
    if not problem.options.searches:
        return list(map(graph.refined, few_choices(pattern, graph.mesh, graph.coarse_pool)))
    problem.meter.spend(NODE * count_placements(len(graph.coarse_pool), graph.rank))
    free = tuple(axis for axis in graph.coarse_pool if axis not in pattern.unreduced)
    every = (graph.refined(Sharding(dims, pattern.unreduced)) for dims in placements(free, len(pattern.dims)))
    return [sharding for sharding in every if pattern.matches(sharding)]


def _products(
    problem: Problem, expr: Product, tables: tuple[Table, ...], search: Search, goal: ShardingNumber | None = None
) -> Iterator[tuple[ShardingNumber, int, Origin]]:
    usable = tuple(unmoved(table) if expr.local else table for table in tables)
    found: Iterable[tuple[Way, int]]
    proved = 0
    if not problem.options.searches and not expr.local:
        below = [table.search for table in tables]
        price = partial(problem.way_price, problem.work(expr), operands=below, result=search)
        found = few_ways([*map(_movable, tables)], _wanted(expr, search, goal), price, problem.meter)
    elif problem.options.as_asked and all(table.fixed for table in usable):
        found = _every_price(_in_place(problem, expr, usable, search), usable)
    elif goal is None:
        found = _every_price(local_products(problem, expr, usable, search), usable)
    else:
        after = partial(_alone, expr, search)
        towards = Towards(usable, after, search.bound, goal, problem.meter)
        found, proved = towards.best(local_products(problem, expr, usable, search), problem.limit)
    return ((way.result, price, Multiplied(usable, way.at, proved)) for way, price in found)


def _in_place(problem: Problem, expr: Product, tables: tuple[Table, ...], search: Search) -> list[tuple[Way, int]]:
    """The local products of arrays as they lie."""
    dims, below = [operand.dims for operand in expr.operands], [table.search for table in tables]
    found = (
        way_at(dims, expr.dims, [one.graph for one in below], search.graph, at)
        for at in product(*(table.seeds for table in tables))
    )
    work = problem.work(expr)
    return [(way, problem.way_price(work, way, below, search)) for way in found if way is not None]


def _alone(expr: Product, search: Search, left: ShardingNumber) -> Table:
    """Of a value that is there, at no price."""
    return Table(expr, search, {left: 0}, {})


def _every_price(ways: list[tuple[Way, int]], tables: tuple[Table, ...]) -> Iterator[tuple[Way, int]]:
    """Of ways and the prices of their products, those whose operands can come to lie so, and what that costs added."""
    known = [table.paths().price for table in tables]
    for way, price in ways:
        costs = [prices.get(number) for prices, number in zip(known, way.at, strict=True)]
        if None not in costs:
            yield way, price + sum(cost for cost in costs if cost is not None)


def _movable(table: Table) -> Movable:
    """An operand, for the few ways of a product."""
    search = table.search
    lies = tuple(map(table.sharding, table.seeds))
    return Movable(table.expr.dims, lies, search.graph, lambda n: table.price(n, None) if search.divides(n) else None)


def _wanted(expr: Product, search: Search, goal: ShardingNumber | None) -> Movable:
    """The result, moved from where the product leaves it to the goal."""

    def after(left: ShardingNumber) -> int | None:
        found = (0, ()) if goal is None or goal == left else search.closed(left, goal)
        return None if found is None or not search.divides(left) else found[0]

    return Movable(expr.dims, () if goal is None else (search.graph.shardings[goal],), search.graph, after)


def local_products(problem: Problem, expr: Product, tables: tuple[Table, ...], search: Search) -> list[tuple[Way, int]]:
    """Each local product that the seeds' partial sums allow, and the price of the product itself."""
    partials = tuple(
        frozenset(axis for number in table.seeds for axis in table.sharding(number).unreduced) for table in tables
    )
    if (expr, partials) not in problem.scratch.products:
        problem.scratch.products[expr, partials] = _priced_products(problem, expr, tables, search, partials)
    return problem.scratch.products[expr, partials]


def _priced_products(
    problem: Problem, expr: Product, tables: tuple[Table, ...], search: Search, partials: tuple[frozenset[str], ...]
) -> list[tuple[Way, int]]:
    meeting = len({dim for operand in expr.operands for dim in operand.dims})
    problem.meter.begin_on(WAY * count_placements(len(search.graph.coarse_pool), meeting))
    return every_priced(problem.work(expr), expr.dims, [table.search for table in tables], search, partials)


def _calls(
    problem: Problem, expr: Call, tables: tuple[Table, ...], search: Search
) -> Iterator[tuple[ShardingNumber, int, Origin]]:
    """Every way to apply a function to operands of these tables: what it leaves, its price, where it comes from."""
    every = aligned(tables) if search.options.searches else dict.fromkeys(few_alike(expr, tables))
    return _calls_at(problem, expr, tables, search, every)


def few_calls(
    problem: Problem, expr: Call, tables: tuple[Table, ...], search: Search
) -> list[tuple[ShardingNumber, int, tuple[ShardingNumber, ...]]]:
    """The ways to apply a function to operands that nothing has moved; where there is none, the cheapest of all."""
    in_place = list(_calls_at(problem, expr, tables, search, product(*(table.seeds for table in tables))))
    found = in_place or list(_calls_at(problem, expr, tables, search, aligned(tables), cheapest=True))[-1:]
    return [(number, price, origin.at) for number, price, origin in found]


def _calls_at(
    problem: Problem,
    expr: Call,
    tables: tuple[Table, ...],
    search: Search,
    every: Iterable[tuple[ShardingNumber, ...]],
    cheapest: bool = False,
) -> Iterator[tuple[ShardingNumber, int, Applied]]:
    """Of operands that lie so; with `cheapest` those that are cheaper than all before them."""
    most: float = math.inf
    searches, loops = [table.search for table in tables], problem.loops(expr)
    sent = loops.if_sent()
    plain = function_of(expr, searches, loops)
    moved_there = plain if sent is None else function_of(expr, searches, sent)
    for at in every:
        prices = [table.price(number, None) for table, number in zip(tables, at, strict=True)]
        moved = sum(price for price in prices if price is not None)
        if None in prices or moved >= most:
            continue
        lie = tuple(table.sharding(number) for table, number in zip(tables, at, strict=True))
        is_sent = sent is not None and any(
            tables[place].is_sent(at[place], problem.environment.alike) for place in loops.in_tiles
        )
        found = (moved_there if is_sent else plain).of(lie)
        if found is not None and moved + found[1] < most and search.divides(search.graph.number(found[0])):
            most = moved + found[1] if cheapest else math.inf
            yield search.graph.number(found[0]), moved + found[1], Applied(tables, at)


def _anywhere(problem: Problem, expr: Call, search: Search) -> Iterator[tuple[ShardingNumber, int, Origin]]:
    """Of no operands, each device makes its own block, wherever it is to lie."""
    loops = problem.loops(expr)
    for number in choices_of(problem, Pattern.free(len(expr.dims)), search):
        price = of_none(expr, search, search.graph.shardings[number], loops)
        yield number, price, Applied((), ())


def _named(problem: Problem, expr: Named, table: Table, search: Search) -> Iterator[tuple[ShardingNumber, int, Origin]]:
    source = unmoved(table)
    for number, price in source.paths().price.items():
        for edge in named_edges(expr, number, search):
            yield edge.target, price + search.price(number, edge), Moved(source, number, edge.move)
