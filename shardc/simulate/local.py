"""The steps that a device does alone: local products and functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shardc.ir.calls import arguments
from shardc.ir.functions import FUNCTIONS, Gives
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply
from shardc.ir.sharding import Array
from shardc.simulate.arguments import converted
from shardc.simulate.blocks import Part, Values, part_of

# Mesh axes and dims are labels of one product. A space cannot be in a name, so the two never meet.
_MESH = "mesh "


class IllegalStep(ValueError):
    """A step that devices cannot do, or that leaves blocks of another shape than the plan says."""


def einsum(blocks: Sequence[Values], arrays: Sequence[Array], result: Array, mesh: Mesh) -> Values:
    """The product of each device's blocks by dim names; dims that the result lacks are summed."""
    parts = [part_of(operand, mesh) for operand in blocks]
    labels = [_labels(part, array) for part, array in zip(parts, arrays, strict=True)]
    present = mesh.ordered(axis for part in parts for axis in part.axes)
    wanted = tuple(_MESH + axis for axis in present) + result.dims
    _check_sizes([part.values for part in parts], labels, wanted)
    if len(parts) == 1:
        return Part(_reduce_to(parts[0].values, labels[0], wanted), present).blocks(mesh)
    left, right = parts
    return Part(_multiply(left.values, labels[0], right.values, labels[1], wanted), present).blocks(mesh)


def apply_function(op: Apply, blocks: Sequence[Values], arrays: Sequence[Array], result: Array, mesh: Mesh) -> Values:
    """A function of each device's blocks; operands meet by dim names, copied along the dims they lack."""
    function, name, over = FUNCTIONS[op.function], op.function, op.over
    if name == "index":
        return _lay_out_positions(result, mesh)
    if name == "full":
        (number,) = op.numbers
        return Part(converted(np.full(result.local_shape(mesh), number), result.dtype), ()).blocks(mesh)
    parts = [part_of(operand, mesh) for operand in blocks]
    present = mesh.ordered(axis for part in parts for axis in part.axes)
    dims = result.dims if len(arrays) > 1 else arrays[0].dims
    wanted = tuple(_MESH + axis for axis in present) + dims
    operands = [_align(part.values, _labels(part, array), wanted) for part, array in zip(parts, arrays, strict=True)]
    with np.errstate(all="ignore"):  # what is not finite is compared, not warned of
        if not function.over_dims:
            values = function.numpy(np, *arguments(operands, op.numbers))
        else:
            values = function.numpy(np, *operands, axis=tuple(wanted.index(dim) for dim in over))
        values = converted(values, result.dtype) if function.gives is Gives.ASKED else values
    if not function.keeps_dims:
        wanted = tuple(label for label in wanted if label not in over)
    order = tuple(_MESH + axis for axis in present) + result.dims
    if set(order) != set(wanted):
        raise IllegalStep(f"`{name}` of `{arrays[0]}` does not give `{result}`")
    return Part(values.transpose([wanted.index(label) for label in order]), present).blocks(mesh)


def _lay_out_positions(result: Array, mesh: Mesh) -> Values:
    """Each device counts on from the first position of its own block."""
    axes, (size,) = result.sharding.dims[0], result.local_shape(mesh)
    blocks = np.zeros(mesh.sizes, np.int64)
    for axis in axes:
        place = mesh.names.index(axis)
        blocks = blocks * mesh.size(axis) + np.arange(mesh.size(axis)).reshape(
            [-1 if k == place else 1 for k in range(blocks.ndim)]
        )
    part = part_of(blocks * size, mesh, axes)
    return Part(part.values[..., None] + np.arange(size), part.axes).blocks(mesh)


def _labels(part: Part, array: Array) -> tuple[str, ...]:
    return tuple(_MESH + axis for axis in part.axes) + array.dims


def _check_sizes(values: Sequence[Values], labels: Sequence[tuple[str, ...]], wanted: tuple[str, ...]) -> None:
    sizes: dict[str, int] = {}
    for operand, names in zip(values, labels, strict=True):
        for name, size in zip(names, operand.shape, strict=True):
            if sizes.setdefault(name, size) != size:
                raise IllegalStep(f"`{name}` has {sizes[name]} elements on one operand and {size} on the other")
    missing = [name for name in wanted if name not in sizes]
    if missing:
        raise IllegalStep(f"dim `{missing[0]}` of the result is on no operand")


def _reduce_to(values: Values, labels: tuple[str, ...], wanted: tuple[str, ...]) -> Values:
    """Sum what is not wanted, and put the rest in the wanted order."""
    dropped = tuple(i for i, label in enumerate(labels) if label not in wanted)
    left = [label for label in labels if label in wanted]
    summed = values.sum(axis=dropped) if dropped else values
    return summed.transpose([left.index(label) for label in wanted])


def _multiply(
    left: Values, left_labels: tuple[str, ...], right: Values, right_labels: tuple[str, ...], wanted: tuple[str, ...]
) -> Values:
    """One batched matrix product: (batch, rows, inner) · (batch, inner, columns)."""
    shared = [label for label in left_labels if label in right_labels]
    batch = tuple(label for label in shared if label in wanted)
    inner = tuple(label for label in shared if label not in wanted)
    rows = tuple(label for label in left_labels if label in wanted and label not in shared)
    columns = tuple(label for label in right_labels if label in wanted and label not in shared)
    a = _reduce_to(left, left_labels, batch + rows + inner)
    b = _reduce_to(right, right_labels, batch + inner + columns)
    first, last = len(batch), len(b.shape) - len(columns)
    outer, inside = a.shape[:first], math.prod(b.shape[first:last])
    height, width = a.shape[first : first + len(rows)], b.shape[last:]
    product = np.matmul(
        a.reshape(math.prod(outer), math.prod(height), inside),
        b.reshape(math.prod(outer), inside, math.prod(width)),
    )
    return _reduce_to(product.reshape(outer + height + width), batch + rows + columns, wanted)


def _align(values: Values, labels: tuple[str, ...], wanted: tuple[str, ...]) -> Values:
    """The wanted order, with dimensions of size 1 for what the operand lacks."""
    present = [label for label in wanted if label in labels]
    if len(present) != len(labels):
        raise IllegalStep("an operand has a dim that the result lacks")
    ordered = values.transpose([labels.index(label) for label in present])
    return ordered.reshape([values.shape[labels.index(label)] if label in labels else 1 for label in wanted])
