"""Dims seen as digits, and digits as dims again: local, since every device's elements stay where they are.

    A[I_XY, J], X=4, I=64  →  A[I0_X, I1_Y, J], I0=4, I1=16

A device holds the same elements in the same order on both sides, as long as every digit above a sharded one is
cut into single elements: `A[I0, I1_Y]` is no dim I cut into blocks, unless I0 is 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple, TypeVar

from shardc.ir.mesh import Mesh
from shardc.ir.operations import Facts, IllegalMove, Kind
from shardc.ir.sharding import Axes, Sharding

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reshape:
    """`A[I_XY, J] → A[I0_X, I1_Y, J]`, or back if `joins`. `sizes`: of each dim's digits but the last."""

    facts: ClassVar[Facts] = Facts(Kind.LOCAL, "Reshape")
    axes: ClassVar[Axes] = ()
    on: ClassVar[tuple[int, ...]] = ()

    sizes: tuple[tuple[int, ...], ...]
    joins: bool


@lru_cache(maxsize=4096)
def reshaped(op: Reshape, before: Sharding, mesh: Mesh) -> Sharding:
    """The sharding that a reshape leaves; IllegalMove if blocks would not stay blocks."""
    if op.joins:
        return Sharding(
            tuple(_joined(axes, sizes, mesh) for axes, sizes in _grouped(before.dims, op)), before.unreduced
        )
    digits = (part for axes, sizes in zip(before.dims, op.sizes, strict=True) for part in _split(axes, sizes, mesh))
    return Sharding(tuple(digits), before.unreduced)


def shape_after(op: Reshape, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that a reshape leaves."""
    if op.joins:
        return tuple(math.prod(digits) for digits, _ in _grouped(shape, op))
    found: list[int] = []
    for size, sizes in zip(shape, op.sizes, strict=True):
        found += [*sizes, size // math.prod(sizes)]
    return tuple(found)


def names_after(op: Reshape, dims: tuple[str, ...], taken: Iterable[str]) -> tuple[str, ...]:
    """I becomes I0, I1, …; underscores keep the names apart from those taken. Only of a split."""
    found: list[str] = []
    used = {*taken, *dims}
    for dim, sizes in zip(dims, op.sizes, strict=True):
        if not sizes:
            found.append(dim)
            continue
        base = dim
        while any(f"{base}{n}" in used for n in range(len(sizes) + 1)):
            base += "d"
        found += [f"{base}{n}" for n in range(len(sizes) + 1)]
        used.update(found)
    return tuple(found)


def digits_of(dims: tuple[str, ...], op: Reshape) -> tuple[str, ...]:
    """For each place after a split the dim that it is a digit of."""
    return tuple(dim for dim, sizes in zip(dims, op.sizes, strict=True) for _ in range(len(sizes) + 1))


def _grouped(items: tuple[T, ...], op: Reshape) -> list[tuple[tuple[T, ...], tuple[int, ...]]]:
    """The digits of each dim, with the sizes of all but the last."""
    found, start = [], 0
    for sizes in op.sizes:
        found.append((items[start : start + len(sizes) + 1], sizes))
        start += len(sizes) + 1
    return found


def _joined(digits: tuple[Axes, ...], sizes: tuple[int, ...], mesh: Mesh) -> Axes:
    last = max((n for n, axes in enumerate(digits) if axes), default=0)
    if any(mesh.product(axes) != size for axes, size in zip(digits[:last], sizes, strict=False)):
        raise IllegalMove("a digit above a sharded one is not cut into single elements")
    return tuple(axis for axes in digits for axis in axes)


def _split(axes: Axes, sizes: tuple[int, ...], mesh: Mesh) -> list[Axes]:
    found = []
    for size in sizes:
        count = next((n for n in range(len(axes) + 1) if mesh.product(axes[:n]) == size), None)
        count = len(axes) if count is None and size % mesh.product(axes) == 0 else count
        if count is None:
            raise IllegalMove("the axes do not fill the digits from the first on")
        found.append(axes[:count])
        axes = axes[count:]
    return [*found, axes]


class Place(NamedTuple):
    """Of an array in digits: the dim that a digit is of; its size, None for a rest; of a rest what lies above it."""

    dim: int
    size: int | None
    above: int


def size_at(place: Place, shape: Sequence[int]) -> int:
    """The elements at a place of an array of this shape."""
    return shape[place.dim] // place.above if place.size is None else place.size


def places_of(split: Reshape) -> list[Place]:
    """Those of what a reshape into digits leaves."""
    found: list[Place] = []
    for dim, sizes in enumerate(split.sizes):
        found += [Place(dim, size, 1) for size in sizes]
        found.append(Place(dim, None, math.prod(sizes)))
    return found
