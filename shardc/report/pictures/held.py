"""What each device holds of an array, and where the devices of a mesh are drawn.

A[I_X, J] on X=2, Y=2      devices (0, 0) (0, 1) hold block 0, (1, 0) (1, 1) block 1: two shards, each twice
C[I, K]{U_X} on X=2        both hold all of C, but another part of its sum: two shards
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array

MOST = 32  # devices that are drawn of one mesh
_LONGEST = 8  # and along one axis


@dataclass(frozen=True, slots=True)
class Held:
    """One device: its place along each axis, the index of its block in each dim, which part of the sum it has."""

    at: tuple[int, ...]
    block: tuple[int, ...]
    part: int

    @property
    def shard(self) -> tuple[tuple[int, ...], int]:
        """Equal for two devices if what they hold is."""
        return self.block, self.part


def held(array: Array, mesh: Mesh, shown: tuple[int, ...] | None = None) -> Iterator[Held]:
    """What the devices hold; of each axis the first `shown` of them, or all."""
    summed = mesh.ordered(array.sharding.unreduced)
    for at in product(*map(range, mesh.sizes if shown is None else shown)):
        places = dict(zip(mesh.names, at, strict=True))
        part = 0
        for axis in summed:
            part = part * mesh.size(axis) + places[axis]
        yield Held(at, array.sharding.block_of(places, mesh), part)


def shown(mesh: Mesh, most: int = MOST) -> tuple[int, ...]:
    """Of each axis how many devices are drawn: all of a mesh of at most so many, else the first of each, at most half
    as many."""
    found = [min(size, _LONGEST) for size in mesh.sizes]
    most = most if mesh.devices <= most else most // 2
    while prod(found) > most:
        longest = max(range(len(found)), key=lambda place: (found[place], -place))
        found[longest] = -(-found[longest] // 2)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Grid:
    """The devices of a mesh on a plane: the last axis across, the one before down, and so on by turns.

    `steps` are of each axis how far right and how far down its next device is.
    """

    steps: tuple[tuple[float, float], ...]
    width: float
    height: float

    def place(self, at: tuple[int, ...]) -> tuple[float, float]:
        x = sum(n * right for n, (right, _) in zip(at, self.steps, strict=True))
        y = sum(n * down for n, (_, down) in zip(at, self.steps, strict=True))
        return x, y


def grid(shown: tuple[int, ...], cell: tuple[float, float], gap: float) -> Grid:
    """Cells of that size; between groups of them, each further axis apart by a wider gap."""
    size = list(cell)
    steps: list[tuple[float, float]] = []
    wide = 0
    for count in reversed(shown):
        if count == 1:
            steps.append((0.0, 0.0))
            continue
        way, apart = wide % 2, gap * (1 + 2 * (wide // 2))
        pitch = size[way] + apart
        steps.append((pitch, 0.0) if way == 0 else (0.0, pitch))
        size[way] = count * pitch - apart
        wide += 1
    return Grid(tuple(reversed(steps)), size[0], size[1])
