"""A plan without a search, where a search would be too much: what each part of a statement could be, a few of each.

Arrays move by one route (`Search.closed`). Of a product each axis stands on a dim or on none: first as the operands
have them, or as the result is wanted; then axis after axis stands where that is cheapest, as long as that helps. Of
what lies open the few cheapest shardings are kept.

    A[I_X, J] · B[J_X, K] → C[I, K]     from I_X, or from J_X; X is tried on I, J, K and nowhere
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from shardc.ir.mesh import Mesh
from shardc.ir.program import Call, Pattern, Product
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.budget import Budget, Spent
from shardc.planner.paths.search import Search
from shardc.planner.paths.tables import Table
from shardc.planner.products.ways import Way

KEPT = 4  # shardings of a value that lies open

_Placed = tuple[str | None, ...]  # of each axis the dim that it stands on


def quick_ways(
    expr: Product,
    tables: tuple[Table, ...],
    search: Search,
    goal: int | None,
    price: Callable[[Way], int],
    budget: Budget,
) -> list[tuple[Way, int]]:
    """A few local products and their prices up to the result; the first leads to the goal most cheaply."""
    return _Placing(expr, tables, search, goal, price, budget).best()


@dataclass(slots=True)
class _Placing:
    expr: Product
    tables: tuple[Table, ...]
    search: Search
    goal: int | None
    price: Callable[[Way], int]
    budget: Budget
    _known: dict[_Placed, tuple[int, int, Way] | None] = field(default_factory=dict)

    @property
    def _mesh(self) -> Mesh:
        return self.search.graph.mesh

    @property
    def _axes(self) -> Axes:
        """Those that move: of axes that move as one, the first."""
        return self.search.graph.coarse_pool

    def best(self) -> list[tuple[Way, int]]:
        starts = list(dict.fromkeys(self._starts()))
        for start in starts:
            self._priced(start)
        try:
            for start in sorted(starts, key=self._rank):
                self._improved(start)
        except Spent:
            pass
        found: dict[int, tuple[int, int, Way]] = {}
        for each in filter(None, self._known.values()):
            if each[2].result not in found or each[0] < found[each[2].result][0]:
                found[each[2].result] = each
        chosen = sorted(found.values(), key=lambda each: each[0])[: 1 if self.goal is not None else KEPT]
        return [(way, price) for _, price, way in chosen]

    def _improved(self, placed: _Placed) -> None:
        """Axis after axis stands where that is cheapest, until none gains."""
        places, better = (None, *self._dims), True
        while better:
            better = False
            for number in range(len(placed)):
                others = ((*placed[:number], place, *placed[number + 1 :]) for place in places)
                best = min((placed, *others), key=self._rank)
                if self._rank(best) < self._rank(placed):
                    placed, better = best, True

    def _rank(self, placed: _Placed) -> tuple[bool, int]:
        if placed not in self._known and self.budget.is_spent:
            raise Spent
        found = self._priced(placed)
        return found is None, found[0] if found is not None else 0

    def _starts(self) -> Iterator[_Placed]:
        """Nowhere; then as each operand lies, or the result is wanted, the others where they do not clash."""
        arrays = [(dims, s) for dims, table in self._operands for s in map(table.sharding, table.seeds)]
        if self.goal is not None:
            arrays.append((self.expr.dims, self.search.graph.shardings[self.goal]))
        yield (None,) * len(self._axes)
        for number in range(len(arrays)):
            on: dict[str, str] = {}
            for dims, sharding in (arrays[number], *arrays):
                on = {axis: dim for dim, axes in zip(dims, sharding.dims, strict=True) for axis in axes} | on
            yield tuple(on.get(axis) for axis in self._axes)
        wanted = frozenset[str]() if self.goal is None else self.search.graph.shardings[self.goal].unreduced
        for dim in self._dims if wanted else ():  # partial sums come of a summed dim that they shard
            if dim not in self.expr.dims:
                yield tuple(dim if axis in wanted else None for axis in self._axes)

    @property
    def _operands(self) -> list[tuple[tuple[str, ...], Table]]:
        return [(table.expr.dims, table) for table in self.tables]

    @property
    def _dims(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(dims for dims, _ in self._operands)))

    def _priced(self, placed: _Placed) -> tuple[int, int, Way] | None:
        """Up to the goal, up to the result, and the way; None if blocks do not divide or do not fit."""
        if placed not in self._known:
            self._known[placed] = self._price(placed)
        return self._known[placed]

    def _price(self, placed: _Placed) -> tuple[int, int, Way] | None:
        graph, axes_of = self.search.graph, self._axes_of(placed)
        total, at = 0, list[int]()
        for dims, table in self._operands:
            number = table.search.graph.number(graph.refined(Sharding(tuple(axes_of[dim] for dim in dims))))
            cost = table.price(number, None) if table.search.divides(number) else None
            if cost is None:
                return None
            at.append(number)
            total += cost
        summed = (axis for dim, axes in axes_of.items() if dim not in self.expr.dims for axis in axes)
        left = Sharding(tuple(axes_of[dim] for dim in self.expr.dims), frozenset(summed))
        way = Way(
            tuple(at), graph.number(graph.refined(left)), self._mesh.product(_placed_axes(axes_of, graph.refined))
        )
        total += self.price(way)
        after = (0, ()) if self.goal in (None, way.result) else self.search.closed(way.result, self.goal or 0)
        return None if after is None or not self.search.divides(way.result) else (total + after[0], total, way)

    def _axes_of(self, placed: _Placed) -> Mapping[str, Axes]:
        """Of each dim its axes, in an order that some array has where one has them."""
        order = list(dict.fromkeys([*self._listed(), *self._axes]))
        on = dict(zip(self._axes, placed, strict=True))
        return {dim: tuple(axis for axis in order if on.get(axis) == dim) for dim in self._dims}

    def _listed(self) -> Iterator[str]:
        if self.goal is not None:
            yield from self.search.graph.shardings[self.goal].sharded
        for _, table in self._operands:
            yield from chain.from_iterable(table.sharding(number).sharded for number in table.seeds)


def _placed_axes(axes_of: Mapping[str, Axes], wide: Callable[[Sharding], Sharding]) -> Axes:
    return wide(Sharding(tuple(axes_of.values()))).sharded


def quick_call(expr: Call, tables: tuple[Table, ...]) -> Iterator[tuple[int, ...]]:
    """Where the operands of a function may lie: as one of them does, the others alike; and sums are made first."""
    for master in tables:
        for number in master.seeds:
            if expr.over:
                yield (number,)
            axes_of = dict.fromkeys(expr.dims, Axes())
            for table, at in ((master, number), *((table, next(iter(table.seeds))) for table in tables)):
                for dim, axes in zip(table.expr.dims, table.sharding(at).dims, strict=True):
                    taken = set(chain.from_iterable(axes_of.values()))
                    if dim not in expr.over and not axes_of.get(dim) and not taken & set(axes):
                        axes_of[dim] = axes
            alike = (
                table.search.graph.number(Sharding(tuple(axes_of.get(dim, ()) for dim in table.expr.dims)))
                for table in tables
            )
            yield tuple(alike)


def quick_choices(pattern: Pattern, mesh: Mesh, pool: Axes) -> Iterator[Sharding]:
    """Where an array may lie that is left open: on no more axes than are written; or on all others, on one dim."""
    written = [axes or () for axes in pattern.dims]
    taken = pattern.unreduced.union(*written)
    others = tuple(axis for axis in pool if axis not in taken)
    yield Sharding(tuple(written), pattern.unreduced)
    for dim, axes in enumerate(pattern.dims):
        if axes is None and others:
            yield Sharding((*written[:dim], others, *written[dim + 1 :]), pattern.unreduced)


def fitted(pattern: Pattern, lies: Sharding) -> Sharding:
    """A sharding that matches a pattern, as near as can be to how a value lies."""
    taken = pattern.unreduced.union(*(axes or () for axes in pattern.dims))
    return Sharding(
        tuple(
            tuple(axis for axis in old if axis not in taken) if axes is None else axes
            for axes, old in zip(pattern.dims, lies.dims, strict=True)
        ),
        pattern.unreduced,
    )
