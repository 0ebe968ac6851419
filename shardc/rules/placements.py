"""How axes may be placed on dims: in every way; or, where these are too many to go through, with most axes at home.

An axis is at home on some dims; what stands elsewhere is a stray. On a dim stand first the axes at home there.

    data at home on B, model on F                                             of x[B, F] without a stray
    x[B, F]  x[B_data, F]  x[B, F_model]  x[B_data, F_model]
    x[B_model, F]  x[B_{data,model}, F]  x[B, F_data]  x[B, F_{model,data}]   and with one
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, pairwise, permutations
from math import comb, factorial
from typing import TypeAlias

from shardc.ir.sharding import Axes


def subsets(pool: Axes) -> Iterator[tuple[Axes, Axes]]:
    """Every choice of some axes, fewer first, with those that are left."""
    for count in range(len(pool) + 1):
        for chosen in combinations(pool, count):
            yield chosen, tuple(axis for axis in pool if axis not in chosen)


def placements(pool: Axes, rank: int) -> Iterator[tuple[Axes, ...]]:
    """Every way to shard `rank` dims over some of the axes, fewer axes first."""
    for chosen, _ in subsets(pool):
        yield from arrangements(chosen, rank)


def arrangements(axes: Axes, rank: int) -> Iterator[tuple[Axes, ...]]:
    """Every way to shard `rank` dims over exactly these axes."""
    for order in permutations(axes):
        for cuts in _cuts(len(axes), rank):
            yield tuple(order[start:end] for start, end in cuts)


def _cuts(count: int, rank: int) -> Iterator[list[tuple[int, int]]]:
    """Every way to cut a row of `count` axes into `rank` runs, empty ones included."""
    if rank == 0:
        if count == 0:
            yield []
        return
    for cuts in combinations_with_replacement(range(count + 1), rank - 1):
        yield [*pairwise((0, *cuts, count))]


def count_placements(axes: int, rank: int) -> int:
    """How many ways `placements` finds: 3, 11, 49, 261 for rank 2 and 1 to 4 axes."""
    if rank == 0:
        return 1
    return sum(comb(axes, k) * count_arrangements(k, rank) for k in range(axes + 1))


def count_arrangements(axes: int, rank: int) -> int:
    """How many ways `arrangements` finds: 2, 6, 24, 120 for rank 2 and 1 to 4 axes."""
    if rank == 0:
        return int(axes == 0)
    return factorial(axes) * comb(axes + rank - 1, rank - 1)


@dataclass(frozen=True, slots=True)
class Anywhere:
    """Any dim for any axis."""

    def placements(self, pool: Axes, rank: int) -> Iterator[tuple[Axes, ...]]:
        return placements(pool, rank)


@dataclass(frozen=True, slots=True)
class Homes:
    """For each of some dims the axes at home there, and whether strays may stand there; how many there may be."""

    dims: tuple[Axes, ...]
    is_open: tuple[bool, ...]
    strays: int

    def placements(self, pool: Axes, rank: int) -> Iterator[tuple[Axes, ...]]:
        assert rank == len(self.dims)
        return iter(_with_strays(self, pool))


Space: TypeAlias = Anywhere | Homes
ANYWHERE = Anywhere()


@lru_cache(maxsize=1024)
def _with_strays(homes: Homes, pool: Axes) -> tuple[tuple[Axes, ...], ...]:
    """Fewer axes first."""
    found: list[tuple[tuple[Axes, ...], int]] = [(((),) * len(homes.dims), homes.strays)]
    for axis in pool:
        found += [
            ((*dims[:place], (*dims[place], axis), *dims[place + 1 :]), left)
            for dims, room in found
            for place, at_home in enumerate(homes.dims)
            if axis in at_home or homes.is_open[place]
            if (left := room - (axis not in at_home)) >= 0
        ]
    ordered = [tuple(map(_in_order, dims, homes.dims)) for dims, _ in found]
    return tuple(sorted(ordered, key=lambda dims: sum(map(len, dims))))


def _in_order(axes: Axes, at_home: Axes) -> Axes:
    return tuple(sorted(axes, key=lambda axis: at_home.index(axis) if axis in at_home else len(at_home)))
