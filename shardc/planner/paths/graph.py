"""The shardings of arrays of one rank on one mesh, and the moves between them.

What depends on mesh and rank alone is worked out once, here, as far as searches have asked; shardings are
numbered, so that a search handles integers. `search` adds what depends on the array: sizes and bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

from shardc.ir.bundle import Bundle
from shardc.ir.collectives import Move, Slice
from shardc.ir.exchange import kept_of_dim, tails
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding
from shardc.rules.moves import MAX_ARRANGEMENTS, moves
from shardc.rules.products import count_arrangements
from shardc.rules.routes import needs_digits


@dataclass(frozen=True, slots=True)
class Edge:
    """A move to sharding number `target`; it brings `wire` · L / `parts` bytes for L local bytes."""

    target: int
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
    """Shardings of rank `rank` over the axes of `pool`, numbered as they are met."""

    def __init__(self, mesh: Mesh, rank: int, pool: Axes, together: Axes = ()) -> None:
        self.mesh = mesh
        self.rank = rank
        self.pool = pool
        self._bundle = Bundle(mesh, together) if together else None
        # Whether moves leave out exchanges of pieces.
        self.is_large = count_arrangements(len(self.coarse_pool), rank) > MAX_ARRANGEMENTS
        self.shardings: list[Sharding] = []
        self.blocks: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[tuple[Axes, ...], frozenset[str]], int] = {}
        self._in_digits: dict[tuple[int, int], bool] = {}
        self._remaining: dict[tuple[int, int], int] = {}
        self._met: dict[tuple[Axes, Axes], _Met] = {}
        self._numbered: dict[tuple[int, int, int, frozenset[str], frozenset[str]], int] = {}
        self.remainders: list[Remaining] = []  # far fewer than there are pairs of shardings

    @property
    def coarse_pool(self) -> Axes:
        """The pool; of axes that move as one, the first."""
        return self.pool if self._bundle is None else self._bundle.coarse_axes(self.pool)

    def refined(self, sharding: Sharding) -> Sharding:
        """A sharding over the coarse pool as one over the pool."""
        return sharding if self._bundle is None else self._bundle.refined(sharding)

    def number(self, sharding: Sharding) -> int:
        return self._number(sharding.dims, sharding.unreduced)

    def _number(self, dims: tuple[Axes, ...], unreduced: frozenset[str]) -> int:
        found = self._numbers.get((dims, unreduced))
        if found is None:
            found = self._numbers[dims, unreduced] = len(self.shardings)
            self.shardings.append(Sharding(dims, unreduced))
            self.blocks.append(self.shardings[-1].blocks(self.mesh))
        return found

    def remaining(self, number: int, goal: int) -> int:
        """What every path from one sharding to another has to do: its place in `remainders`."""
        found = self._remaining.get((number, goal))
        if found is None:
            found = self._remaining[number, goal] = self._compared(number, goal)
        return found

    def _compared(self, number: int, goal: int) -> int:
        before, after = self.shardings[number], self.shardings[goal]
        kept, left = 1, 0
        for pair in zip(before.dims, after.dims, strict=True):
            met = self._met.get(pair)
            if met is None:
                met = self._met[pair] = self._meet(*pair)
            kept *= met.kept
            left |= met.left
        summed = before.unreduced - after.unreduced
        block = math.prod(self.blocks[goal])
        key = (block, kept, left, summed, before.used.difference(self.pool))
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
        wide = tuple(axis for axis in mesh.ordered(summed) if mesh.size(axis) > 1)
        moved = (axis for place, axis in enumerate(mesh.names) if left >> place & 1)
        axes = mesh.ordered(others.union(self.pool))
        return Remaining(axes, block, None if wide or not kept else kept, wide, mesh.ordered((*wide, *moved)))

    def needs_digits(self, number: int, goal: int) -> bool:
        """What `rules.routes.needs_digits` says of two shardings."""
        found = self._in_digits.get((number, goal))
        if found is None:
            source, target = self.shardings[number], self.shardings[goal]
            found = self._in_digits[number, goal] = needs_digits(source, target, self.mesh)
        return found

    def edges(self, number: int) -> Iterator[Edge]:
        """The moves from one sharding."""
        before = self.shardings[number]
        return (self._edge(move, before) for move in self._moves(before))

    def _moves(self, before: Sharding) -> Iterator[Move]:
        bundle = self._bundle
        coarse = None if bundle is None else bundle.coarsened(before)
        if bundle is None or coarse is None:
            return moves(before, self.mesh, self.pool)
        return map(bundle.move, moves(coarse, bundle.coarse, self.coarse_pool))

    def named_edges(self, number: int, kind: type[Move]) -> tuple[Edge, ...]:
        """The moves of one kind, whatever axes they take; a Slice of several axes counts as one."""
        if kind is not Slice:
            facts = ((edge, edge.move.facts) for edge in self.edges(number))
            return tuple(edge for edge, has in facts if has.is_named and has.name == kind.facts.name)
        before = self.shardings[number]
        free = tuple(axis for axis in self.mesh.names if axis not in before.used)
        chosen = (order for count in range(1, len(free) + 1) for order in permutations(free, count))
        return tuple(self._edge(Slice(axes, dim), before) for axes in chosen for dim in range(self.rank))

    def _edge(self, move: Move, before: Sharding) -> Edge:
        parts = self.mesh.product(move.axes)
        # From the rules, so that no move is to be checked. Wire bytes are linear: for L = parts, the numerator.
        return Edge(self.number(move.leaves(before)), move, move.wire_bytes(before, self.mesh, parts), parts)


@lru_cache(maxsize=64)
def sharding_graph(mesh: Mesh, rank: int, pool: Axes, together: Axes = ()) -> Graph:
    return Graph(mesh, rank, pool, together)
