"""How a ReduceScatter is written, so that the TPU's compiler scatters (`lowering.tpu` says what it does else).

What it keeps is shares of whole tiles along their dim; others stacked along a first dim, if they are large; one group
of axes after another, of which none is the slice; and an AllToAll of the shares, which each device then adds up. That
also moves (n-1)/n of the bytes. Dims of one element are left out meanwhile: with a batch of one on each device,

    A[B_Y, T, D]{U_X} → A[B_Y, T_X, D]      a block of [1, T, D] is scattered as one of [T, D]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Axes
from shardc.lowering import scattered, tpu
from shardc.lowering.target import Shape, Target

AxesOfDims = tuple[tuple[int, Axes], ...]  # dims, and the axes that each gets at its end


class Along(Enum):
    """How the shares lie that a collective scatters."""

    PLAIN = "along the dim"
    APART = "shares apart"  # along the first dim of two
    STACKED = "one behind the other"  # always, along several dims
    TURNED = "the last two dims in turn"
    TURNED_APART = "the two dims in turn, and shares apart"
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

    def groups(self) -> list[list[int]]:
        """Of an axis in two parts: of 8 as 4·2 the major groups are 0 2 4 6 and 1 3 5 7, the minor ones 0 1, 2 3, …."""
        assert self.split is not None, "over a part of an axis"
        major, minor = self.split
        if self.is_major:
            return [list(range(first, major * minor, minor)) for first in range(minor)]
        return [list(range(first, first + minor)) for first in range(0, major * minor, minor)]


@dataclass(frozen=True, slots=True)
class Scattering:
    """How a block is shared out along these dims, in which rounds."""

    along: Along
    dims: AxesOfDims
    rounds: tuple[Round, ...]
    left_out: tuple[int, ...] = ()  # dims of one element, without which it is scattered
    is_told_to_lie: bool = False  # in the order of its dims, as it is written
    copies: float = 1  # of shares that are stacked

    @property
    def axes(self) -> Axes:
        return tuple(axis for _, some in self.dims for axis in some)

    @property
    def without_ones(self) -> Scattering:
        """The same of a block that has no longer the dims left out."""
        dims = tuple((dim - sum(one < dim for one in self.left_out), axes) for dim, axes in self.dims)
        return replace(self, dims=dims, left_out=())

    def told(self, target: Target, of_product: bool) -> Scattering:
        """The same of what a product leaves, or of what does not."""
        if not tpu.may_exchange(target) or self.along not in (Along.PLAIN, Along.TURNED):
            return self
        is_told = scattered.is_told_to_lie(self.dims[0][0], self.along is Along.TURNED, of_product)
        return replace(self, is_told_to_lie=is_told)

    @property
    def is_exchanged(self) -> bool:
        return self.along is Along.EXCHANGED


class LocalBlock(NamedTuple):
    """A device's block."""

    shape: Shape
    dtype: DType


def block_of(array: Array, mesh: Mesh) -> LocalBlock:
    """A device's block of an array."""
    return LocalBlock(array.local_shape(mesh), array.dtype)


def scatterings(parts: AxesOfDims, block: LocalBlock | None, target: Target) -> tuple[Scattering, ...]:
    """How to share out a block along these dims: one after another, or together. None: one of large whole tiles."""
    found = list[Scattering]()
    for some in _one_after_another(parts, target):
        share = None if block is None else LocalBlock(share_of(some, block.shape, target.mesh), block.dtype)
        found.append(_scattering(some, share, target))
        block = share
    return tuple(found)


def depends_on_share(shape: Shape, dtype: DType, target: Target) -> bool:
    """Whether some share of an array of this shape is scattered otherwise than one of large whole tiles."""
    if not tpu.may_exchange(target):
        return False
    devices = target.mesh.devices
    if not tpu.is_scattered(dtype) or len(shape) < 2 or any(size % devices or size == devices for size in shape):
        return True
    least = tuple(size // devices for size in shape)  # if all devices share out this dim
    is_at_an_end = all(scattered.is_at_an_end(dim, len(shape)) for dim in range(len(shape)))
    return not (is_at_an_end and tpu.is_whole_tiles(least))


def _scattering(parts: AxesOfDims, share: LocalBlock | None, target: Target) -> Scattering:
    left_out = () if share is None or len(parts) > 1 else scattered.left_out(parts[0][0], share.shape, target)
    along = Along.PLAIN
    if share is not None and not target.is_plain:
        share = LocalBlock(tuple(size for dim, size in enumerate(share.shape) if dim not in left_out), share.dtype)
        dim = parts[0][0] - sum(each < parts[0][0] for each in left_out)
        may_exchange = tpu.may_exchange(target)
        along = _along(share, dim, may_exchange, may_exchange and len(parts) == 1)
    if len(parts) > 1 and along is not Along.EXCHANGED:
        along = Along.STACKED
    axes = tuple(axis for _, some in parts for axis in some)
    at_once = along is Along.EXCHANGED or not tpu.is_not_scattered_over(axes, target)
    left_out = () if along is Along.EXCHANGED else left_out
    in_rounds, copies = (Round(axes),) if at_once else rounds(axes, target), 1.0
    if along is Along.STACKED and len(parts) == 1 and share is not None:
        devices = target.mesh.product(axes)
        copies = scattered.copies_to_stack(devices, devices * math.prod(share.shape) * share.dtype.bytes)
    return Scattering(along, parts, in_rounds, left_out, copies=copies).told(target, of_product=True)


def _one_after_another(parts: AxesOfDims, target: Target) -> tuple[AxesOfDims, ...]:
    """Over a whole slice, scattered in rounds, several dims take a round each, with no shares to be stacked.

    Those over most axes first, then over most devices: most of the bytes come in the first round, over its links.
    """
    mesh, axes = target.mesh, tuple(axis for _, some in parts for axis in some)
    if len(parts) < 2 or not tpu.is_not_scattered_over(axes, target):
        return (parts,)
    widths = {dim: [mesh.size(axis) for axis in some if mesh.size(axis) > 1] for dim, some in parts}
    in_order = sorted(parts, key=lambda part: (len(widths[part[0]]), math.prod(widths[part[0]])), reverse=True)
    return tuple((part,) for part in in_order)


def share_of(parts: AxesOfDims, local: Shape, mesh: Mesh) -> Shape:
    """What of a block each device gets."""
    counts = {dim: mesh.product(axes) for dim, axes in parts}
    return tuple(size // counts.get(dim, 1) for dim, size in enumerate(local))


@lru_cache(maxsize=1 << 14)
def _along(block: LocalBlock, dim: int, may_exchange: bool, is_told: bool) -> Along:
    """`is_told`: what is known of shares along one dim, on a slice that is named, is asked first."""
    share, dtype = block
    otherwise = Along.EXCHANGED if may_exchange else Along.PLAIN
    if not tpu.is_scattered(dtype):
        return otherwise
    if len(share) == 1:
        return Along.FOLDED if tpu.may_be_folded(share) else otherwise
    if is_told and dim == 0 and scattered.lies_in_front(share):
        return Along.PLAIN
    if is_told and dim == 0 and scattered.lies_apart(share):
        return Along.APART
    stays = not may_exchange or scattered.is_at_an_end(dim, len(share))
    if stays and tpu.is_whole_tiles(share):
        return Along.PLAIN
    if stays and may_exchange and tpu.lies_turned(share):
        return Along.TURNED_APART if is_told and dim == 1 and scattered.lies_apart(share[::-1]) else Along.TURNED
    may_be_stacked = not may_exchange or scattered.has_a_tile(share)
    return Along.STACKED if may_be_stacked and tpu.is_large_share(math.prod(share) * dtype.bytes) else otherwise


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
