"""Every legal strategy of a statement, priced.

A strategy says in which shardings each product takes its operands: gather A; or slice B and reduce; or
exchange A and gather the result. Its reshards are the cheapest. A chain of products is taken in the plan's order;
of each other order the cheapest strategy is listed. Strategies move only the axes that the
statement writes, as one would on paper; the search for the plan itself runs over all axes of the mesh.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice

from shardc.cost.model import PICO, picoseconds
from shardc.errors import ShardcError
from shardc.ir.collectives import JointScatter
from shardc.ir.plan import Strategy
from shardc.ir.program import Call, Expr, Product, Statement, operands
from shardc.ir.sharding import Array, Axes
from shardc.planner.build import Builder
from shardc.planner.idle import mentioned
from shardc.planner.nodes import Planner
from shardc.planner.orders import MAX_ORDERS, all_orders, taken
from shardc.planner.root import cheapest, fixed_if_asked, root_table
from shardc.planner.tables import Applied, Origin, Table

MAX_STRATEGIES = 2048


def strategies(
    planner: Planner, statement: Statement, number: int, values: tuple[Array, ...], taken: set[str]
) -> Iterator[Strategy]:
    """Every strategy, the cheapest first; the plan's own is the first. At most MAX_STRATEGIES, the cheapest.

    Those that scatter over several dims at once follow once more as the book writes them, one dim after another.
    """
    seen: set[object] = set()
    apart: list[Strategy] = []
    for root, goal, digits in candidates(planner, statement):
        for joint in (True, False):
            builder = Builder(planner, list(values), [], number, statement.name, set(taken), digits=digits, joint=joint)
            builder.build(root, goal, statement.name)
            strategy = _strategy(builder)
            if (signature := _signature(strategy)) not in seen:
                seen.add(signature)
                if joint:
                    yield strategy
                else:
                    apart.append(strategy)
            if not any(isinstance(step.op, JointScatter) for step in strategy.steps):
                break
    yield from apart


def candidates(planner: Planner, statement: Statement, over_others: bool = False) -> Iterator[tuple[Table, int, bool]]:
    """The table and the sharding of its result, of each strategy: the plan's own, then all, the cheapest first.

    The plan's own may do its products in digits, as nobody would on paper; then it comes without them as well.
    With `over_others` those follow that nobody would list, but that may need less memory.
    """
    best = root_table(planner, statement)
    own = cheapest(best, statement, planner.limit)
    yield best, own, True
    yield best, own, False
    narrow = planner.over(mentioned(planner.program, statement) or planner.pool)
    order = taken(best, own)
    found = [*_tables(narrow, order), *_others(narrow, statement.expr, order)]
    for root, goal in islice(_cheapest_first([*map(fixed_if_asked, found)], statement), MAX_STRATEGIES):
        yield root, goal, False
    if over_others:
        yield from _others_over(planner, statement, order, best, known=narrow.pool)


def _others_over(
    planner: Planner, statement: Statement, order: Expr, best: Table, known: Axes
) -> Iterator[tuple[Table, int, bool]]:
    """Strategies over all axes of the planner, if those are not `known`; and a result left open, as it may lie."""
    if known != planner.pool:
        wide = [fixed_if_asked(table) for table in _tables(planner.over(planner.pool), order)]
        for root, goal in islice(_cheapest_first(wide, statement), MAX_STRATEGIES):
            yield root, goal, False
    if statement.pattern.exact is None:
        prices, around = best.paths().price, best.search.space
        fitting = [number for number in prices if statement.pattern.matches(around.shardings[number])]
        for goal in sorted(fitting, key=prices.__getitem__)[:MAX_STRATEGIES]:
            yield best, goal, False


def _cheapest_first(roots: list[Table], statement: Statement) -> Iterator[tuple[Table, int]]:
    """Tables that can lead to the result, and to which sharding of it; each is searched when its turn comes."""
    queue: list[tuple[int, int, int | None]] = []
    for place, root in enumerate(roots):
        heapq.heappush(queue, (_at_least(root, statement), place, None))
    while queue:
        _, place, goal = heapq.heappop(queue)
        if goal is not None:
            yield roots[place], goal
            continue
        try:
            goal = cheapest(roots[place], statement)
        except ShardcError:  # this strategy does not lead to the result
            continue
        heapq.heappush(queue, (roots[place].paths(goal).price[goal], place, goal))


def _at_least(root: Table, statement: Statement) -> int:
    """What a strategy costs at least."""
    exact = statement.pattern.exact
    return min(root.seeds.values()) if exact is None else root.least(root.search.space.number(exact))


def _others(planner: Planner, expr: Expr, order: Expr) -> Iterator[Table]:
    """A table for each other order of an expression's products, all strategies together."""
    for other in islice(all_orders(expr), MAX_ORDERS):
        if other != order:
            try:
                yield planner.as_written(other)
            except ShardcError:  # this order needs what moves cannot do, or is too wide to search
                continue


def _tables(planner: Planner, expr: Expr) -> list[Table]:
    """A table for each strategy of an expression whose products are taken as written."""
    below = [_tables(planner, operand) for operand in operands(expr)]
    combined: list[tuple[Table, ...]] = [()]
    for options in below:
        combined = [(*chosen, option) for chosen in combined for option in options][:MAX_STRATEGIES]
    found = [table for tables in combined for table in _split(planner, expr, tables)]
    found.sort(key=lambda table: min(table.seeds.values()))
    return found[:MAX_STRATEGIES]


def _split(planner: Planner, expr: Expr, tables: tuple[Table, ...]) -> list[Table]:
    """A product: one table per local product. A function: where its operand is already, if that is legal."""
    whole = planner.table_or_none(expr, tables)
    if whole is None:
        return []
    if not isinstance(expr, Product | Call):
        return [whole]
    ways = list(planner.ways(expr, tables, whole.search))
    if isinstance(expr, Call):
        ways = _in_place(tables, ways) or [min(ways, key=lambda way: way[1])]
    return [Table(expr, whole.search, {at: price}, {at: origin}) for at, price, origin in ways]


def _in_place(tables: tuple[Table, ...], ways: list[tuple[int, int, Origin]]) -> list[tuple[int, int, Origin]]:
    """The ways that apply a function to operands which nothing has moved."""
    return [
        way
        for way in ways
        if isinstance(way[2], Applied) and all(n in table.seeds for n, table in zip(way[2].at, tables, strict=True))
    ]


def _strategy(builder: Builder) -> Strategy:
    steps = builder.steps
    wire = sum(step.cost.wire_bytes for step in steps)
    time = sum(picoseconds(step.cost.time_s) for step in steps) / PICO  # as the search adds it, whatever the order
    return Strategy(tuple(builder.values), tuple(steps), wire, time)


def _signature(strategy: Strategy) -> object:
    """Two strategies with the same steps on the same shardings are one."""
    return tuple(
        (step.name, *(str(strategy.values[v]) for v in step.operands), str(strategy.values[step.result]))
        for step in strategy.steps
    )
