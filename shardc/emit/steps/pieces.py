"""The JAX calls of moves whose result is laid together from pieces.

The result is made empty, and each piece of it is put in its place, so that it takes no more room than itself:
what a roll, a stack or a concatenation does, the TPU's compiler does in copies. Sizes come from the array, so that
the text does not go stale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardc.emit.allowed import JOINED, PIECE, PLACE, TURN
from shardc.emit.exprs import (
    Attr,
    BinOp,
    Call,
    Code,
    Const,
    Expr,
    Items,
    Line,
    Loop,
    Name,
    axes_argument,
    call,
    method,
    over,
    size_of,
    times,
)
from shardc.ir.collectives import DirectExchange
from shardc.ir.exchange import tails
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding

_JOINED, _PIECE, _PLACE, _TURN = map(Name, (JOINED, PIECE, PLACE, TURN))


def direct_exchange(value: Name, move: DirectExchange, before: Sharding, mesh: Mesh) -> list[Code]:
    """`A[I_X, J_Y] → A[I_YX, J]` on X=2, Y=2: see `ir.collectives.DirectExchange`. Leaves `joined`.

    Devices whose blocks become one are numbered from 0 to k - 1, and so are those that share out a block. In turn t
    number n of the first kind sends its piece n + t, to the one of the second kind with that number. So a device of
    number m gets the part of the device m - t.
    """
    parts, k = tails(before.dims, move.dims, mesh), move.rounds
    cut, join = tuple(part.cut for part in parts), tuple(part.joined for part in parts)
    senders = _devices(move.axes, [(part.old, part.joined) for part in parts], mesh)
    takers = _devices(move.axes, [(part.new, part.cut) for part in parts], mesh)
    turned = call("np.roll", method(senders, "reshape", Const(-1), Const(k)), _TURN, axis=Const(1))
    pairs = call("list", call("zip", _listed(turned), _listed(takers)))
    lines = (
        _line(PLACE, BinOp(_number([(part.old, part.joined) for part in parts], mesh), "+", _TURN)),
        _line(PIECE, _taken(value, cut, _PLACE)),
        _line(PIECE, call("jax.lax.ppermute", _PIECE, axes_argument(move.axes), perm=pairs)),
        _line(PLACE, BinOp(_number([(part.new, part.cut) for part in parts], mesh), "-", _TURN)),
        _put(join, _starts(_PLACE, join, [size_of(_PIECE, d) for d in range(len(join))])),
    )
    return [_empty(value, cut, join), Loop(k, lines)]


def spread(value: Name, parts: tuple[tuple[int, Axes], ...], rank: int, mesh: Mesh) -> list[Code]:
    """What was gathered along the first dim for others, laid along these. Leaves `joined`.

    `A[I_X, J_Y]` on X=2, Y=4, gathered over ("Y", "X") along I: four pieces [I, J/4] one below the other, each
    of two blocks. Beside each other the pieces are A[I, J].
    """
    first, others = parts[0][0], {dim: mesh.product(axes) for dim, axes in parts[1:]}
    count = math.prod(others.values())
    cut = tuple(count if dim == first else 1 for dim in range(rank))
    join = tuple(others.get(dim, 1) for dim in range(rank))
    # The last dim's place counts most.
    starts = _starts(_TURN, join[::-1], [size_of(_PIECE, dim) for dim in range(rank)][::-1])[::-1]
    lines = (
        _line(PIECE, _taken(value, cut, _TURN)),
        _put(join, starts),
    )
    return [_empty(value, cut, join), Loop(count, lines)]


def _empty(value: Name, cut: Sequence[int], join: Sequence[int]) -> Line:
    sizes = tuple(times(j, over(size_of(value, dim), c)) for dim, (c, j) in enumerate(zip(cut, join, strict=True)))
    return _line(JOINED, call("jax.lax.empty", Items(sizes), Attr(value, "dtype")))


def _starts(place: Name, counts: Sequence[int], sizes: Sequence[Expr]) -> list[Expr]:
    """Where the piece of that number begins in each dim: of the dims cut in several, the first counts most.

    Turns stay below the number of pieces, so that the first needs no remainder.
    """
    found, weight = list[Expr](), math.prod(counts)
    below = weight if place == _TURN else None
    for count, length in zip(counts, sizes, strict=True):
        weight //= count
        number = over(place, weight)
        number = number if weight * count == below else BinOp(number, "%", Const(count))
        found.append(BinOp(number, "*", length) if count > 1 else _zero(place))
    return found


def _zero(place: Name) -> Expr:
    """All starts are of one type, also where 64 bits are the rule: axis_index's, or Python's."""
    return Const(0) if place == _TURN else call("jnp.int32", Const(0))


def _taken(value: Name, cut: Sequence[int], place: Name) -> Call:
    sizes = [over(size_of(value, dim), count) for dim, count in enumerate(cut)]
    starts = _starts(place, cut, sizes)
    dims = [dim for dim, count in enumerate(cut) if count > 1]
    if len(dims) == 1:
        dim = dims[0]
        return call("jax.lax.dynamic_slice_in_dim", value, starts[dim], sizes[dim], axis=Const(dim))
    return call("jax.lax.dynamic_slice", value, Items(tuple(starts)), Items(tuple(sizes)))


def _put(join: Sequence[int], starts: Sequence[Expr]) -> Line:
    dims = [dim for dim, count in enumerate(join) if count > 1]
    if len(dims) == 1:
        dim = dims[0]
        put = call("jax.lax.dynamic_update_slice_in_dim", _JOINED, _PIECE, starts[dim], axis=Const(dim))
    else:
        put = call("jax.lax.dynamic_update_slice", _JOINED, _PIECE, Items(tuple(starts)))
    return _line(JOINED, put)


def _line(target: str, expr: Expr) -> Line:
    return Line(target, expr, "")


def _number(groups: Sequence[tuple[Axes, int]], mesh: Mesh) -> Expr:
    """The device's number: of each dim its block's number modulo a count, the dims major to minor."""
    chosen = [(_minor(axes, count, mesh), count) for axes, count in groups if count > 1]
    if all(mesh.product(axes) == count for axes, count in chosen):
        return call("jax.lax.axis_index", axes_argument(tuple(axis for axes, _ in chosen for axis in axes)))
    total: Expr | None = None
    weight = math.prod(count for _, count in chosen)
    for axes, count in chosen:
        weight //= count
        place = call("jax.lax.axis_index", axes_argument(axes))
        term: Expr = place if mesh.product(axes) == count else BinOp(place, "%", Const(count))
        term = BinOp(term, "*", Const(weight)) if weight > 1 else term
        total = term if total is None else BinOp(total, "+", term)
    assert total is not None
    return total


def _minor(axes: Axes, count: int, mesh: Mesh) -> Axes:
    """The fewest minor axes that tell a number modulo `count`."""
    return next(axes[-n:] for n in range(1, len(axes) + 1) if mesh.product(axes[-n:]) % count == 0)


def _devices(axes: Axes, groups: Sequence[tuple[Axes, int]], mesh: Mesh) -> Call:
    """Device numbers, counted over `axes`, in order of (number of the block's group, number within it).

    For each dim the blocks are numbered over some of the axes; `count` of them in a row are a group.
    """
    halves = [_halves(some, count, mesh) for some, count in groups]
    if all(above is not None for above, _ in halves):
        order = [axis for above, _ in halves for axis in above or ()] + [axis for _, below in halves for axis in below]
        return _in_order(axes, order, mesh)
    found = _in_order(axes, [axis for some, _ in groups for axis in some], mesh)
    sizes = [size for some, count in groups if some for size in (mesh.product(some) // count, count)]
    places = range(len(sizes))
    kept = [place for place in (*places[::2], *places[1::2]) if sizes[place] > 1]
    if kept == sorted(kept):
        return found
    found = method(found, "reshape", *(Const(size) for size in sizes if size > 1))
    return method(found, "transpose", *(Const(sorted(kept).index(place)) for place in kept))


def _halves(axes: Axes, count: int, mesh: Mesh) -> tuple[Axes | None, Axes]:
    """The axes that number the groups and those within; None where a group ends within an axis."""
    cut = next((n for n in range(len(axes) + 1) if mesh.product(axes[n:]) == count), None)
    return (None, ()) if cut is None else (axes[:cut], axes[cut:])


def _in_order(axes: Axes, order: list[str], mesh: Mesh) -> Call:
    """Device numbers, counted over `axes`, in the order of counting over `order`."""
    found = call("np.arange", Const(mesh.product(axes)))
    if order == list(axes):
        return found
    found = method(found, "reshape", *(Const(mesh.size(axis)) for axis in axes))
    return method(found, "transpose", *(Const(axes.index(axis)) for axis in order))


def _listed(numbers: Expr) -> Call:
    return method(method(numbers, "ravel"), "tolist")
