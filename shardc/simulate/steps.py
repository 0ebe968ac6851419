"""What the devices do in one step, all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np

from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    JointExchange,
    JointGather,
    JointScatter,
    ReduceScatter,
    Slice,
    UnevenExchange,
)
from shardc.ir.digits import Reshape
from shardc.ir.exchange import tails
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Einsum, Single
from shardc.ir.sharding import MAX, SUM, Array, Axes, Sharding
from shardc.simulate.arguments import in_range
from shardc.simulate.blocks import Part, Values, part_of, regroup, split
from shardc.simulate.exchange import exchange
from shardc.simulate.local import IllegalStep, apply_function, einsum

__all__ = ["IllegalStep", "step"]


def step(
    op: Single,
    operand_blocks: Sequence[Values],
    operand_arrays: Sequence[Array],
    result_array: Array,
    mesh: Mesh,
) -> Values:
    """The blocks that a step leaves.

    The devices do what they are told, whether or not it means anything: a collective on the wrong axes
    gives wrong values. IllegalStep only where they could not do it, or where the blocks that result have
    another shape than `result_array`'s.
    """
    blocks = _dispatch(op, operand_blocks, operand_arrays, result_array, mesh)
    wanted = mesh.sizes + result_array.local_shape(mesh)
    if blocks.shape != wanted:
        raise IllegalStep(f"{op} leaves blocks of shape {blocks.shape}; `{result_array}` needs {wanted}")
    return in_range(blocks, result_array.dtype)


def _dispatch(op: Single, blocks: Sequence[Values], arrays: Sequence[Array], result: Array, mesh: Mesh) -> Values:
    match op:
        case AllGather(axes, dim):
            return _all_gather(part_of(blocks[0], mesh, axes), axes, dim).blocks(mesh)
        case JointGather(parts):
            part = part_of(blocks[0], mesh, op.axes)
            for dim, axes in parts:
                part = _all_gather(part, axes, dim)
            return part.blocks(mesh)
        case JointScatter(parts):
            return _joint_scatter(part_of(blocks[0], mesh, op.axes), parts, mesh).blocks(mesh)
        case ReduceScatter(axes, dim):
            return _reduce_scatter(part_of(blocks[0], mesh, axes), axes, dim, mesh).blocks(mesh)
        case AllReduce(axes, reduction):
            return _all_reduce(part_of(blocks[0], mesh, axes), axes, reduction).blocks(mesh)
        case AllToAll(axes, source, dim):
            return _all_to_all(part_of(blocks[0], mesh, axes), axes, source, dim, mesh).blocks(mesh)
        case CollectivePermute():
            return _permute(blocks[0], op, arrays[0].sharding, mesh)
        case JointExchange(_, dims) | DirectExchange(_, dims):
            return exchange(blocks[0], arrays[0].sharding, dims, mesh)
        case UnevenExchange(_, dims):
            return _anywhere(blocks[0], arrays[0].sharding, dims, mesh).blocks(mesh)
        case Slice(axes, dim):
            return _slice(part_of(blocks[0], mesh, axes), axes, dim, mesh).blocks(mesh)
        case Mask(axes):
            return _mask(blocks[0], axes, mesh)
        case Reshape():
            return blocks[0].reshape(*mesh.sizes, *result.local_shape(mesh))
        case Einsum():
            return einsum(blocks, arrays, result, mesh)
        case Apply():
            return apply_function(op, blocks, arrays, result, mesh)
        case _:
            assert_never(op)


def _all_gather(part: Part, axes: Axes, dim: int) -> Part:
    """Every device concatenates the blocks of its group along the dim, major to minor."""
    left = tuple(axis for axis in part.axes if axis not in axes)
    groups: list[tuple[str | int, ...]] = [(axis,) for axis in left]
    groups += [(*axes, d) if d == dim else (d,) for d in range(part.rank)]
    return Part(regroup(part.values, part.labels, groups), left)


def _sum(part: Part, axes: Axes) -> Part:
    """Every device has the sum over its group."""
    left = tuple(axis for axis in part.axes if axis not in axes)
    return Part(part.values.sum(axis=tuple(part.axes.index(axis) for axis in axes)), left)


def _all_reduce(part: Part, axes: Axes, reduction: str) -> Part:
    if reduction == SUM:
        return _sum(part, axes)
    left = tuple(axis for axis in part.axes if axis not in axes)
    along = tuple(part.axes.index(axis) for axis in axes)
    return Part(part.values.max(axis=along) if reduction == MAX else part.values.min(axis=along), left)


def _reduce_scatter(part: Part, axes: Axes, dim: int, mesh: Mesh) -> Part:
    """The devices of a group add up, and each keeps the chunk of its number within the group."""
    summed = _sum(part, axes)
    values = _cut(summed, axes, dim, mesh)
    present = mesh.ordered({*summed.axes, *axes})
    labels = [*summed.axes, *range(dim), *axes, *range(dim, part.rank)]
    groups: list[tuple[str | int, ...]] = [(axis,) for axis in present]
    groups += [(d,) for d in range(part.rank)]
    return Part(regroup(values, labels, groups), present)


def _joint_scatter(part: Part, parts: tuple[tuple[int, Axes], ...], mesh: Mesh) -> Part:
    for dim, axes in parts:
        part = _reduce_scatter(part, axes, dim, mesh)
    return part


def _all_to_all(part: Part, axes: Axes, source: int, dim: int, mesh: Mesh) -> Part:
    """Each device sends chunk j of `dim` to device j of its group, and lines up what it receives along `source`."""
    values = _cut(part, axes, dim, mesh)
    chunks = {axis: f"chunk of {axis}" for axis in axes}
    labels = [*part.axes, *range(dim), *chunks.values(), *range(dim, part.rank)]
    # The chunk's number becomes the receiver's coordinate, the sender's becomes the major part of `source`.
    groups: list[tuple[str | int, ...]] = [(chunks.get(axis, axis),) for axis in part.axes]
    groups += [(*axes, d) if d == source else (d,) for d in range(part.rank)]
    return Part(regroup(values, labels, groups), part.axes)


def _slice(part: Part, axes: Axes, dim: int, mesh: Mesh) -> Part:
    """Each device keeps the chunk of its number within the group: a diagonal of (device, chunk)."""
    values = _cut(part, axes, dim, mesh)
    labels = [*part.axes, *range(dim), *axes, *range(dim, part.rank)]
    numbers = {label: number for number, label in enumerate(part.labels)}
    diagonal = np.einsum(values, [numbers[label] for label in labels], list(range(len(numbers))))
    return Part(diagonal, part.axes)


def _mask(blocks: Values, axes: Axes, mesh: Mesh) -> Values:
    """The first device of each group keeps its block."""
    first = tuple(slice(1) if axis in axes else slice(None) for axis in mesh.names)
    kept = np.zeros_like(blocks)
    kept[first] = blocks[first]
    return kept


def _anywhere(blocks: Values, before: Sharding, after: tuple[Axes, ...], mesh: Mesh) -> Part:
    """What each device wants of what all together hold, however it comes: joined, then cut."""
    cuts = tails(before.dims, after, mesh)
    part = part_of(blocks, mesh, [axis for cut in cuts for axis in cut.old + cut.new])
    for dim, cut in enumerate(cuts):
        part = _all_gather(part, cut.old, dim)
    for dim, cut in enumerate(cuts):
        part = _slice(_along(part, cut.new, mesh), cut.new, dim, mesh)
    return part


def _along(part: Part, axes: Axes, mesh: Mesh) -> Part:
    """With these axes written out, also where all along them hold the same."""
    return part_of(part.blocks(mesh), mesh, {*part.axes, *axes})


def _cut(part: Part, axes: Axes, dim: int, mesh: Mesh) -> Values:
    """The dim cut into a chunk for each device of the group: a dimension for each axis, and the rest."""
    position = len(part.axes) + dim
    size = part.values.shape[position]
    if size % mesh.product(axes):
        raise IllegalStep(f"dim {dim} has {size} elements on each device, which {mesh.product(axes)} do not share")
    return split(part.values, position, [mesh.size(axis) for axis in axes])


def _permute(blocks: Values, move: CollectivePermute, before: Sharding, mesh: Mesh) -> Values:
    """Each device receives the whole block that it is to hold from the one device of its copies that holds it."""
    after = Sharding(move.dims, before.unreduced)
    if set(after.sharded) != set(before.sharded) or after.blocks(mesh) != before.blocks(mesh):
        raise IllegalStep(f"{move} is no bijection between the devices")
    part = part_of(blocks, mesh, before.sharded)
    count = len(part.axes)
    own = {
        axis: np.arange(mesh.size(axis)).reshape([-1 if i == place else 1 for i in range(count)])
        for place, axis in enumerate(part.axes)
    }
    sender = dict(own)
    for old, new in zip(before.dims, move.dims, strict=True):
        block = np.zeros((1,) * count, dtype=np.int64)
        for axis in new:
            block = block * mesh.size(axis) + own[axis]
        for axis in reversed(old):
            block, sender[axis] = np.divmod(block, mesh.size(axis))
    for axis in set(before.sharded).difference(move.axes):
        if not np.all(sender[axis] == own[axis]):
            raise IllegalStep(f"{move} has to move blocks along `{axis}` as well")
    return Part(part.values[tuple(sender[axis] for axis in part.axes)], part.axes).blocks(mesh)
