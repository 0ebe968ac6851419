"""The JAX calls of an exchange in which pieces are brought to the front, sent, and laid where they belong.

Each expression reads the one before, as the variable named "". Sizes come from the array, so that the text does
not go stale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from shardc.emit.exprs import Const, Expr, Name, axes_argument, call, method, over, size_of, times
from shardc.ir.digits import Reshape
from shardc.ir.exchange import tails
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Axes

# The parts of a dim but what is left of it, major to minor: a label and a size each.
Factors: TypeAlias = tuple[tuple[str, int], ...]
_VALUE = Name("")


def joint_exchange(axes: Axes, before: tuple[Axes, ...], after: tuple[Axes, ...], mesh: Mesh) -> list[Expr]:
    """`A[I_XY, J, K] → A[I, J_X, K_Y]` on X=2, Y=4: the eight pieces [8, I, J/2, K/4] to the front, piece n to
    device n of X and Y; what came from device n is part n of I."""
    parts, wide = tails(before, after, mesh), tuple(axis for axis in axes if mesh.size(axis) > 1)
    return [
        *to_front([by_axis(part.new, mesh) for part in parts], wide),
        sent(wide),
        *from_front([by_axis(part.old, mesh) for part in parts], wide),
    ]


def sent(axes: Axes) -> Expr:
    """Piece n to device n, and from it."""
    return call(
        "jax.lax.all_to_all", _VALUE, axes_argument(axes), split_axis=Const(0), concat_axis=Const(0), tiled=Name("True")
    )


def reshape(op: Reshape, digits: Array, mesh: Mesh) -> Expr:
    """A local block with dims as digits, or with digits as dims. `digits` is the side that has them."""
    local, place, sizes = digits.local_shape(mesh), 0, list[Expr]()
    for dim, some in enumerate(op.sizes):
        above = local[place : place + len(some)]
        if op.joins:
            sizes.append(times(math.prod(above), size_of(_VALUE, place + len(some))))
        else:
            sizes += [*map(Const, above), over(size_of(_VALUE, dim), math.prod(above))]
        place += len(some) + 1
    return method(_VALUE, "reshape", *sizes)


def rows(rank: int, digit: int) -> Expr:
    """[I, 4, J] → [I·4, J]: a digit's elements as rows of what is above it."""
    sizes = [size_of(_VALUE, dim) for dim in range(rank - 2)]
    return method(_VALUE, "reshape", *sizes[:-1], times(digit, sizes[-1]), size_of(_VALUE, rank - 1))


def rows_apart(rank: int, digit: int) -> Expr:
    """[I·4, J] → [I, 4, J]."""
    *sizes, last = [size_of(_VALUE, dim) for dim in range(rank - 1)]
    return method(_VALUE, "reshape", *sizes[:-1], over(sizes[-1], digit), Const(digit), last)


def to_front(dims: Sequence[Factors], order: Sequence[str]) -> list[Expr]:
    """[I, J] with parts p of I and q of J → [p·q, I/p, J/q]: dims are cut, the parts come first and become one."""
    cut, labels = list[Expr](), list[str]()
    for dim, parts in enumerate(dims):
        cut += [*(Const(size) for _, size in parts), over(size_of(_VALUE, dim), math.prod(size for _, size in parts))]
        labels += [*(label for label, _ in parts), ""]
    rests = [place for place, label in enumerate(labels) if not label]
    found = [method(_VALUE, "reshape", *cut), *_transposed([*map(labels.index, order), *rests])]
    if len(order) > 1:
        sizes = {label: size for parts in dims for label, size in parts}
        count = Const(math.prod(sizes[label] for label in order))
        found.append(method(_VALUE, "reshape", count, *(size_of(_VALUE, len(order) + dim) for dim in range(len(dims)))))
    return found


def from_front(dims: Sequence[Factors], order: Sequence[str]) -> list[Expr]:
    """[p·q, I, J] → [I·p, J·q], the way back."""
    sizes = {label: size for parts in dims for label, size in parts}
    found = list[Expr]()
    if len(order) > 1:
        found.append(
            method(
                _VALUE,
                "reshape",
                *(Const(sizes[label]) for label in order),
                *(size_of(_VALUE, dim) for dim in range(1, len(dims) + 1)),
            )
        )
    places, joined = list[int](), list[Expr]()
    for dim, parts in enumerate(dims):
        places += [*(order.index(label) for label, _ in parts), len(order) + dim]
        joined.append(times(math.prod(size for _, size in parts), size_of(_VALUE, len(places) - 1)))
    return [*found, *_transposed(places), method(_VALUE, "reshape", *joined)]


def _transposed(order: Sequence[int]) -> list[Expr]:
    return [] if list(order) == sorted(order) else [method(_VALUE, "transpose", *map(Const, order))]


def by_axis(axes: Axes, mesh: Mesh) -> Factors:
    return tuple((axis, mesh.size(axis)) for axis in axes)
