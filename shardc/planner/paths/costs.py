"""What the moves and routes of a Graph cost by a model, for arrays of any size: all but the bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from shardc.cost.bounds import rate_bound
from shardc.cost.model import CostModel, Rate
from shardc.ir.collectives import Move, apply
from shardc.ir.digits import Reshape, reshaped
from shardc.ir.facts import Kind
from shardc.lowering.scatters import LocalBlock
from shardc.planner.paths.graph import Graph, Remaining
from shardc.rules.digit_products import reductions
from shardc.rules.routes import Route, depends_on_shape, route


@dataclass(frozen=True, slots=True)
class CostedEdges:
    """The moves from one sharding: the prices that occur, as (rate, wire, parts), and of each move which is its."""

    prices: tuple[tuple[Rate, int, int], ...]
    moves: tuple[tuple[int, int, tuple[Move]], ...]  # target, number of the price, the move


class Leg(NamedTuple):
    """A move that is no Slice: from blocks of L = bytes / `blocks`, bringing `wire` · L / `parts`."""

    rate: Rate
    blocks: int
    wire: int
    parts: int


@dataclass(frozen=True, slots=True)
class CostedRoute:
    """A route from one sharding to another, for arrays whose dims are multiples of `divisors`.

    `blocks` are into how many blocks the array is cut after each step.
    """

    route: Route
    end: int
    legs: tuple[Leg, ...]
    divisors: tuple[int, ...]
    blocks: tuple[int, ...]


class EdgeCosts:
    """The moves and routes that searches have asked for, each with its rate.

    >>> # of `A[I_X, J_Y]` on X=4, Y=4: 22 moves, 7 prices
    """

    def __init__(self, graph: Graph, model: CostModel, array: LocalBlock | None) -> None:
        self.graph = graph
        self.model = model
        self.array = array  # the whole of it, where the form of a scatter depends on its shares
        self._edges: dict[int, CostedEdges] = {}
        self._alone: dict[Move, tuple[Move]] = {}  # one object of each, since there are as many edges as shardings
        self._routes: dict[tuple[int, int, tuple[int, ...] | None], CostedRoute | None] = {}
        self._bounds: dict[int, Rate] = {}  # by the place among the graph's remainders
        self._reductions: dict[tuple[int, int, tuple[int, ...]], tuple[CostedRoute, ...]] = {}

    def edges(self, number: int) -> CostedEdges:
        found = self._edges.get(number)
        if found is None:
            found = self._edges[number] = self._of_large(number) if self.array is None else self._of_array(number)
        return found

    def _of_large(self, number: int) -> CostedEdges:
        prices: dict[tuple[Rate, int, int], int] = {}
        edges = tuple(
            (
                edge.target,
                prices.setdefault((self.model.emitted(edge.move, None), edge.wire, edge.parts), len(prices)),
                self._alone.setdefault(edge.move, (edge.move,)),
            )
            for edge in self.graph.edges(number)
        )
        return CostedEdges(tuple(prices), edges)

    def _of_array(self, number: int) -> CostedEdges:
        """As of a large one, but for scatters."""
        known = edge_costs(self.graph, self.model, None).edges(number)
        edges = list[tuple[int, int, tuple[Move]]]()
        prices = {price: place for place, price in enumerate(known.prices)}
        for target, place, moves in known.moves:
            if moves[0].facts.kind is Kind.SCATTER:
                _, wire, parts = known.prices[place]
                place = prices.setdefault((self.rate(number, moves[0]), wire, parts), len(prices))
            edges.append((target, place, moves))
        return CostedEdges(tuple(prices), tuple(edges))

    def rate(self, number: int, move: Move) -> Rate:
        """Of what is emitted for a move of the array from one sharding."""
        return self.model.emitted(move, self._block(self.graph.blocks[number]))

    def _block(self, counts: Sequence[int], places: Sequence[_Place] | None = None) -> LocalBlock | None:
        """A device's block, in digits at these places."""
        if self.array is None:
            return None
        shape = self.array.shape if places is None else tuple(_size(place, self.array.shape) for place in places)
        return LocalBlock(tuple(size // count for size, count in zip(shape, counts, strict=True)), self.array.dtype)

    def bound_at(self, place: int) -> Rate:
        """The least time of what one of the graph's remainders leaves to do."""
        found = self._bounds.get(place)
        if found is None:
            found = self._bounds[place] = self.rate_bound(self.graph.remainders[place])
        return found

    def rate_bound(self, left: Remaining) -> Rate:
        """The least time of all that is left to do, of the bytes of an array."""
        exchanged = self.array is not None
        return rate_bound(self.model, left.axes, left.moved, left.summed, left.block, left.kept, exchanged)

    def route(self, number: int, goal: int, shape: tuple[int, ...]) -> CostedRoute | None:
        """The route of `rules.routes` for an array of this shape."""
        before, after = self.graph.shardings[number], self.graph.shardings[goal]
        key: tuple[int, int, tuple[int, ...] | None] = (number, goal, None)
        if key not in self._routes:
            if depends_on_shape(before, after, self.graph.mesh):
                key = (number, goal, shape)
            if key not in self._routes:
                moves = route(before, after, shape, self.graph.mesh)
                self._routes[key] = None if moves is None else self.along(number, moves)
        return self._routes[key]

    def reductions(self, left: int, goal: int, rests: Sequence[int]) -> tuple[CostedRoute, ...]:
        """What `rules.digit_products.reductions` lists."""
        key = (left, goal, tuple(rests))
        if key not in self._reductions:
            before, after = self.graph.shardings[left], self.graph.shardings[goal]
            every = (self.along(left, moves) for moves in reductions(before, after, rests, self.graph.mesh))
            self._reductions[key] = tuple(found for found in every if found is not None)
        return self._reductions[key]

    def along(self, number: int, moves: Route) -> CostedRoute | None:
        """A route with the rates of its moves; None if some digit is cut into more blocks than it has elements."""
        mesh, sharding = self.graph.mesh, self.graph.shardings[number]
        whole = [_Place(dim, None, 1) for dim in range(len(sharding.dims))]
        places = [*whole]
        divisors, legs, blocks = [1] * len(places), list[Leg](), list[int]()
        for move in moves:
            before = mesh.product(sharding.sharded)
            if isinstance(move, Reshape):
                sharding = reshaped(move, sharding, mesh)
                places = [*whole] if move.joins else _places(move)
            else:
                if move.facts.communicates:
                    parts = mesh.product(move.axes)
                    wire = move.wire_bytes(sharding, mesh, parts)  # linear, as of an Edge
                    rate = self.model.emitted(move, self._block(sharding.blocks(mesh), places))
                    legs.append(Leg(rate, before, wire, parts))
                sharding = apply(move, sharding, mesh)
            for (dim, size, above), count in zip(places, sharding.blocks(mesh), strict=True):
                if size is None:
                    divisors[dim] = math.lcm(divisors[dim], above * count)
                elif size % count:
                    return None
            blocks.append(mesh.product(sharding.sharded))
        return CostedRoute(moves, self.graph.number(sharding), tuple(legs), tuple(divisors), tuple(blocks))


class _Place(NamedTuple):
    """Of an array in digits: the dim that a digit is of; its size, None for a rest; of a rest what lies above it."""

    dim: int
    size: int | None
    above: int


def _size(place: _Place, shape: Sequence[int]) -> int:
    return shape[place.dim] // place.above if place.size is None else place.size


def _places(split: Reshape) -> list[_Place]:
    found: list[_Place] = []
    for dim, sizes in enumerate(split.sizes):
        found += [_Place(dim, size, 1) for size in sizes]
        found.append(_Place(dim, None, math.prod(sizes)))
    return found


@lru_cache(maxsize=256)
def edge_costs(graph: Graph, model: CostModel, array: LocalBlock | None) -> EdgeCosts:
    """What searches over a graph have asked for; `array` where prices depend on more than its bytes."""
    return EdgeCosts(graph, model, array)
