"""Who sends to whom in a CollectivePermute, by device numbers on the mesh.

    A[I_XY] → A[I_YX], X=2, Y=2        0→0 1→2 2→1 3→3

Device (x, y), number 2x + y, holds block 2x + y, and device (x', y') wants block 2y' + x': the devices in order of
the block that they hold, 0 1 2 3, beside those in order of the block that they want, 0 2 1 3, are the pairs.
"""

from __future__ import annotations

from typing import assert_never

from shardc.ir.collectives import AllReduce, AllToAll, CollectivePermute, Slice
from shardc.ir.digits import Reshape
from shardc.ir.exchange import Pairs, tails
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Einsum
from shardc.ir.sharding import Axes, Sharding
from shardc.lowering.forms import (
    Gathered,
    InOneRound,
    InRounds,
    InTurns,
    OneForm,
    Pieces,
    Plain,
    PlainOp,
    Scattered,
    Sent,
)


def sent_by(form: OneForm, before: Sharding, mesh: Mesh) -> Sent:
    """The axes in whose order blocks are held and wanted; nothing of a form that is no permute of whole blocks."""
    match form:
        case Plain(op):
            return _of_plain(op, before, mesh)
        case InOneRound(op):
            return whole_blocks(before, op.dims, mesh)
        case Gathered() | Scattered() | Pieces() | InTurns() | InRounds():
            return NOTHING
        case _:
            assert_never(form)


def _of_plain(op: PlainOp, before: Sharding, mesh: Mesh) -> Sent:
    match op:
        case CollectivePermute():
            return whole_blocks(before, op.dims, mesh)
        case Einsum() | Apply() | Reshape() | AllReduce() | AllToAll() | Slice() | Mask():
            return NOTHING
        case _:
            assert_never(op)


def whole_blocks(before: Sharding, dims: tuple[Axes, ...], mesh: Mesh) -> Sent:
    """Of blocks that stay whole. Copies are told apart by the axes that sharded them, or are to."""
    parts = tails(before.dims, dims, mesh)
    held = tuple(axis for part in parts for axis in part.old)
    wanted = tuple(axis for part in parts for axis in part.new)
    return (*held, *(axis for axis in wanted if axis not in held)), (*wanted, *(a for a in held if a not in wanted))


NOTHING: Sent = ((), ())


def pairs_of(sent: Sent, mesh: Mesh) -> Pairs:
    """Sender and taker of every block, on all devices."""
    held, wanted = sent
    others = tuple(axis for axis in mesh.names if axis not in held)
    orders = (numbers_in_order(mesh.names, (*others, *order), mesh) for order in (held, wanted))
    return tuple(zip(*orders, strict=True))


def pairs_along(axes: Axes, pairs: Pairs, mesh: Mesh) -> Pairs:
    """Pairs of devices told apart by these axes, wherever they stand along the others, by device numbers."""
    others, count = tuple(axis for axis in mesh.names if axis not in axes), mesh.product(axes)
    numbers = numbers_in_order(mesh.names, (*others, *axes), mesh)
    starts = range(0, len(numbers), count)
    return tuple((numbers[start + one], numbers[start + other]) for start in starts for one, other in pairs)


def numbers_in_order(axes: Axes, order: Axes, mesh: Mesh) -> list[int]:
    """Device numbers, counted over `axes`, in the order of counting over `order`."""
    strides = {axis: mesh.product(axes[place + 1 :]) for place, axis in enumerate(axes)}
    numbers = [0]
    for axis in order:
        numbers = [number + index * strides[axis] for number in numbers for index in range(mesh.size(axis))]
    return numbers
