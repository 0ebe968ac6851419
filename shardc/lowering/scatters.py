"""How a ReduceScatter is written, so that the TPU's compiler scatters (`lowering.tpu` says what it does else).

What it keeps is shares of whole tiles along their dim; others stacked along a first dim, if they are large; one group
of axes after another, of which none is the slice; and an AllToAll of the shares, which each device then adds up. That
also moves (n-1)/n of the bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes
from shardc.lowering import tpu
from shardc.lowering.target import Shape, Target

Parts = tuple[tuple[int, Axes], ...]  # dims, and the axes that each gets at its end


class Along(Enum):
    """How the shares lie that a collective scatters."""

    PLAIN = "along the dim"
    STACKED = "one behind the other"  # always, along several dims
    FOLDED = "folded into lanes"  # of one dim
    EXCHANGED = "exchanged, and added up"


@dataclass(frozen=True, slots=True)
class Round:
    """A collective over these axes; or over one axis in two parts, `split` in (major, minor), over one of them."""

    axes: Axes
    split: tuple[int, int] | None = None
    is_major: bool = False

    def parts(self, mesh: Mesh) -> int:
        """How many devices are in each group."""
        return mesh.product(self.axes) if self.split is None else self.split[0 if self.is_major else 1]


@dataclass(frozen=True, slots=True)
class Scattering:
    """How a block is shared out along these dims, in which rounds."""

    along: Along
    dims: Parts
    rounds: tuple[Round, ...]

    @property
    def axes(self) -> Axes:
        return tuple(axis for _, some in self.dims for axis in some)

    @property
    def is_exchanged(self) -> bool:
        return self.along is Along.EXCHANGED


def scatterings(parts: Parts, local: Shape, dtype: DType, target: Target) -> tuple[Scattering, ...]:
    """How to share out a local block along these dims: one after another, or together."""
    found = list[Scattering]()
    for some in _one_after_another(parts, target):
        found.append(_scattering(some, local, dtype, target))
        local = share_of(some, local, target.mesh)
    return tuple(found)


def depends_on_share(dtype: DType, least_bytes: int, target: Target) -> bool:
    """Whether a share of a type, of no less than so many bytes, of two dims or more, may be exchanged."""
    return tpu.may_exchange(target) and not (tpu.is_scattered(dtype) and tpu.is_large_share(least_bytes))


def _scattering(parts: Parts, local: Shape, dtype: DType, target: Target) -> Scattering:
    along = _along(share_of(parts, local, target.mesh), dtype, tpu.may_exchange(target))
    if len(parts) > 1 and along is not Along.EXCHANGED:
        along = Along.STACKED
    axes = tuple(axis for _, some in parts for axis in some)
    at_once = along is Along.EXCHANGED or not tpu.is_not_scattered_over(axes, target)
    return Scattering(along, parts, (Round(axes),) if at_once else rounds(axes, target))


def _one_after_another(parts: Parts, target: Target) -> tuple[Parts, ...]:
    """Over a whole slice, scattered in rounds, several dims take a round each, with no shares to be stacked.

    Those over most axes first, then over most devices: most of the bytes come in the first round, over its links.
    """
    mesh, axes = target.mesh, tuple(axis for _, some in parts for axis in some)
    if len(parts) < 2 or not tpu.is_not_scattered_over(axes, target):
        return (parts,)
    widths = {dim: [mesh.size(axis) for axis in some if mesh.size(axis) > 1] for dim, some in parts}
    in_order = sorted(parts, key=lambda part: (len(widths[part[0]]), math.prod(widths[part[0]])), reverse=True)
    return tuple((part,) for part in in_order)


def share_of(parts: Parts, local: Shape, mesh: Mesh) -> Shape:
    """What of a block each device gets."""
    counts = {dim: mesh.product(axes) for dim, axes in parts}
    return tuple(size // counts.get(dim, 1) for dim, size in enumerate(local))


@lru_cache(maxsize=1 << 14)
def _along(share: Shape, dtype: DType, may_exchange: bool) -> Along:
    otherwise = Along.EXCHANGED if may_exchange else Along.PLAIN
    if not tpu.is_scattered(dtype):
        return otherwise
    if len(share) == 1:
        return Along.FOLDED if tpu.may_be_folded(share) else otherwise
    if tpu.is_whole_tiles(share):
        return Along.PLAIN
    return Along.STACKED if tpu.is_large_share(math.prod(share) * dtype.bytes) else otherwise


@lru_cache(maxsize=1 << 10)
def rounds(axes: Axes, target: Target) -> tuple[Round, ...]:
    """Of all of a slice the major axes, then the minor one.

    Of a single axis, if the slice is named, the major part, then the slice's last side.
    """
    mesh, sides = target.mesh, target.sides
    wide = [place for place, axis in enumerate(axes) if mesh.size(axis) > 1]
    if len(wide) > 1:
        return Round(axes[: wide[-1]]), Round(axes[wide[-1] :])
    if not sides or sides[-1] == mesh.product(axes):
        return (Round(axes),)
    split = (mesh.product(axes) // sides[-1], sides[-1])
    return Round(axes, split, is_major=True), Round(axes, split)
