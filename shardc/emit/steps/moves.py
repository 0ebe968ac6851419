"""The JAX calls of moves that take more than one word."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardc.emit.allowed import JOINED
from shardc.emit.exprs import Attr, BinOp, Call, Code, Const, Expr, Index, Items, Name, axes_argument, call, method
from shardc.emit.steps.exchanges import rows, rows_apart
from shardc.emit.steps.pieces import spread
from shardc.ir.collectives import CollectivePermute
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Axes, Sharding
from shardc.lowering.forms import Gathered, Sent
from shardc.lowering.pairs import numbers_in_order
from shardc.lowering.scatters import Round

# Up to so many devices the pairs of a permute are written out.
_FEW = 8


def gathered(form: Gathered, array: Array, target: Name, mesh: Mesh) -> Sequence[Expr | Code]:
    """`A[I_X] → A[I]`, or `A[I_X, J_Y] → A[I, J]`, of an array under the name ""."""
    if form.rows is not None:
        rank = len(array.dims)
        return [rows(rank, form.rows), *_gathers(form, form.dim - 1), rows_apart(rank, form.rows)]
    found = _gathers(form, form.dim)
    if len(form.parts) == 1:
        return found
    return [*found, *spread(target, form.parts, len(array.dims), mesh), Name(JOINED)]


def _gathers(form: Gathered, dim: int) -> list[Expr]:
    to_equal: dict[str, Expr] = {"to": Const("invarying")} if form.to_equal else {}
    fixed = {"axis": Const(dim), "tiled": Name("True"), **to_equal}
    return [
        call("jax.lax.all_gather", Name(""), axes_argument(each.axes), **fixed, **groups(each)) for each in form.spelled
    ]


def groups(each: Round) -> dict[str, Expr]:
    """The devices along a part of an axis: of 8 as 4·2 the major groups are 0 2 4 6 and 1 3 5 7, the minor 0 1, 2 3, ….

    Nothing for a round over whole axes.
    """
    if each.split is None:
        return {}
    numbers = method(call("np.arange", Const(math.prod(each.split))), "reshape", *map(Const, each.split))
    return {"axis_index_groups": method(method(numbers, "transpose") if each.is_major else numbers, "tolist")}


def exchange(value: Expr, axes: Axes, source: int, dim: int) -> Call:
    return call(
        "jax.lax.all_to_all",
        value,
        axes_argument(axes),
        split_axis=Const(dim),
        concat_axis=Const(source),
        tiled=Name("True"),
    )


def slice_of(value: Expr, axes: Axes, dim: int, parts: int) -> Call:
    """The device's block; sizes come from the array, so that the text does not go stale."""
    size = BinOp(Index(Attr(value, "shape"), dim), "//", Const(parts))
    start = BinOp(call("jax.lax.axis_index", axes_argument(axes)), "*", size)
    return call("jax.lax.dynamic_slice_in_dim", value, start, size, axis=Const(dim))


def mask_of(value: Expr, axes: Axes) -> Call:
    """The first device's block; zeros on the others."""
    is_first = BinOp(call("jax.lax.axis_index", axes_argument(axes)), "==", Const(0))
    return call("jax.lax.select", is_first, value, call("jnp.zeros_like", value))


def permute(value: Expr, axes: Axes, sent: Sent, mesh: Mesh) -> Call:
    """Which device sends to which, counted over the move's axes in the order of the mesh.

    `A[I_XY] → A[I_YX]` on X=2, Y=4: device (x, y), number 4x + y, holds block 4x + y, which device (x', y')
    with 2y' + x' = 4x + y wants. Numbers in order of the block that devices hold are 0…7; in order of the
    block that they want, `arange(8).reshape(2, 4).transpose(1, 0)`: 0 4 1 5 2 6 3 7. Side by side, these are
    the (source, destination) pairs.
    """
    held, wanted = sent
    return call("jax.lax.ppermute", value, axes_argument(axes), perm=_pairs(axes, held, wanted, mesh))


def axes_moved(move: CollectivePermute, before: Sharding) -> Sent:
    """The axes of the dims that change, in the orders in which devices count the blocks that they hold, and want."""
    changed = [place for place, (old, new) in enumerate(zip(before.dims, move.dims, strict=True)) if old != new]
    held, wanted = (tuple(axis for place in changed for axis in dims[place]) for dims in (before.dims, move.dims))
    return held, wanted


def _pairs(axes: Axes, held: Axes, wanted: Axes, mesh: Mesh) -> Expr:
    if mesh.product(axes) <= _FEW:
        pairs = zip(numbers_in_order(axes, held, mesh), numbers_in_order(axes, wanted, mesh), strict=True)
        return Items(tuple(Items((Const(a), Const(b))) for a, b in sorted(pairs)), "[]")
    return call("list", call("zip", _order(axes, held, mesh), _order(axes, wanted, mesh)))


def _order(axes: Axes, order: Axes, mesh: Mesh) -> Expr:
    """The same as text that does not grow with the mesh."""
    count = call("np.arange", Const(mesh.product(axes)))
    if order == axes:
        return method(count, "tolist")
    shaped = method(count, "reshape", *(Const(mesh.size(axis)) for axis in axes))
    turned = method(shaped, "transpose", *(Const(axes.index(axis)) for axis in order))
    return method(method(turned, "ravel"), "tolist")
