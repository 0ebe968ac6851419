"""The local products that a product may be: all of them, or those that can lead to a goal most cheaply.

Where operands are given and the result's sharding is known, few of the many need a search. No path to an operand's
sharding, nor from the result's to the goal, costs less than the bytes to come at the fastest rate; so products are
taken in the order of that bound, and none is searched whose bound is above the price of one that is known:

    A[I_X, J] · B[J, K_X] → C[I, K_X]     106 local products on X=2, Y=2, Z=2; 3 or so are searched
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from shardc.ir.program import Product
from shardc.planner.budget import BOUND, Budget, Spent
from shardc.planner.paths.graph import Graph
from shardc.planner.paths.search import Search
from shardc.planner.paths.tables import Table
from shardc.rules.products import Dims, local_products


@dataclass(frozen=True, slots=True)
class Way:
    """A local product: the numbers of the operands' shardings and of the result's, and into how many it is shared."""

    at: tuple[int, ...]
    result: int
    parts: int


@lru_cache(maxsize=256)
def every_way(
    dims: tuple[Dims, ...],
    result: Dims,
    graphs: tuple[Graph, ...],
    graph: Graph,
    unreduced: tuple[frozenset[str], ...],
) -> tuple[Way, ...]:
    """Every local product over the axes of the graphs, as `rules.products.local_products` lists them."""
    found = []
    for way in local_products(dims, result, graph.coarse_pool, unreduced):
        lie = [graph.refined(sharding) for sharding in way.operands]
        at = tuple(own.number(sharding) for own, sharding in zip(graphs, lie, strict=True))
        axes = graph.mesh.ordered({axis for sharding in lie for axis in sharding.sharded})
        found.append(Way(at, graph.number(graph.refined(way.result)), graph.mesh.product(axes)))
    return tuple(found)


def every_price(ways: list[tuple[Way, int]], tables: tuple[Table, ...]) -> Iterator[tuple[Way, int]]:
    """Of ways and the prices of their products, those whose operands can come to lie so, and what that costs added."""
    known = [table.paths().price for table in tables]
    for way, price in ways:
        costs = [prices.get(number) for prices, number in zip(known, way.at, strict=True)]
        if None not in costs:
            yield way, price + sum(cost for cost in costs if cost is not None)


class Towards:
    """Prices of ways that lead to one sharding of the result, with as little search as that needs."""

    def __init__(self, expr: Product, tables: tuple[Table, ...], search: Search, goal: int, budget: Budget) -> None:
        self._tables = tables
        self._budget = budget
        self._goal = goal
        self._after = cache(lambda number: Table(expr, search, {number: 0}, {}))  # of a result that is moved on

    def best(self, ways: list[tuple[Way, int]], limit: int | None = None) -> list[tuple[Way, int]]:
        """Of ways and the prices of their products, those on a cheapest path to the goal, and what leads there added.

        None if that path costs more than the limit. Where the budget ends first, the best that are known.
        All of them, in their order, so that equal plans are chosen among as in a search of everything.
        """
        self._budget.spend(BOUND * len(ways))
        below = [cache(table.bound) for table in self._tables]
        after = cache(lambda result: self._after(result).bound(self._goal))
        bounds = [price + after(way.result) for way, price in ways]
        for place, bound in enumerate(below):
            bounds = [price + bound(way.at[place]) for price, (way, _) in zip(bounds, ways, strict=True)]
        best, found = limit, []
        for place in sorted(range(len(ways)), key=bounds.__getitem__):
            if best is not None and bounds[place] > best:
                break
            try:
                priced = self._priced(*ways[place], best)
            except Spent:
                priced = None
            if priced is not None and (best is None or priced[1] <= best):
                price, best = priced
                found.append((place, price, best))
            if self._budget.is_spent:
                self._budget.bound = bounds[place]
                if not found:
                    raise Spent
                break
        return [(ways[place][0], price) for place, price, total in sorted(found) if total == best]

    def _moved(self, way: Way) -> list[tuple[Table, int]]:
        """What is moved for a way, and to which sharding: the operands, then the result."""
        return [*zip(self._tables, way.at, strict=True), (self._after(way.result), self._goal)]

    def _priced(self, way: Way, price: int, best: int | None) -> tuple[int, int] | None:
        """The price of a way up to the result, and up to the goal; None if that is impossible or above `best`."""
        moved = self._moved(way)
        left = [table.bound(number) for table, number in moved]
        if best is not None and price + sum(left) > best:
            return None  # what was learned of other ways since this one was bounded
        for place, (table, number) in enumerate(moved):
            before, left[place] = price, 0
            found = table.price(number, None if best is None else best - price - sum(left))
            if found is None:
                return None
            price += found
        return before, price
