"""What the moves and routes of a Graph cost by a model, for arrays of any size: all but the bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from shardc.cost.bounds import rate_bound
from shardc.cost.model import CostModel, Rate
from shardc.ir.collectives import Move, Slice, apply, wire_bytes
from shardc.ir.digits import Reshape, reshaped
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

    def __init__(self, graph: Graph, model: CostModel) -> None:
        self.graph = graph
        self.model = model
        self._edges: dict[int, CostedEdges] = {}
        self._alone: dict[Move, tuple[Move]] = {}  # one object of each, since there are as many edges as shardings
        self._routes: dict[tuple[int, int, tuple[int, ...] | None], CostedRoute | None] = {}
        self._bounds: dict[Remaining, Rate] = {}
        self._reductions: dict[tuple[int, int, tuple[int, ...]], tuple[CostedRoute, ...]] = {}

    def edges(self, number: int) -> CostedEdges:
        found = self._edges.get(number)
        if found is None:
            prices: dict[tuple[Rate, int, int], int] = {}
            edges = tuple(
                (
                    edge.target,
                    prices.setdefault((self.model.rate(edge.move), edge.wire, edge.parts), len(prices)),
                    self._alone.setdefault(edge.move, (edge.move,)),
                )
                for edge in self.graph.edges(number)
            )
            found = self._edges[number] = CostedEdges(tuple(prices), edges)
        return found

    def rate_bound(self, left: Remaining) -> Rate:
        """The least time of all that is left to do, of the bytes of an array."""
        found = self._bounds.get(left)
        if found is None:
            found = rate_bound(self.model, left.axes, left.moved, left.summed, left.block, left.kept)
            self._bounds[left] = found
        return found

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
        # Of each place: the dim it is of; its size, None for a rest; of a rest what lies above it.
        whole = [(dim, None, 1) for dim in range(len(sharding.dims))]
        places: list[tuple[int, int | None, int]] = [*whole]
        divisors, legs, blocks = [1] * len(places), list[Leg](), list[int]()
        for move in moves:
            before = mesh.product(sharding.sharded)
            if isinstance(move, Reshape):
                sharding = reshaped(move, sharding, mesh)
                places = [*whole] if move.joins else _places(move)
            else:
                if not isinstance(move, Slice):
                    parts = mesh.product(move.axes)
                    wire = wire_bytes(move, sharding, mesh, parts)  # linear, as of an Edge
                    legs.append(Leg(self.model.rate(move), before, wire, parts))
                sharding = apply(move, sharding, mesh)
            for (dim, size, above), count in zip(places, sharding.blocks(mesh), strict=True):
                if size is None:
                    divisors[dim] = math.lcm(divisors[dim], above * count)
                elif size % count:
                    return None
            blocks.append(mesh.product(sharding.sharded))
        return CostedRoute(moves, self.graph.number(sharding), tuple(legs), tuple(divisors), tuple(blocks))


def _places(split: Reshape) -> list[tuple[int, int | None, int]]:
    found: list[tuple[int, int | None, int]] = []
    for dim, sizes in enumerate(split.sizes):
        found += [(dim, size, 1) for size in sizes]
        found.append((dim, None, math.prod(sizes)))
    return found


@lru_cache(maxsize=64)
def edge_costs(graph: Graph, model: CostModel) -> EdgeCosts:
    return EdgeCosts(graph, model)
