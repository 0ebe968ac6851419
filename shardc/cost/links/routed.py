"""Devices whose chips are no box of a torus: `X=2` of `X=2, Y=2` on v5e:2x2, where `jax.make_mesh` walks round.

What they have of the links is counted by sending the blocks (`fabric.Fabric.traffic`). A gather is the quickest of

- a ring in the order of the devices, half of each block each way round;
- a chain, which is the same without the way from the last back to the first: every block each way to the end;
- every block sent to every other device at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from shardc.cost.links.fabric import Fabric, Groups
from shardc.cost.links.level import Factor, less_one

_MOST = 2**11  # pairs of devices; of more the ring and the chain alone are counted


@dataclass(frozen=True, slots=True)
class Routed:
    """`width` is B/s at which a device takes in a gather, `spread` an exchange, `far` a block by the longest shift."""

    count: Factor
    width: Factor
    spread: Factor
    far: Factor
    hops: Factor

    def exchange(self, book: bool) -> Factor:
        """V(n−1)/(n²W): of its n-th part a device sends all but one n-th."""
        less, each = Factor("1", 1.0) if book else less_one(self.count), self.spread
        return Factor(f"{less.text}/{self.count.text} / {each.text}", less.value / self.count.value / each.value)

    def route(self) -> Factor:
        return Factor(f"1 / {self.far.text}", 1 / self.far.value)


def routed(groups: Groups, fabric: Fabric, count: Factor, label: str) -> Routed:
    """The level of groups of one size that all send at the same time; `label` names the bandwidths."""
    n = len(groups[0])
    ring = fabric.traffic([*_shift(groups, 1), *_shift(groups, -1)], parts=2)
    chain = fabric.traffic([*_shift(groups, 1, closed=False), *_shift(groups, -1, closed=False)])
    width = spread = max(1 / ring.s_per_byte, 1 / chain.s_per_byte)
    far = width / -(-n // 2)
    hops = ring.hops * -(-n // 2)
    if _are_few(n, len(groups)):
        direct = fabric.traffic([pair for group in groups for pair in _pairs(group)])
        shifts = [fabric.traffic(_shift(groups, by)).s_per_byte for by in range(1, n)]
        spread, far, hops = (n - 1) / direct.s_per_byte, 1 / max(shifts), direct.hops
        width = max(width, spread)
    else:
        spread = 4 * width * (n - 1) / n**2  # V/(4W), as of a ring
    widths = (Factor(f"W_{label}", width), Factor(f"W_{label}_all", spread), Factor(f"W_{label}_far", far))
    return Routed(count, widths[0], widths[1], widths[2], Factor(str(hops), hops))


Sent: TypeAlias = list[tuple[list[tuple[int, int]], float]]  # who sends to whom, and how many blocks


def gathered(groups: Groups, fabric: Fabric) -> Sent:
    """What is sent in a gather, by the way that `routed` counts on; in a chain each block only as far as it has to."""
    n = len(groups[0])
    both = [*_shift(groups, 1), *_shift(groups, -1)]
    chain = [*_shift(groups, 1, closed=False), *_shift(groups, -1, closed=False)]
    found: Sent = [(both, (n - 1) / 2), (chain, n - 1)]
    if _are_few(n, len(groups)):
        found.append(([pair for group in groups for pair in _pairs(group)], 1.0))
    best = min(found, key=lambda each: each[1] * fabric.traffic(each[0]).s_per_byte)
    return list(_along(groups)) if best[0] is chain else [best]


def _along(groups: Groups) -> Iterator[tuple[list[tuple[int, int]], float]]:
    """From each device of a chain to the next what lies behind, and as much the other way round."""
    for group in groups:
        for behind, (one, other) in enumerate(pairwise(group), 1):
            yield [(one, other)], behind
            yield [(other, one)], len(group) - behind


def exchanged(groups: Groups, fabric: Fabric) -> Sent:
    """What is sent in an exchange, in pieces of which each device gets one; of many pairs as round a ring."""
    n = len(groups[0])
    if _are_few(n, len(groups)):
        return [([pair for group in groups for pair in _pairs(group)], 1.0)]
    return [(pairs, blocks * n * n / (4 * (n - 1))) for pairs, blocks in gathered(groups, fabric)]


def shifted(groups: Groups, fabric: Fabric) -> Sent:
    """A block to the device that is farthest, by as many places for all: no permute is longer."""
    n = len(groups[0])
    if not _are_few(n, len(groups)):
        return [(pairs, blocks * -(-n // 2) / (n - 1)) for pairs, blocks in gathered(groups, fabric)]
    shifts = [_shift(groups, by) for by in range(1, n)]
    return [(max(shifts, key=lambda pairs: fabric.traffic(pairs).s_per_byte), 1.0)]


def ways(group: Sequence[int], groups: int) -> list[tuple[int, int]]:
    """From whom to whom a group's blocks may go, where there are so many groups."""
    if _are_few(len(group), groups):
        return list(_pairs(group))
    return [*_shift([group], 1), *_shift([group], -1)]


def _are_few(devices: int, groups: int) -> bool:
    return groups * devices * (devices - 1) <= _MOST


def _shift(groups: Groups, by: int, closed: bool = True) -> list[tuple[int, int]]:
    return [
        (device, group[(at + by) % len(group)])
        for group in groups
        for at, device in enumerate(group)
        if closed or 0 <= at + by < len(group)
    ]


def _pairs(group: Sequence[int]) -> Iterator[tuple[int, int]]:
    return ((one, other) for one in group for other in group if one != other)
