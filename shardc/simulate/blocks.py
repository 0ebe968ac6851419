"""The representation of a sharded value, and the few rearrangements that all steps are made of.

A mesh axis along which a value is known to be copied has stride 0 in `blocks` (np.broadcast_to), so
copies take no memory and `Part` computes them once. An axis whose copies are written out is computed
device by device, and `gather` compares the copies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardc.ir.mesh import Mesh

Values: TypeAlias = NDArray[Any]
# A mesh axis is labelled by its name, a dim by its position: the two cannot be confused.
Label: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks less the mesh axes of stride 0: `values` has the mesh axes `axes`, in mesh order, then the dims."""

    values: Values
    axes: tuple[str, ...]

    @property
    def rank(self) -> int:
        """How many dims, mesh axes left out."""
        return self.values.ndim - len(self.axes)

    @property
    def labels(self) -> tuple[Label, ...]:
        return (*self.axes, *range(self.rank))

    def blocks(self, mesh: Mesh) -> Values:
        """The blocks of every device: copies along the axes left out."""
        local = self.values.shape[len(self.axes) :]
        kept = tuple(size if axis in self.axes else 1 for axis, size in mesh.axes)
        return np.broadcast_to(self.values.reshape(kept + local), mesh.sizes + local)


def part_of(blocks: Values, mesh: Mesh, needed: Iterable[str] = ()) -> Part:
    """The blocks without the axes that only repeat one memory; the axes `needed` always stay."""
    stays = set(needed)
    kept = tuple(
        axis
        for axis, size, stride in zip(mesh.names, mesh.sizes, blocks.strides, strict=False)
        if axis in stays or (stride != 0 and size > 1)
    )
    index = tuple(slice(None) if axis in kept else 0 for axis in mesh.names)
    return Part(blocks[(*index, ...)], kept)  # of a number an array still, in which each operation may round


def regroup(values: Values, labels: Sequence[Label], groups: Sequence[Sequence[Label]]) -> Values:
    """Transpose to the order of the groups, and merge each group into one dimension, major to minor."""
    where = {label: position for position, label in enumerate(labels)}
    order = [where[label] for group in groups for label in group]
    shape = [math.prod(values.shape[where[label]] for label in group) for group in groups]
    return values.transpose(order).reshape(shape)


def split(values: Values, position: int, sizes: Sequence[int]) -> Values:
    """Cut one dimension into `sizes`, major to minor, and what is left: (6,) by (2,) → (2, 3)."""
    rest = values.shape[position] // math.prod(sizes)
    return values.reshape(*values.shape[:position], *sizes, rest, *values.shape[position + 1 :])


def row(blocks: Values, place: int, mesh: Mesh) -> Values:
    """What every device holds at one place of its first dim."""
    return blocks[(slice(None),) * len(mesh.sizes) + (place,)]


def stacked(rows: Sequence[Values], mesh: Mesh) -> Values:
    """The blocks one behind the other, along a new first dim; copies are kept once where all are copies."""
    axes = {axis for each in rows for axis in part_of(each, mesh).axes}
    parts = [part_of(each, mesh, axes) for each in rows]
    return Part(np.stack([part.values for part in parts], len(parts[0].axes)), parts[0].axes).blocks(mesh)
