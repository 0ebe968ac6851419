"""The JAX calls of exchanges between dims: pieces are brought to the front, sent, and laid where they belong.

Each expression reads the one before, as the variable named "". Sizes come from the array, so that the text does
not go stale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from shardc.backend.allowed import TURN
from shardc.backend.exprs import Attr, BinOp, Call, Const, Each, Expr, Index, Name, axes_argument, call, method
from shardc.ir.collectives import DirectExchange, JointExchange
from shardc.ir.digits import Reshape
from shardc.ir.exchange import tails
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Axes, Sharding

# The parts of a dim but what is left of it, major to minor: a label and a size each.
Parts: TypeAlias = tuple[tuple[str, int], ...]
_VALUE = Name("")


def joint_exchange(move: JointExchange, before: Sharding, mesh: Mesh) -> list[Expr]:
    """`A[I_XY, J, K] → A[I, J_X, K_Y]` on X=2, Y=4: the eight pieces [8, I, J/2, K/4] to the front, piece n to
    device n of X and Y; what came from device n is part n of I."""
    parts = tails(before.dims, move.dims, mesh)
    axes = axes_argument(move.axes)
    return [
        *_to_front([_by_axis(part.new, mesh) for part in parts], move.axes),
        call("jax.lax.all_to_all", _VALUE, axes, split_axis=Const(0), concat_axis=Const(0), tiled=Name("True")),
        *_from_front([_by_axis(part.old, mesh) for part in parts], move.axes),
    ]


def direct_exchange(move: DirectExchange, before: Sharding, mesh: Mesh) -> list[Expr]:
    """`A[I_X, J_Y] → A[I_YX, J]` on X=2, Y=2: see `ir.collectives.DirectExchange`.

    Devices whose blocks become one are numbered from 0 to k - 1, and so are those that share out a block. In turn t
    number n of the first kind sends its piece n + t, to the one of the second kind with that number. So a device of
    number m gets the part of the device m - t: the turns in reverse, turned on by m + 1, are the parts in order.
    """
    parts, k = tails(before.dims, move.dims, mesh), move.rounds
    cut = [((str(dim), part.cut),) if part.cut > 1 else () for dim, part in enumerate(parts)]
    join = [((str(dim), part.joined),) if part.joined > 1 else () for dim, part in enumerate(parts)]
    senders = _devices(move.axes, [(part.old, part.joined) for part in parts], mesh)
    takers = _devices(move.axes, [(part.new, part.cut) for part in parts], mesh)
    turned = call("np.roll", method(senders, "reshape", Const(-1), Const(k)), Name(TURN), axis=Const(1))
    pairs = call("list", call("zip", _listed(turned), _listed(takers)))
    sent = call("jax.lax.ppermute", Index(_VALUE, Name(TURN)), axes_argument(move.axes), perm=pairs)
    number = _number([(part.old, part.joined) for part in parts], mesh)
    own = _number([(part.new, part.cut) for part in parts], mesh)
    return [
        *_to_front(cut, [label for some in cut for label, _ in some]),
        call("jnp.roll", _VALUE, BinOp(Const(k), "-", number), axis=Const(0)),
        Each(sent, TURN, call("reversed", call("range", Const(k)))),
        call("jnp.roll", call("jnp.stack", _VALUE), BinOp(own, "+", Const(1)), axis=Const(0)),
        *_from_front(join, [label for some in join for label, _ in some]),
    ]


def reshape(op: Reshape, digits: Array, mesh: Mesh) -> Expr:
    """A local block with dims as digits, or with digits as dims. `digits` is the side that has them."""
    local, place, sizes = digits.local_shape(mesh), 0, list[Expr]()
    for dim, some in enumerate(op.sizes):
        above = local[place : place + len(some)]
        if op.joins:
            sizes.append(_times(math.prod(above), _size(place + len(some))))
        else:
            sizes += [*map(Const, above), _over(_size(dim), math.prod(above))]
        place += len(some) + 1
    return method(_VALUE, "reshape", *sizes)


def _to_front(dims: Sequence[Parts], order: Sequence[str]) -> list[Expr]:
    """[I, J] with parts p of I and q of J → [p·q, I/p, J/q]: dims are cut, the parts come first and become one."""
    cut, labels = list[Expr](), list[str]()
    for dim, parts in enumerate(dims):
        cut += [*(Const(size) for _, size in parts), _over(_size(dim), math.prod(size for _, size in parts))]
        labels += [*(label for label, _ in parts), ""]
    rests = [place for place, label in enumerate(labels) if not label]
    found = [method(_VALUE, "reshape", *cut), *_transposed([*map(labels.index, order), *rests])]
    if len(order) > 1:
        sizes = {label: size for parts in dims for label, size in parts}
        count = Const(math.prod(sizes[label] for label in order))
        found.append(method(_VALUE, "reshape", count, *(_size(len(order) + dim) for dim in range(len(dims)))))
    return found


def _from_front(dims: Sequence[Parts], order: Sequence[str]) -> list[Expr]:
    """[p·q, I, J] → [I·p, J·q], the way back."""
    sizes = {label: size for parts in dims for label, size in parts}
    found = list[Expr]()
    if len(order) > 1:
        found.append(
            method(_VALUE, "reshape", *(Const(sizes[label]) for label in order), *map(_size, range(1, len(dims) + 1)))
        )
    places, joined = list[int](), list[Expr]()
    for dim, parts in enumerate(dims):
        places += [*(order.index(label) for label, _ in parts), len(order) + dim]
        joined.append(_times(math.prod(size for _, size in parts), _size(len(places) - 1)))
    return [*found, *_transposed(places), method(_VALUE, "reshape", *joined)]


def _transposed(order: Sequence[int]) -> list[Expr]:
    return [] if list(order) == sorted(order) else [method(_VALUE, "transpose", *map(Const, order))]


def _by_axis(axes: Axes, mesh: Mesh) -> Parts:
    return tuple((axis, mesh.size(axis)) for axis in axes)


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
    sizes = [(mesh.product(some) // count, count) for some, count in groups if some]
    places = [*range(0, 2 * len(sizes), 2), *range(1, 2 * len(sizes), 2)]
    kept = [place for place in places if sizes[place // 2][place % 2] > 1]
    if kept == sorted(kept):
        return found
    shape = [size for pair in sizes for size in pair if size > 1]
    found = method(found, "reshape", *map(Const, shape))
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


def _size(dim: int) -> Expr:
    return Index(Attr(_VALUE, "shape"), dim)


def _over(size: Expr, parts: int) -> Expr:
    return BinOp(size, "//", Const(parts)) if parts > 1 else size


def _times(parts: int, size: Expr) -> Expr:
    return BinOp(Const(parts), "*", size) if parts > 1 else size
