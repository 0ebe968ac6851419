"""The shardings of arrays of one rank on one mesh, and the moves between them.

What depends on mesh and rank alone is worked out once, here, as far as searches have asked; shardings are
numbered, so that a search handles integers. A search adds what depends on the array: sizes and bytes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

from shardc.cost.model import CostModel
from shardc.errors import ShardcError
from shardc.ir.collectives import AllGather, JointGather, Move, Slice, apply, wire_bytes
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.objective import Objective
from shardc.rules.moves import moves

MAX_STATES = 100_000


@dataclass(frozen=True, slots=True)
class Edge:
    """A move to sharding number `target`; it brings `wire` · L / `parts` bytes for L local bytes."""

    target: int
    move: Move
    wire: int
    parts: int


class Space:
    """Shardings of rank `rank` over the axes of `pool`, numbered as they are met."""

    def __init__(self, mesh: Mesh, rank: int, pool: Axes) -> None:
        self.mesh = mesh
        self.rank = rank
        self.pool = pool
        self.shardings: list[Sharding] = []
        self.blocks: list[tuple[int, ...]] = []
        self._numbers: dict[Sharding, int] = {}
        self._edges: dict[int, tuple[Edge, ...]] = {}

    def number(self, sharding: Sharding) -> int:
        found = self._numbers.get(sharding)
        if found is None:
            found = self._numbers[sharding] = len(self.shardings)
            self.shardings.append(sharding)
            self.blocks.append(sharding.blocks(self.mesh))
        return found

    def edges(self, number: int) -> tuple[Edge, ...]:
        found = self._edges.get(number)
        if found is None:
            before = self.shardings[number]
            found = self._edges[number] = tuple(
                self._edge(move, before) for move in moves(before, self.mesh, self.pool)
            )
        return found

    def named_edges(self, number: int, kind: type[Move]) -> tuple[Edge, ...]:
        """The moves of one kind, whatever axes they take; a Slice of several axes counts as one."""
        if kind is not Slice:
            kinds = (AllGather, JointGather) if kind is AllGather else kind
            return tuple(edge for edge in self.edges(number) if isinstance(edge.move, kinds))
        before = self.shardings[number]
        free = tuple(axis for axis in self.mesh.names if axis not in before.used)
        chosen = (order for count in range(1, len(free) + 1) for order in permutations(free, count))
        return tuple(self._edge(Slice(axes, dim), before) for axes in chosen for dim in range(self.rank))

    def _edge(self, move: Move, before: Sharding) -> Edge:
        parts = self.mesh.product(move.axes)
        # wire_bytes is linear: for L = parts it is the numerator over `parts`.
        wire = wire_bytes(move, before, self.mesh, parts)
        return Edge(self.number(apply(move, before, self.mesh)), move, wire, parts)


@lru_cache(maxsize=64)
def space(mesh: Mesh, rank: int, pool: Axes) -> Space:
    return Space(mesh, rank, pool)


@dataclass(frozen=True, slots=True)
class Paths:
    """Cheapest prices from the seeds to every sharding reached, and the last move to each (None at a seed)."""

    price: dict[int, int]
    last: dict[int, tuple[int, Move] | None]

    def moves_to(self, number: int) -> tuple[int, list[Move]]:
        """The seed from which a sharding is reached, and the moves, in order."""
        found: list[Move] = []
        step = self.last[number]
        while step is not None:
            number, move = step
            found.append(move)
            step = self.last[number]
        return number, found[::-1]


class Search:
    """Searches over one array: a space, its global shape and bytes, and how moves are priced."""

    def __init__(
        self,
        space: Space,
        shape: tuple[int, ...],
        itemsize: int,
        model: CostModel,
        objective: Objective,
        cap: int | None = None,
    ):
        self.space = space
        self.shape = shape
        self.model = model
        self.objective = objective
        self._cap = cap
        self.given: set[int] = set()  # where the array lies before the program begins
        self._bytes = itemsize
        for size in shape:
            self._bytes *= size
        self._priced: dict[int, list[tuple[int, int, Move]]] = {}
        self._from: dict[int, Paths] = {}

    def divides(self, number: int) -> bool:
        """Whether the array can lie so: its dims divide, and a block is no larger than the cap."""
        if self._cap is not None and self.local_bytes(number) > self._cap:
            return False
        return all(size % parts == 0 for size, parts in zip(self.shape, self.space.blocks[number], strict=True))

    def local_bytes(self, number: int) -> int:
        parts = 1
        for count in self.space.blocks[number]:
            parts *= count
        return self._bytes // parts

    def paths(self, seeds: dict[int, int], goal: int | None = None) -> Paths:
        """Dijkstra's algorithm from priced seeds; up to `goal` if there is one.

        Equal prices are broken by the order of discovery, which is that of seeds, dims and mesh axes.
        """
        price = dict(seeds)
        last: dict[int, tuple[int, Move] | None] = dict.fromkeys(seeds)
        queue = [(cost, place, number) for place, (number, cost) in enumerate(seeds.items())]
        heapq.heapify(queue)
        count = len(queue)
        settled: set[int] = set()
        while queue:
            cost, _, number = heapq.heappop(queue)
            if number in settled:
                continue
            settled.add(number)
            if number == goal:
                break
            for target, added, move in self._steps(number):
                known = price.get(target)
                if known is None or cost + added < known:
                    price[target] = cost + added
                    last[target] = (number, move)
                    count += 1
                    heapq.heappush(queue, (cost + added, count, target))
        return Paths({number: price[number] for number in price if number in settled}, last)

    def paths_from(self, number: int) -> Paths:
        """The paths from one sharding at price 0; searched once."""
        found = self._from.get(number)
        if found is None:
            found = self._from[number] = self.paths({number: 0})
        return found

    def price(self, number: int, edge: Edge) -> int:
        size = self.local_bytes(number)
        return self.objective.price(self.model.rate(edge.move).time_ps(size), edge.wire * size // edge.parts)

    def _fits(self, number: int, target: int) -> bool:
        """Whether the blocks before and after a move are within the cap together; what is given is there anyway."""
        if self._cap is None:
            return True
        before = 0 if number in self.given else self.local_bytes(number)
        return before + self.local_bytes(target) <= self._cap

    def _steps(self, number: int) -> list[tuple[int, int, Move]]:
        found = self._priced.get(number)
        if found is None:
            if len(self.space.shardings) > MAX_STATES:
                raise over_budget(self.space)
            found = self._priced[number] = [
                (edge.target, self.price(number, edge), edge.move)
                for edge in self.space.edges(number)
                if self.divides(edge.target) and self._fits(number, edge.target)
            ]
        return found


def over_budget(space: Space) -> ShardcError:
    return ShardcError(
        "SHC408",
        f"more than {MAX_STATES} shardings of rank {space.rank} over {len(space.pool)} mesh axes to search",
        help="merge mesh axes, or split the statement so that fewer dims meet",
    )
