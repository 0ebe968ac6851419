"""The shardings of arrays of one rank on one mesh, and the moves between them.

What depends on mesh and rank alone is worked out once, here, as far as searches have asked; shardings are
numbered, so that a search handles integers; and so is what they cost by a model, for arrays of any size: all but the
bytes, which `search` adds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

from shardc.cost.bounds import rate_bound
from shardc.cost.legs import Leg, block_cut, legs_along
from shardc.cost.model import CostModel
from shardc.cost.rate import Rate
from shardc.ir.bundle import Bundle
from shardc.ir.collectives import Move, ReduceScatter, Slice
from shardc.ir.exchange import kept_of_dim, tails
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.sharding import Axes, Sharding, ShardingNumber
from shardc.lowering.scatters import LocalBlock
from shardc.rules.digit_products import reductions
from shardc.rules.moves import MAX_ARRANGEMENTS, masks, moves, named_scatters, scatter_onto
from shardc.rules.placements import count_arrangements
from shardc.rules.routes import Route, depends_on_shape, needs_digits, route


@dataclass(frozen=True, slots=True)
class Edge:
    """A move to sharding number `target`; it brings `wire` · L / `parts` bytes for L local bytes."""

    target: ShardingNumber
    move: Move
    wire: int
    parts: int


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left to do between two shardings, by moves over `axes`.

    Some device needs and does not hold 1/block - 1/kept of the array's bytes, or 1/block (`ir.exchange.needed`);
    partial sums over the axes `summed` become sums; and each axis of `moved` is part of some move that is no Slice,
    since it stands on the first sharding alone, or elsewhere on the second: what is major to it on its dim counts as
    its place.
    """

    axes: Axes
    block: int
    kept: int | None
    summed: Axes
    moved: Axes


class _Met(NamedTuple):
    """One dim before and after."""

    kept: int  # of `ir.exchange.kept_of_dim`
    left: int  # the axes that leave, or come to stand elsewhere, as bits in the order of the mesh


class Graph:
    """Shardings of rank `rank` over the axes of `pool`, numbered as they are met; `is_typed` as in `rules.moves`."""

    def __init__(self, mesh: Mesh, rank: int, pool: Axes, together: Axes = (), is_typed: bool = False) -> None:
        self.mesh = mesh
        self.rank = rank
        self.pool = pool
        self.is_typed = is_typed
        self._bundle = Bundle(mesh, together) if together else None
        # Whether moves leave out exchanges of pieces.
        self.is_large = count_arrangements(len(self.coarse_pool), rank) > MAX_ARRANGEMENTS
        self.shardings: list[Sharding] = []
        self.blocks: list[tuple[int, ...]] = []
        self.counts: list[int] = []  # of blocks in all
        self.flat = set[ShardingNumber]()  # with no two axes on a dim: between two of these nothing needs digits
        self._numbers: dict[tuple[tuple[Axes, ...], frozenset[str]], ShardingNumber] = {}
        self._in_digits: dict[tuple[ShardingNumber, ShardingNumber], bool] = {}
        self._remaining: dict[tuple[ShardingNumber, ShardingNumber], int] = {}
        self._met: dict[tuple[Axes, Axes], _Met] = {}
        self._outside: dict[ShardingNumber, frozenset[str]] = {}  # the axes of a sharding that are not of the pool
        self._numbered: dict[tuple[int, int, int, frozenset[str], frozenset[str]], int] = {}
        self.remainders: list[Remaining] = []  # far fewer than there are pairs of shardings

    @property
    def coarse_pool(self) -> Axes:
        """The pool; of axes that move as one, the first."""
        return self.pool if self._bundle is None else self._bundle.coarse_axes(self.pool)

    def refined(self, sharding: Sharding) -> Sharding:
        """A sharding over the coarse pool as one over the pool."""
        return sharding if self._bundle is None else self._bundle.refined(sharding)

    def number(self, sharding: Sharding) -> ShardingNumber:
        return self._number(sharding.dims, sharding.unreduced)

    def _number(self, dims: tuple[Axes, ...], unreduced: frozenset[str]) -> ShardingNumber:
        found = self._numbers.get((dims, unreduced))
        if found is None:
            found = self._numbers[dims, unreduced] = ShardingNumber(len(self.shardings))
            self.shardings.append(Sharding(dims, unreduced))
            self.blocks.append(self.shardings[-1].blocks(self.mesh))
            self.counts.append(math.prod(self.blocks[-1]))
            if all(len(axes) < 2 for axes in dims):
                self.flat.add(found)
        return found

    def remaining(self, number: ShardingNumber, goal: ShardingNumber) -> int:
        """What every path from one sharding to another has to do: its place in `remainders`."""
        found = self._remaining.get((number, goal))
        if found is None:
            found = self._remaining[number, goal] = self._compared(number, goal)
        return found

    def _compared(self, number: ShardingNumber, goal: ShardingNumber) -> int:
        before, after = self.shardings[number], self.shardings[goal]
        kept, left = 1, 0
        for pair in zip(before.dims, after.dims, strict=True):
            met = self._met.get(pair)
            if met is None:
                met = self._met[pair] = self._meet(*pair)
            kept *= met.kept
            left |= met.left
        summed = before.unreduced - after.unreduced
        block = self.counts[goal]
        others = self._outside.get(number)
        if others is None:
            others = self._outside[number] = before.used.difference(self.pool)
        key = (block, kept, left, summed, others)
        found = self._numbered.get(key)
        if found is None:
            found = self._numbered[key] = len(self.remainders)
            self.remainders.append(self._remainder(*key))
        return found

    def _meet(self, old: Axes, new: Axes) -> _Met:
        (tail,) = tails((old,), (new,), self.mesh)
        left = sum(1 << self.mesh.names.index(axis) for axis in tail.old)
        return _Met(kept_of_dim(old, new, self.mesh), left)

    def _remainder(self, block: int, kept: int, left: int, summed: frozenset[str], others: frozenset[str]) -> Remaining:
        mesh = self.mesh
        summing = mesh.nontrivial(mesh.ordered(summed))
        moved = (axis for place, axis in enumerate(mesh.names) if left >> place & 1)
        axes = mesh.ordered(others.union(self.pool))
        return Remaining(axes, block, None if summing or not kept else kept, summing, mesh.ordered((*summing, *moved)))

    def needs_digits(self, number: ShardingNumber, goal: ShardingNumber) -> bool:
        """What `rules.routes.needs_digits` says of two shardings."""
        found = self._in_digits.get((number, goal))
        if found is None:
            source, target = self.shardings[number], self.shardings[goal]
            found = self._in_digits[number, goal] = needs_digits(source, target, self.mesh)
        return found

    def edges(self, number: ShardingNumber) -> Iterator[Edge]:
        """The moves from one sharding."""
        before = self.shardings[number]
        return (self._edge(move, before) for move in self._moves(before))

    def _moves(self, before: Sharding) -> Iterator[Move]:
        bundle = self._bundle
        coarse = None if bundle is None else bundle.coarsened(before)
        if bundle is None or coarse is None:
            return moves(before, self.mesh, self.pool, self.is_typed)
        return map(bundle.move, moves(coarse, bundle.coarse, self.coarse_pool, self.is_typed))

    def masks(self, number: ShardingNumber) -> Iterator[Edge]:
        """To partial sums over one more axis, of which one copy is kept."""
        before, bundle = self.shardings[number], self._bundle
        coarse = before if bundle is None else bundle.coarsened(before)
        found = () if coarse is None else masks(coarse, self.coarse_pool)
        return (self._edge(move if bundle is None else bundle.move(move), before) for move in found)

    def named_edges(self, number: ShardingNumber, kind: type[Move], over: Axes | None) -> tuple[Edge, ...]:
        """The moves of one kind, `over` some axes or any; a Slice of several axes counts as one."""
        if kind is ReduceScatter and self._bundle is None:
            before = self.shardings[number]
            return tuple(self._edge(move, before) for move in named_scatters(before, self.mesh, over))
        if kind is not Slice:
            facts = ((edge, edge.move.facts) for edge in self.edges(number))
            return tuple(edge for edge, has in facts if has.is_named and has.name == kind.facts.name)
        before = self.shardings[number]
        free = tuple(axis for axis in self.mesh.names if axis not in before.used)
        chosen = (order for count in range(1, len(free) + 1) for order in permutations(free, count))
        return tuple(self._edge(Slice(axes, dim), before) for axes in chosen for dim in range(self.rank))

    def scatter_onto(self, number: ShardingNumber, goal: ShardingNumber) -> Edge | None:
        """Partial sums to where the goal has their axes, if that is no edge already."""
        before = self.shardings[number]
        move = scatter_onto(before, self.shardings[goal]) if before.unreduced else None
        return None if move is None else self._edge(move, before)

    def _edge(self, move: Move, before: Sharding) -> Edge:
        parts = self.mesh.product(move.axes)
        # From the rules, so that no move is to be checked. Wire bytes are linear: for L = parts, the numerator.
        return Edge(self.number(move.leaves(before)), move, move.wire_bytes(before, self.mesh, parts), parts)


@lru_cache(maxsize=64)
def sharding_graph(mesh: Mesh, rank: int, pool: Axes, together: Axes = (), is_typed: bool = False) -> Graph:
    return Graph(mesh, rank, pool, together, is_typed)


@dataclass(frozen=True, slots=True)
class CostedEdges:
    """The moves from one sharding: the prices that occur, as (rate, wire, parts), and of each move which is its."""

    prices: tuple[tuple[Rate, int, int], ...]
    moves: tuple[tuple[ShardingNumber, int, tuple[Move]], ...]  # target, number of the price, the move


@dataclass(frozen=True, slots=True)
class CostedRoute:
    """A route from one sharding to another, for arrays whose dims are multiples of `divisors`.

    `blocks` are into how many blocks the array is cut after each step.
    """

    route: Route
    end: ShardingNumber
    legs: tuple[Leg, ...]
    divisors: tuple[int, ...]
    blocks: tuple[int, ...]


class EdgeCosts:
    """The moves and routes asked for, each with its rate: of `A[I_X, J_Y]` on X=4, Y=4 22 moves, at 7 prices."""

    def __init__(self, graph: Graph, model: CostModel, array: LocalBlock | None) -> None:
        self.graph = graph
        self.model = model
        self.array = array  # the whole of it, where the form of a scatter depends on its shares
        self._edges: dict[ShardingNumber, CostedEdges] = {}
        # One object of each move, since there are as many edges as shardings; and its rate, if that is the same from
        # all of these.
        self._moves: dict[Move, tuple[tuple[Move], Rate | None]] = {}
        self._scatters: dict[tuple[Move, tuple[int, ...]], Rate] = {}  # by the counts of blocks before
        self._routes: dict[tuple[ShardingNumber, ShardingNumber, tuple[int, ...] | None], CostedRoute | None] = {}
        self._bounds: dict[int, Rate] = {}  # by the place among the graph's remainders
        self._reductions: dict[tuple[ShardingNumber, ShardingNumber, tuple[int, ...]], tuple[CostedRoute, ...]] = {}

    def edges(self, number: ShardingNumber) -> CostedEdges:
        found = self._edges.get(number)
        if found is None:
            found = self._edges[number] = self._of_large(number) if self.array is None else self._of_array(number)
        return found

    def _of_large(self, number: ShardingNumber) -> CostedEdges:
        prices, before = dict[tuple[Rate, int, int], int](), self.graph.shardings[number]
        edges = list[tuple[ShardingNumber, int, tuple[Move]]]()
        for edge in self.graph.edges(number):
            alone, rate = self._moves.get(edge.move) or self._met(edge.move, before)
            rate = rate or self.model.emitted(edge.move, None, before)
            edges.append((edge.target, prices.setdefault((rate, edge.wire, edge.parts), len(prices)), alone))
        return CostedEdges(tuple(prices), tuple(edges))

    def _met(self, move: Move, before: Sharding) -> tuple[tuple[Move], Rate | None]:
        """The first of equal moves. Which whole blocks a permute sends where is told by the sharding before it."""
        is_told = move.facts.kind is Kind.PERMUTE
        rate = None if is_told else self.model.emitted(move, None, before)
        found = self._moves[move] = (move,), rate
        return found

    def _of_array(self, number: ShardingNumber) -> CostedEdges:
        """As of a large one, but for scatters, which lead on from partial sums alone."""
        known = edge_costs(self.graph, self.model, None).edges(number)
        if not self.graph.shardings[number].unreduced:
            return known
        edges = list[tuple[ShardingNumber, int, tuple[Move]]]()
        prices = {price: place for place, price in enumerate(known.prices)}
        for target, place, alone in known.moves:
            if alone[0].facts.kind is Kind.SCATTER:
                _, wire, parts = known.prices[place]
                place = prices.setdefault((self._scattered(number, alone[0]), wire, parts), len(prices))
            edges.append((target, place, alone))
        return CostedEdges(tuple(prices), tuple(edges))

    def _scattered(self, number: ShardingNumber, move: Move) -> Rate:
        """The rate of a scatter, which is told by the block that it shares out."""
        key = move, self.graph.blocks[number]
        found = self._scatters.get(key)
        if found is None:
            found = self._scatters[key] = self.rate(number, move)
        return found

    def rate(self, number: ShardingNumber, move: Move) -> Rate:
        """Of what is emitted for a move of the array from one sharding."""
        block = self.array and block_cut(self.array, self.graph.blocks[number])
        return self.model.emitted(move, block, self.graph.shardings[number])

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

    def route(self, number: ShardingNumber, goal: ShardingNumber, shape: tuple[int, ...]) -> CostedRoute | None:
        """The route of `rules.routes` for an array of this shape."""
        before, after = self.graph.shardings[number], self.graph.shardings[goal]
        key: tuple[ShardingNumber, ShardingNumber, tuple[int, ...] | None] = (number, goal, None)
        if key not in self._routes:
            if depends_on_shape(before, after, self.graph.mesh):
                key = (number, goal, shape)
            if key not in self._routes:
                moves = route(before, after, shape, self.graph.mesh)
                self._routes[key] = None if moves is None else self.along(number, moves)
        return self._routes[key]

    def reductions(self, left: ShardingNumber, goal: ShardingNumber, rests: Sequence[int]) -> tuple[CostedRoute, ...]:
        """What `rules.digit_products.reductions` lists."""
        key = (left, goal, tuple(rests))
        if key not in self._reductions:
            before, after = self.graph.shardings[left], self.graph.shardings[goal]
            every = (self.along(left, moves) for moves in reductions(before, after, rests, self.graph.mesh))
            self._reductions[key] = tuple(found for found in every if found is not None)
        return self._reductions[key]

    def along(self, number: ShardingNumber, moves: Route) -> CostedRoute | None:
        """A route with the rates of its moves; None if some digit is cut into more blocks than it has elements."""
        found = legs_along(self.model, self.graph.shardings[number], moves, self.array)
        if found is None:
            return None
        return CostedRoute(moves, self.graph.number(found.end), found.legs, found.divisors, found.blocks)


@lru_cache(maxsize=256)
def edge_costs(graph: Graph, model: CostModel, array: LocalBlock | None) -> EdgeCosts:
    """What searches over a graph have asked for; `array` where prices depend on more than its bytes."""
    return EdgeCosts(graph, model, array)
