"""Whole arrays ⇄ the blocks of every device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Axes, Sharding
from shardc.simulate.arguments import in_precision, in_range
from shardc.simulate.blocks import Part, Values, part_of, regroup, split

CLOSE = 1e-9  # of float64's values, by the size of all: another order of adding, not another value
_TRIES = 8  # of drawing partial sums in which no two devices agree


class ReplicaMismatch(ValueError):
    """Two devices that should hold copies of one block hold different ones, by more than rounding."""


def expected_blocks(whole: Values, array: Array, mesh: Mesh) -> Values:
    """What every device must hold of an array that is not unreduced."""
    if array.sharding.unreduced:
        raise ValueError(f"`{array}` is unreduced: its devices may hold any parts that add up")
    return _lay_out(in_precision(whole, array.name, array.shape, array.dtype), array.sharding.dims, mesh)


def scatter(whole: Values, array: Array, mesh: Mesh, seed: int = 0) -> Values:
    """Lay a whole array out as its sharding says.

    `A[I_X]{U_Y}` gives each device along Y another part of the block; the parts are made of few small
    numbers of the size of the whole, so that they add up exactly.
    """
    whole = in_precision(whole, array.name, array.shape, array.dtype)
    summed = mesh.ordered(array.sharding.unreduced)
    if not summed:
        return _lay_out(whole, array.sharding.dims, mesh)
    sizes = [mesh.size(axis) for axis in summed]
    parts = _partial_sums(whole, math.prod(sizes), seed).reshape(*sizes, *whole.shape)
    # Each unreduced axis is laid out as if it cut a dim of its own, of local size 1.
    blocks = _lay_out(parts, tuple((axis,) for axis in summed) + array.sharding.dims, mesh)
    return blocks[(slice(None),) * len(mesh.axes) + (0,) * len(summed)]


def gather(blocks: Values, array: Array, mesh: Mesh) -> Values:
    """The whole array that the devices hold together; ReplicaMismatch if copies differ by more than rounding."""
    wanted = mesh.sizes + array.local_shape(mesh)
    if blocks.shape != wanted:
        raise ValueError(f"blocks of `{array}` have the shape {blocks.shape}, not {wanted}")
    _check_copies(blocks, array, mesh)
    sharding = array.sharding
    summed = tuple(mesh.names.index(axis) for axis in mesh.ordered(sharding.unreduced))
    # Axes of copies go first, by taking the first copy: only then is adding up cheap.
    first = tuple(slice(None) if axis in sharding.used else slice(1) for axis in mesh.names)
    total = in_range(blocks[first].sum(axis=summed, keepdims=True), array.dtype) if summed else blocks[first]
    kept = tuple(slice(None) if axis in sharding.sharded else 0 for axis in mesh.names)
    part = Part(total[kept], mesh.ordered(sharding.sharded))
    return regroup(part.values, part.labels, [(*axes, dim) for dim, axes in enumerate(sharding.dims)])


def _lay_out(whole: Values, dims: tuple[Axes, ...], mesh: Mesh) -> Values:
    """Cut each dim by its axes, bring the cuts to the front in mesh order, copy along the other axes."""
    labels: list[str | int] = []
    for dim, axes in enumerate(dims):
        whole = split(whole, len(labels), [mesh.size(axis) for axis in axes])
        labels += [*axes, dim]
    present = mesh.ordered(Sharding(dims).sharded)
    groups: list[tuple[str | int, ...]] = [(axis,) for axis in present]
    groups += [(dim,) for dim in range(len(dims))]
    return Part(regroup(whole, labels, groups), present).blocks(mesh)


def _partial_sums(whole: Values, parts: int, seed: int) -> Values:
    """`parts` different arrays of the whole's shape whose sum is the whole, in any order of adding.

    Differences r[k] − r[k−1] around a circle add up to 0 and stay small however many there are; each
    element of the whole lies on one part, drawn for each element.
    """
    if parts == 1:
        return whole[np.newaxis]
    generator = np.random.default_rng(seed)
    unit = _unit(whole)
    owner = generator.integers(parts, size=whole.shape)
    owned = np.arange(parts).reshape(-1, *(1,) * whole.ndim) == owner
    for attempt in range(_TRIES):
        largest = 2 << attempt
        circle = generator.integers(-largest, largest + 1, size=(parts, *whole.shape)) * unit
        drawn: Values = np.where(owned, whole, 0) + (circle - np.roll(circle, 1, axis=0))
        if len({part.tobytes() for part in drawn}) == parts:
            break
    return drawn


def _unit(whole: Values) -> Any:
    """What parts are multiples of: an eighth of the whole's size, or what its own values are multiples of if more."""
    if whole.dtype.kind != "f":
        return 1
    sizes = np.abs(whole[np.isfinite(whole) & (whole != 0)])
    if not sizes.size:
        return 1
    significands, exponents = np.frexp(sizes)
    bits = (significands * 2.0**53).astype(np.int64)
    lowest = int(np.min(exponents - 53 + np.frexp((bits & -bits).astype(np.float64))[1] - 1))
    return 2.0 ** max(lowest, int(exponents.max()) - 4)


def close(found: Values, wanted: Values) -> Any:
    """Where values are the same but for the rounding of float64, of all that are wanted; NaN is NaN. Whole numbers, and
    what is true or false, are to be equal."""
    if found.dtype.kind in "iub" and wanted.dtype.kind in "iub":
        return found == wanted
    size = float(np.max(np.abs(wanted), initial=0, where=np.isfinite(wanted)))
    with np.errstate(invalid="ignore"):
        off = np.abs(found - wanted)
    return (found == wanted) | (off <= CLOSE * size) | (found != found) & (wanted != wanted)


def _check_copies(blocks: Values, array: Array, mesh: Mesh) -> None:
    part = part_of(blocks, mesh)
    copied = [axis for axis in part.axes if axis not in array.sharding.used]
    if not copied:
        return
    first = part.values[tuple(slice(1) if axis in copied else slice(None) for axis in part.axes)]
    differs = ~close(part.values, first)
    if not differs.any():
        return
    place = np.unravel_index(int(np.argmax(differs)), differs.shape)
    index = [int(i) for i in place]
    other = [0 if axis in copied else i for axis, i in zip(part.axes, index, strict=False)]
    other += index[len(part.axes) :]
    device = ", ".join(f"{axis}={i}" for axis, i in zip(part.axes, index, strict=False))
    raise ReplicaMismatch(
        f"`{array}` holds copies along {', '.join(copied)}, but device ({device}) has {part.values[place]} "
        f"at {tuple(index[len(part.axes) :])} of its block where the first copy has {part.values[tuple(other)]}"
    )
