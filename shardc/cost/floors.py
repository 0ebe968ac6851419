"""What no move gets below, so that a search need not look at what cannot be best.

A gather over many axes brings a byte in the least time, over the links of all; but it brings many: over n devices
n - 1 blocks, and no block is smaller than a device's share where all axes shard the array. An exchange is slower for a
byte and can bring few. Bytes that are to come by several moves take at least what they would all take by the
fastest of those moves, and that move alone takes its least.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from shardc.cost.model import CostModel
from shardc.ir.collectives import AllGather, AllToAll, CollectivePermute, Move, ReduceScatter
from shardc.ir.sharding import Axes

_LESS = 1 - 1e-9  # sums of floats round, and so does the order of axes


class Pace(NamedTuple):
    """A move takes no less than any of these: seconds, per byte of a device's share, per wire byte."""

    latency_s: float
    s_per_share: float
    s_per_byte: float

    def seconds(self, share: float, wire: int) -> float:
        return max(self.latency_s, share * self.s_per_share, wire * self.s_per_byte)


class _Kind(NamedTuple):
    """A kind of move, the bytes that it brings per local byte over n devices, and its least local bytes in shares."""

    move: Callable[[Axes], Move]
    wire: Callable[[int], float]
    least: Callable[[int], int]


# The others take no less for a byte.
_KINDS = (
    _Kind(lambda axes: AllGather(axes, 0), lambda n: n - 1, lambda n: 1),
    _Kind(lambda axes: ReduceScatter(axes, 0), lambda n: (n - 1) / n, lambda n: n),
    _Kind(lambda axes: AllToAll(axes, 0, 1), lambda n: (n - 1) / n, lambda n: 1),
    _Kind(lambda axes: CollectivePermute(axes, ()), lambda n: 1, lambda n: 1),
)


def least_seconds(model: CostModel, axes: Axes, moved: Axes, wire: int, size: int) -> float:
    """What moves over some of the axes take at least, that bring `wire` bytes of an array of `size` bytes.

    Each axis of `moved` is part of one of them.
    """
    latency = _latency(model, axes, moved)
    if not wire:
        return latency
    share = size / model.mesh.product(axes) * _LESS
    return max(latency, min(pace.seconds(share, wire) for pace in _paces(model, axes)))


@lru_cache(maxsize=1024)
def _paces(model: CostModel, axes: Axes) -> tuple[Pace, ...]:
    """Of each kind of move over each group of the axes; without those that another is below in all."""
    every = sorted({_pace(model, kind, group) for group in _groups(model, axes) for kind in _KINDS})
    kept: list[Pace] = []
    for pace in every:
        if not any(all(map(operator.le, other, pace)) for other in kept):
            kept.append(pace)
    return tuple(kept)


def _pace(model: CostModel, kind: _Kind, group: Axes) -> Pace:
    n, rate = model.mesh.product(group), model.rate(kind.move(group))
    return Pace(rate.latency_s, rate.s_per_byte * kind.least(n), rate.s_per_byte / kind.wire(n) * _LESS)


def _groups(model: CostModel, axes: Axes) -> list[Axes]:
    wide = [axis for axis in axes if model.mesh.size(axis) > 1]
    return [group for count in range(1, len(wide) + 1) for group in combinations(wide, count)]


@lru_cache(maxsize=16384)
def _latency(model: CostModel, axes: Axes, moved: Axes) -> float:
    """The least hops of moves over groups that together have the axes `moved`, in seconds."""
    hops = [(model.rate(AllGather(group, 0)).latency_s, group) for group in _groups(model, axes)]
    known = {frozenset[str](): 0.0}

    def least(left: frozenset[str]) -> float:
        if left not in known:
            first = min(left)
            known[left] = min(time + least(left.difference(group)) for time, group in hops if first in group)
        return known[left]

    return least(frozenset(moved)) * _LESS
