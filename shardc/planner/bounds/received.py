"""Words that must be sent to multiply two arrays, whatever the method; counted in degrees of freedom.

What arrives at a device is a function of what others hold. If the device's result, as that varies and its own data
stay, fills a set of d dimensions, then at least d words arrive; and d is the rank of the result's derivative. Of
C = A · B, for generic data, that is the rank of (dA, dB) ↦ dA · B + A · dB, dA and dB where the entries are missing.

Let C be r × c, and whole columns of A be missing, `left` of them, and whole rows of B, `right`. Then dA · B has its
rows in the span of `left` rows of B, of dimension s = min(left, c), and A · dB its columns in the span of `right`
columns of A, of dimension t = min(right, r). The matrices of the one kind are a space of r·s dimensions, those of
the other of t·c, both kinds at once are t·s; together they fill r·s + t·c - t·s = r·c - (r - t)·(c - s).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding

Interval = tuple[int, int]
Box = Mapping[str, Interval]  # of each dim, from where to where

MAX_DEVICES = 256  # of a larger mesh only the corners are looked at


@dataclass(frozen=True, slots=True)
class Operand:
    """An array of the product: its dims and how it lies."""

    dims: tuple[str, ...]
    sharding: Sharding

    def box(self, place: Mapping[str, int], sizes: Mapping[str, int], mesh: Mesh) -> dict[str, Interval]:
        """What the device at a place holds."""
        numbers, counts = self.sharding.block_of(place, mesh), self.sharding.blocks(mesh)
        parts = ((dim, sizes[dim] // count, n) for dim, n, count in zip(self.dims, numbers, counts, strict=True))
        return {dim: (n * size, (n + 1) * size) for dim, size, n in parts}


@dataclass(frozen=True, slots=True)
class Matmul:
    """A product of two arrays: batched dims are on all three, each other dim is on two."""

    mesh: Mesh
    sizes: Mapping[str, int]
    left: Operand
    right: Operand
    result: Operand

    @property
    def batched(self) -> tuple[str, ...]:
        return tuple(d for d in self.left.dims if d in self.right.dims and d in self.result.dims)

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(d for d in self.left.dims if d not in self.right.dims)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(d for d in self.right.dims if d not in self.left.dims)

    @property
    def inner(self) -> tuple[str, ...]:
        return tuple(d for d in self.left.dims if d not in self.result.dims)

    def count(self, dims: Iterable[str]) -> int:
        return math.prod(self.sizes[dim] for dim in dims)


def received(matmul: Matmul) -> int:
    """The words that some device receives at least, for its block of the result."""
    return max(_to_device(matmul, place) for place in _places(matmul))


def spread(rows: int, columns: int, left: int, right: int) -> int:
    """The dimensions that C fills if so many columns of A, and rows of B, are missing."""
    return rows * columns - (rows - min(right, rows)) * (columns - min(left, columns))


def block_spread(inner: int, rows: int, columns: int, held_left: tuple[int, int], held_right: tuple[int, int]) -> int:
    """The same, if of A (rows × inner) the device holds `held_left`, and of B (columns × inner) `held_right`.

    A lower bound: rows held in part count as held (1); or those not held go first, which alone reach the rows of C
    that they are of, then the columns of B not held, then the rest (2), or the other way about (3); or only
    the rows, or the columns, or both, that are not held count (4, 5, 6).
    """
    some_rows, held = held_left if all(held_left) else (rows, 0)
    some_columns, other = held_right if all(held_right) else (columns, 0)
    left, right = inner - held, inner - other
    no_rows, no_columns = rows - some_rows, columns - some_columns
    rest = spread(some_rows, some_columns, left, right)
    return max(
        spread(rows, columns, left, right),
        no_rows * min(columns, inner) + no_columns * min(some_rows, inner) + rest,
        no_columns * min(rows, inner) + no_rows * min(some_columns, inner) + rest,
        spread(no_rows, columns, inner, right),
        spread(rows, no_columns, left, inner),
        spread(no_rows, no_columns, inner, inner),
    )


def _to_device(matmul: Matmul, place: Mapping[str, int]) -> int:
    """Each batched index is a product of its own; of A the device may hold it or not, and so of B."""
    mesh, sizes = matmul.mesh, matmul.sizes
    wanted = matmul.result.box(place, sizes, mesh)
    left, right = (_held(operand, place, matmul) for operand in (matmul.left, matmul.right))
    rows, columns = common(matmul.rows, wanted), common(matmul.columns, wanted)
    inner = matmul.count(matmul.inner)

    def share(dims: tuple[str, ...], held: Box | None) -> tuple[int, int]:
        """Of these wanted indices and of the summed ones, how many are held."""
        if held is None:  # and not a box of no dims: a number, of which there is one
            return 0, 0
        return common(dims, wanted, held), common(matmul.inner, held)

    return sum(
        count
        * block_spread(
            inner,
            rows,
            columns,
            share(matmul.rows, left if has_left else None),
            share(matmul.columns, right if has_right else None),
        )
        for (has_left, has_right), count in classes(matmul.batched, wanted, (left, right))
    )


def _held(operand: Operand, place: Mapping[str, int], matmul: Matmul) -> Box | None:
    """What a device holds of an operand; nothing of a sum of which it has a part."""
    if matmul.mesh.product(tuple(operand.sharding.unreduced)) > 1:
        return None
    return operand.box(place, matmul.sizes, matmul.mesh)


def classes(dims: tuple[str, ...], wanted: Box, held: tuple[Box | None, ...]) -> Iterator[tuple[tuple[bool, ...], int]]:
    """How many indices of these dims are wanted and held, for each choice of who holds them and who does not."""
    if not dims:  # one index, which each holds that holds anything
        yield tuple(box is not None for box in held), 1
        return
    for chosen in product((False, True), repeat=len(held)):
        count = 0
        for more in product(*((True,) if yes else (False, True) for yes in chosen)):
            boxes = [box for box, yes in zip(held, more, strict=True) if yes]
            if None not in boxes:
                sign = (-1) ** (sum(more) - sum(chosen))
                count += sign * common(dims, wanted, *(box for box in boxes if box is not None))
        yield chosen, count


def common(dims: Iterable[str], *boxes: Box) -> int:
    """How many indices of these dims are in all boxes."""
    found = 1
    for dim in dims:
        found *= max(0, min(box[dim][1] for box in boxes) - max(box[dim][0] for box in boxes))
    return found


def _places(matmul: Matmul) -> Iterator[Mapping[str, int]]:
    """The devices, or the corners of a large mesh; along an axis that nothing lies over all are alike."""
    mesh = matmul.mesh
    used = frozenset[str]().union(*(o.sharding.used for o in (matmul.left, matmul.right, matmul.result)))
    axes = tuple(axis for axis in mesh.names if axis in used)
    large = mesh.product(axes) > MAX_DEVICES
    anywhere = dict.fromkeys(mesh.names, 0)
    for place in product(*((0, mesh.size(axis) - 1) if large else range(mesh.size(axis)) for axis in axes)):
        yield anywhere | dict(zip(axes, place, strict=True))
