"""Every legal strategy of a statement, priced.

A strategy says in which shardings each product takes its operands: gather A; or slice B and reduce; or
exchange A and gather the result. Its reshards are the cheapest. A chain of products is taken in the plan's order;
of each other order the cheapest strategy is listed. Strategies move only the axes that the
statement writes, as one would on paper; the search for the plan itself runs over all axes of the mesh.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from shardc.cost.model import PICO, picoseconds
from shardc.errors import ShardcError
from shardc.ir.plan import Step, Strategy
from shardc.ir.program import Call, Expr, Product, Statement, operands
from shardc.ir.sharding import Array
from shardc.planner.build import Builder
from shardc.planner.nodes import Planner
from shardc.planner.orders import MAX_ORDERS, all_orders, taken
from shardc.planner.root import Root, cheapest, fixed_if_asked, mentioned
from shardc.planner.tables import Applied, Origin, Table

MAX_STRATEGIES = 2048


def strategies(
    planner: Planner, statement: Statement, number: int, values: tuple[Array, ...], taken: set[str], root: Root
) -> Iterator[Strategy]:
    """Every strategy, the cheapest first; the plan's own is the first. At most MAX_STRATEGIES, the cheapest."""
    seen: set[object] = set()
    for table, goal in candidates(planner, statement, root):
        strategy = _build(planner, table, goal, statement.name, number, values, taken)
        if (signature := _signature(strategy)) not in seen:
            seen.add(signature)
            yield strategy


def candidates(planner: Planner, statement: Statement, root: Root) -> Iterator[tuple[Table, int]]:
    """The table and the sharding of its result, of each strategy: the plan's own, then all, the cheapest first."""
    best, goal = root(planner, statement)
    yield best, goal
    narrow = planner.over(mentioned(planner.program, statement) or planner.pool)
    priced: list[tuple[int, Table, int]] = []
    order = taken(best, goal)
    found = [*_tables(narrow, order), *_others(narrow, statement.expr, order)]
    for table in map(fixed_if_asked, found):
        try:
            goal = cheapest(table, statement)
        except ShardcError:  # this strategy does not lead to the result
            continue
        priced.append((table.paths().price[goal], table, goal))
    priced.sort(key=lambda entry: entry[0])
    yield from ((table, goal) for _, table, goal in priced[:MAX_STRATEGIES])


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


def _build(
    planner: Planner, root: Table, goal: int, name: str, number: int, values: tuple[Array, ...], taken: set[str]
) -> Strategy:
    steps: list[Step] = []
    builder = Builder(planner, list(values), steps, number, name, set(taken))
    builder.build(root, goal, name)
    wire = sum(step.cost.wire_bytes for step in steps)
    time = sum(picoseconds(step.cost.time_s) for step in steps) / PICO  # as the search adds it, whatever the order
    return Strategy(tuple(builder.values), tuple(steps), wire, time)


def _signature(strategy: Strategy) -> object:
    """Two strategies with the same steps on the same shardings are one."""
    return tuple(
        (step.name, *(str(strategy.values[v]) for v in step.operands), str(strategy.values[step.result]))
        for step in strategy.steps
    )
