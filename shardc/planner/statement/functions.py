"""Where a function's operands may lie, and what it leaves there."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardc.ir.collectives import AllReduce, wire_bytes
from shardc.ir.functions import FUNCTIONS
from shardc.ir.program import Call
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.paths.search import Search
from shardc.planner.paths.tables import Applied, Origin, Table
from shardc.planner.products.placing import quick_call
from shardc.rules.functions import applied, reduced_across


def function_ways(expr: Call, tables: tuple[Table, ...], search: Search) -> Iterator[tuple[int, int, Origin]]:
    """Every (sharding, price, origin) of a function of the operands' tables; it does no work that is priced."""
    for at in dict.fromkeys(quick_call(expr, tables)) if search.quick else aligned(tables):
        lie = [table.sharding(number) for table, number in zip(tables, at, strict=True)]
        below = [table.expr.dims for table in tables]
        sharding = applied(expr.function, expr.over, below, expr.dims, lie, expr.numbers)
        extra = 0
        if sharding is None and (found := _across(expr, tables[0], at[0])) is not None:
            sharding, axes = found
            extra = _all_reduces(expr, tables[0], at[0], axes)
        if sharding is None or not search.divides(search.graph.number(sharding)):
            continue
        prices = [table.price(number, None) for table, number in zip(tables, at, strict=True)]
        price = sum(found for found in prices if found is not None) + search.objective.price(0, 0) + extra
        if None not in prices:
            yield search.graph.number(sharding), price, Applied(tables, at)


def _across(expr: Call, table: Table, at: int) -> tuple[Sharding, Axes] | None:
    mesh = table.search.graph.mesh
    return reduced_across(expr.function, expr.over, table.expr.dims, expr.dims, table.sharding(at), mesh)


def _all_reduces(expr: Call, table: Table, at: int, axes: Axes) -> int:
    """The price of the AllReduces of what is left of an operand when the dims that the function runs over are gone."""
    search, lies = table.search, table.sharding(at)
    pairs = zip(table.expr.dims, search.shape, lies.blocks(search.graph.mesh), strict=True)
    size = math.prod(size // parts for dim, size, parts in pairs if dim not in expr.over) * expr.dtype.bytes
    move = AllReduce(axes)
    time = search.model.rate(move).time_ps(size)
    return FUNCTIONS[expr.function].across * search.objective.price(
        time, wire_bytes(move, lies, search.graph.mesh, size)
    )


def aligned(tables: tuple[Table, ...]) -> Iterator[tuple[int, ...]]:
    """Of a function's operands, shardings that can go together: each has the axes of those before on shared dims."""
    known: list[str] = []
    joins = []
    for table in tables:
        shared = [dim for dim in table.expr.dims if dim in known]
        alike: dict[tuple[Axes, ...], list[int]] = {}
        for number in table.paths().price:
            alike.setdefault(_on(shared, table.expr.dims, table.sharding(number)), []).append(number)
        joins.append((shared, alike))
        known += table.expr.dims

    def joined(at: tuple[int, ...], axes_of: dict[str, Axes]) -> Iterator[tuple[int, ...]]:
        if len(at) == len(tables):
            yield at
            return
        shared, alike = joins[len(at)]
        for number in alike.get(tuple(axes_of[dim] for dim in shared), ()):
            table = tables[len(at)]
            more = axes_of if len(at) + 1 == len(tables) else axes_of | _placed(table, number)
            yield from joined((*at, number), more)

    return joined((), {})


def _placed(table: Table, number: int) -> dict[str, Axes]:
    return dict(zip(table.expr.dims, table.sharding(number).dims, strict=True))


def _on(dims: list[str], every: tuple[str, ...], sharding: Sharding) -> tuple[Axes, ...]:
    return tuple(sharding.dims[every.index(dim)] for dim in dims)
