"""What no moves get below, so that a search need not look at what cannot be best.

The blocks that moves start from are whole numbers of shares, the least that a device holds where all axes shard the
array. Of k shares on each of n devices, a gather brings k·(n - 1), an exchange k·(n - 1)/n: a gather over many axes
brings a byte in the least time, over the links of all, but it brings many; an exchange can bring few.

    X=2, Y=2, Z=2; one share to come, W the bandwidth of a link
    gather X        1 share   in 1/W
    gather XYZ      7 shares  in 7/3/W
    exchange XYZ    7/8       in 1/2/W: not enough, and two take 1/W, or one of two shares

So bytes take at least the time of the cheapest moves that bring as many or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from shardc.cost.model import CostModel
from shardc.cost.rate import Rate
from shardc.ir.collectives import AllGather, AllToAll, CollectivePermute, Move, ReduceScatter
from shardc.ir.exchange import needed, received_to_add
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Axes, Sharding

FEW = 4  # shares
_TELLING = 10  # times a bound: of more, the bound says more of itself than of a plan
_LESS = 1 - 1e-13  # sums of floats round, and so does the order of axes


class Pace(NamedTuple):
    """A move of the fewest shares that it can start from: seconds per byte of a share, and what it brings.

    That is in parts of a share, as many to a share as there are devices, so that it is whole.
    """

    seconds: float
    brings: int


class _Kind(NamedTuple):
    """A kind of move, the least shares that it starts from on each of n devices, and n times what they bring."""

    move: Callable[[Axes], Move]
    least: Callable[[int], int]
    brings: Callable[[int], int]


# The others take no less for a byte.
_KINDS = (
    _Kind(lambda axes: AllGather(axes, 0), lambda n: 1, lambda n: n * (n - 1)),
    _Kind(lambda axes: ReduceScatter(axes, 0), lambda n: n, lambda n: n * (n - 1)),
    _Kind(lambda axes: AllToAll(axes, 0, 1), lambda n: 1, lambda n: n - 1),
    _Kind(lambda axes: CollectivePermute(axes, ()), lambda n: 1, lambda n: n),
)


def times_bound(wire_bytes: int, bound: int) -> float | None:
    """How many times a bound so many bytes are; None where it is too little to say anything of them."""
    return wire_bytes / bound if bound and wire_bytes < _TELLING * bound else None


def rate_bound(
    model: CostModel, axes: Axes, moved: Axes, summed: Axes, block: int, kept: int | None, exchanged: bool
) -> Rate:
    """What moves over some of the axes take at least, of the bytes of an array, whose shares may be exchanged.

    They bring each device 1/block - 1/kept of it, or 1/block; and each axis of `moved` is part of one. Partial sums
    over `summed` are scattered from the least blocks there are, and the rest brought; or each is where it stays.
    """
    latency, devices = _latency(model, axes, moved), model.mesh.product(axes)
    wanted = devices // block  # shares
    parts = devices**2 // block - (devices**2 // kept if kept else 0)
    to_sum = 0.0
    if summed:
        n = model.mesh.product(summed)
        parts = max(parts, (n + wanted - 2) * devices)  # as `ir.exchange.received_to_add`
        scatter = n * scatter_bound(model, summed, exchanged).s_per_byte * _LESS
        to_sum = min(scatter + _to_bring(model, axes, (wanted - 1) * devices), scatter * wanted)
    if not parts:
        return Rate(latency, 0.0)
    per_share = max(to_sum, _to_bring(model, axes, parts))
    return Rate(max(latency, _least_hop(model, axes)), per_share / devices)


@lru_cache(maxsize=1024)
def scatter_bound(model: CostModel, axes: Axes, exchanged: bool) -> Rate:
    """What scattering over some axes takes at least, in whatever form, where its shares may be exchanged."""
    if not exchanged:
        return model.rate(ReduceScatter(axes, 0))
    moves = [move for group in _groups(model, axes) for move in (ReduceScatter(group, 0), AllToAll(group, 0, 1))]
    rates = [model.rate(move) for move in moves] or [Rate(0, 0.0)]
    return Rate(min(rate.latency_s for rate in rates), min(rate.s_per_byte for rate in rates))


@lru_cache(maxsize=16384)
def _to_bring(model: CostModel, axes: Axes, parts: int) -> float:
    """Seconds per byte of a share of the cheapest moves that bring so many parts of a share."""
    if parts <= 0:
        return 0.0
    paces = _paces(model, axes)
    if parts > FEW * model.mesh.product(axes):  # no faster than by the fastest of the moves, and that one is whole
        return min(max(1.0, parts / pace.brings) * pace.seconds for pace in paces)
    return min(pace.seconds + _to_bring(model, axes, parts - pace.brings) for pace in paces)


@lru_cache(maxsize=1024)
def _paces(model: CostModel, axes: Axes) -> tuple[Pace, ...]:
    """Of each kind of move over each group of the axes; without those that another is below in all."""
    every = sorted({_pace(model, kind, group, axes) for group in _groups(model, axes) for kind in _KINDS})
    kept: list[Pace] = []
    for pace in every:
        if not any(other.brings >= pace.brings for other in kept):
            kept.append(pace)
    return tuple(kept)


def _pace(model: CostModel, kind: _Kind, group: Axes, axes: Axes) -> Pace:
    n = model.mesh.product(group)
    seconds = model.rate(kind.move(group)).s_per_byte * kind.least(n)
    return Pace(seconds * _LESS, kind.brings(n) * model.mesh.product(axes) // n)


@lru_cache(maxsize=1024)
def _least_hop(model: CostModel, axes: Axes) -> float:
    return min(model.rate(kind.move(group)).latency_s for group in _groups(model, axes) for kind in _KINDS) * _LESS


def _groups(model: CostModel, axes: Axes) -> list[Axes]:
    several = model.mesh.nontrivial(axes)
    return [group for count in range(1, len(several) + 1) for group in combinations(several, count)]


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


def reshard_bound(before: Array, after: Sharding, mesh: Mesh) -> int:
    """The most bytes that some device needs and does not hold; or what devices receive at least to add partial sums."""
    return bytes_to_reshard(math.prod(before.shape) * before.dtype.bytes, before.sharding, after, mesh)


def bytes_to_reshard(total: int, before: Sharding, after: Sharding, mesh: Mesh) -> int:
    """The same of an array of so many bytes."""
    block, kept = needed(before, after, mesh)
    missing = total // block - (total // kept if kept else 0)
    summed = mesh.product(tuple(before.unreduced))
    if summed == 1 or after.unreduced:
        return missing
    return max(missing, received_to_add(total, summed, block, mesh.devices))
