"""A few of the ways to do a product, where all of them would be too many.

Each axis stands on a dim or on none: first as the operands
have them, or as the result is wanted; then axis after axis stands where that is cheapest, as long as that helps. Of
a result that lies open the few cheapest shardings are kept.

    A[I_X, J] · B[J_X, K] → C[I, K]     from I_X, or from J_X; X is tried on I, J, K and nowhere
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding, ShardingNumber
from shardc.planner.budget import Meter, Spent
from shardc.planner.paths.graph import Graph
from shardc.planner.products.ways import Way

KEPT = 4  # shardings of a value that lies open

_Placed = tuple[str | None, ...]  # of each axis the dim that it stands on


@dataclass(frozen=True, slots=True)
class Movable:
    """An operand, or the result: its dims, where it may lie already or is wanted, and what it costs to move it.

    An operand from there to the number of a sharding, the result from that to where it is wanted; None if blocks do
    not divide or do not fit.
    """

    dims: tuple[str, ...]
    lies: tuple[Sharding, ...]
    graph: Graph
    price: Callable[[ShardingNumber], int | None]


def few_ways(
    operands: Sequence[Movable], result: Movable, price: Callable[[Way], int], meter: Meter
) -> list[tuple[Way, int]]:
    """A few ways and their prices up to the result; the first leads to the goal most cheaply.

    `price` is of the local product alone.
    """
    return _Placing(tuple(operands), result, price, meter).best()


@dataclass(slots=True)
class _Placing:
    operands: tuple[Movable, ...]
    result: Movable
    price: Callable[[Way], int]
    meter: Meter
    _known: dict[_Placed, tuple[int, int, Way] | None] = field(default_factory=dict)

    @property
    def _mesh(self) -> Mesh:
        return self.result.graph.mesh

    @property
    def _axes(self) -> Axes:
        """Those that move: of axes that move as one, the first."""
        return self.result.graph.coarse_pool

    def best(self) -> list[tuple[Way, int]]:
        starts = list(dict.fromkeys(self._starts()))
        for start in starts:
            self._priced(start)
        try:
            for start in sorted(starts, key=self._rank):
                self._improved(start)
        except Spent:
            pass
        found: dict[ShardingNumber, tuple[int, int, Way]] = {}
        for each in filter(None, self._known.values()):
            if each[2].result not in found or each[0] < found[each[2].result][0]:
                found[each[2].result] = each
        chosen = sorted(found.values(), key=lambda each: each[0])[: 1 if self.result.lies else KEPT]
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
        if placed not in self._known and self.meter.is_spent:
            raise Spent
        found = self._priced(placed)
        return found is None, found[0] if found is not None else 0

    def _starts(self) -> Iterator[_Placed]:
        """Nowhere; then as each operand lies, or the result is wanted, the others where they do not clash."""
        arrays = [(array.dims, sharding) for array in (*self.operands, self.result) for sharding in array.lies]
        yield (None,) * len(self._axes)
        for number in range(len(arrays)):
            on: dict[str, str] = {}
            for dims, sharding in (arrays[number], *arrays):
                on = {axis: dim for dim, axes in zip(dims, sharding.dims, strict=True) for axis in axes} | on
            yield tuple(on.get(axis) for axis in self._axes)
        wanted = frozenset[str]().union(*(sharding.unreduced for sharding in self.result.lies))
        for dim in self._dims if wanted else ():  # partial sums come of a summed dim that they shard
            if dim not in self.result.dims:
                yield tuple(dim if axis in wanted else None for axis in self._axes)

    @property
    def _dims(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chain.from_iterable(operand.dims for operand in self.operands)))

    def _priced(self, placed: _Placed) -> tuple[int, int, Way] | None:
        """Up to the goal, up to the result, and the way; None if blocks do not divide or do not fit."""
        if placed not in self._known:
            self._known[placed] = self._price(placed)
        return self._known[placed]

    def _price(self, placed: _Placed) -> tuple[int, int, Way] | None:
        graph, axes_of = self.result.graph, self._axes_of(placed)
        total, at = 0, list[ShardingNumber]()
        for operand in self.operands:
            number = operand.graph.number(graph.refined(Sharding(tuple(axes_of[dim] for dim in operand.dims))))
            cost = operand.price(number)
            if cost is None:
                return None
            at.append(number)
            total += cost
        summed = (axis for dim, axes in axes_of.items() if dim not in self.result.dims for axis in axes)
        left = Sharding(tuple(axes_of[dim] for dim in self.result.dims), frozenset(summed))
        way = Way(
            tuple(at), graph.number(graph.refined(left)), self._mesh.product(_placed_axes(axes_of, graph.refined))
        )
        total += self.price(way)
        after = self.result.price(way.result)
        return None if after is None else (total + after, total, way)

    def _axes_of(self, placed: _Placed) -> Mapping[str, Axes]:
        """Of each dim its axes, in an order that some array has where one has them."""
        order = list(dict.fromkeys([*self._listed(), *self._axes]))
        on = dict(zip(self._axes, placed, strict=True))
        return {dim: tuple(axis for axis in order if on.get(axis) == dim) for dim in self._dims}

    def _listed(self) -> Iterator[str]:
        for array in (self.result, *self.operands):
            yield from chain.from_iterable(sharding.sharded for sharding in array.lies)


def _placed_axes(axes_of: Mapping[str, Axes], refined: Callable[[Sharding], Sharding]) -> Axes:
    return refined(Sharding(tuple(axes_of.values()))).sharded
