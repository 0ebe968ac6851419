"""Routes of which one move is an exchange in pieces of unequal sizes, where that alone is too long to be written.

Its tables have a number for each cell that a device wants (`ir.uneven`). Each wants fewer where the target's blocks are
cut on, over axes that are to hold copies, and gathered once they are there:

    A[I_YX] → A[I_W]         W=6, X=2·5, Y=3·5: of 150 cells each device wants 25. Exchange A[I_{W,Y1,X1}], a cell in
                             one round; gather Y1, X1

That is as good as the exchange alone: of w cells that some device wants, and has none of, it brings w/n, and the gather
over n devices the others. Where this is too long as well, or no axis is to hold copies, an axis, or a part of one, goes
by an exchange of equal pieces before it or after it, which brings a block more at most:

    A[I_X, J_W, K_Y] → A[I_YW, J, K_X]         W=2·3, X=4, Y=9: exchange A[I_{Y,W0}, J_W1, K_X]; W1 from J to I
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, count, product
from typing import NamedTuple

from shardc.ir.collectives import uneven_exchange
from shardc.ir.exchange import tails
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding
from shardc.ir.uneven import cells, is_short, numbers
from shardc.rules.moves import exchange
from shardc.rules.routes import Layout, Route, added, gathered

MAX_CUTS = 64  # ways to cut the target's blocks on, those into most blocks first


class _Leg(NamedTuple):
    """Some moves between two layouts, and the elements that they bring to each device."""

    before: Layout
    after: Layout
    moves: Route
    brings: int


class Unequal(NamedTuple):
    """The elements that a route brings to each device, and the numbers of its exchange; which of several it is; and
    what comes before the exchange and after it."""

    brings: int
    numbers: int
    place: int
    first: _Leg
    last: _Leg


def unequal(source: Sharding, target: Sharding, shape: tuple[int, ...], mesh: Mesh, pool: Axes) -> Unequal | None:
    """The route that brings least, of those the one of fewest numbers; None where none can be written. Its exchange is
    not worked out yet."""
    if source.unreduced or target.unreduced:
        return None
    return min(_ways(source.dims, target.dims, shape, mesh, pool), default=None)


def in_unequal_pieces(
    source: Sharding, target: Sharding, shape: tuple[int, ...], mesh: Mesh, pool: Axes
) -> list[Route]:
    """The same as moves: one route, or none."""
    found = unequal(source, target, shape, mesh, pool)
    if found is None:
        return []
    move = uneven_exchange(Sharding(found.first.after), found.last.before, mesh)
    return [] if move is None else [(*found.first.moves, move, *found.last.moves)]


def _ways(source: Layout, target: Layout, shape: tuple[int, ...], mesh: Mesh, pool: Axes) -> Iterator[Unequal]:
    total = math.prod(shape)
    stays = _Leg(source, source, (), 0)
    moved = [leg for dims in _moved(source, shape, mesh) if (leg := _exchanged(source, dims, shape, mesh))]
    places = count()
    for gather in _gathers(source, target, total, mesh, pool):
        ends = [gather, *_before(gather, shape, mesh)]
        for first, last in (*((stays, last) for last in ends), *((first, gather) for first in moved)):
            parts = tails(first.after, last.before, mesh)
            if is_short(parts, mesh):
                found = cells(parts)
                brought = total // _blocks(first.after, mesh) * found.asked // found.block
                yield Unequal(first.brings + brought + last.brings, numbers(parts, mesh), next(places), first, last)


def _gathers(source: Layout, target: Layout, total: int, mesh: Mesh, pool: Axes) -> Iterator[_Leg]:
    """To the target, from its blocks cut on: no finer than where blocks of the source end as well."""
    most = tuple(map(math.lcm, Sharding(source).blocks(mesh), Sharding(target).blocks(mesh)))
    for cut in _cut_on(target, most, mesh, pool)[:MAX_CUTS]:
        brings = total // _blocks(target, mesh) - total // _blocks(cut, mesh)
        yield _Leg(cut, target, tuple(gathered(added(target, cut))), brings)


@lru_cache(maxsize=1024)
def _cut_on(target: Layout, most: tuple[int, ...], mesh: Mesh, pool: Axes) -> tuple[Layout, ...]:
    """Ways to put axes that it lacks to the ends of the target's dims, each into no more blocks than that; those into
    most blocks first, the target itself last."""
    found = [target]
    for axis in mesh.nontrivial(tuple(axis for axis in pool if axis not in chain(*target))):
        found += [
            (*dims[:place], (*own, axis), *dims[place + 1 :])
            for dims in found
            for place, own in enumerate(dims)
            if most[place] % (mesh.product(own) * mesh.size(axis)) == 0
        ]
    return tuple(sorted(found, key=lambda dims: -_blocks(dims, mesh)))


def _before(gather: _Leg, shape: tuple[int, ...], mesh: Mesh) -> Iterator[_Leg]:
    """An exchange of equal pieces to where a gather starts from, and that."""
    for dims in _moved(gather.before, shape, mesh):
        leg = _exchanged(dims, gather.before, shape, mesh)
        if leg is not None:
            yield _Leg(dims, gather.after, (*leg.moves, *gather.moves), leg.brings + gather.brings)


def _exchanged(before: Layout, after: Layout, shape: tuple[int, ...], mesh: Mesh) -> _Leg | None:
    """An exchange of equal pieces, or of whole blocks; None if they do not fit."""
    move, local = exchange(before, after, mesh), math.prod(shape) // _blocks(before, mesh)
    return None if move is None else _Leg(before, after, (move,), move.wire_bytes(Sharding(before), mesh, local))


@lru_cache(maxsize=1024)
def _moved(dims: Layout, shape: tuple[int, ...], mesh: Mesh) -> tuple[Layout, ...]:
    """Where the last axes of a dim, or any one of them, stand at the end of another."""
    found = list[Layout]()
    for place, own in enumerate(dims):
        parts = [*(own[n:] for n in range(len(own))), *((axis,) for axis in own[:-1])]
        for axes, other in product(parts, range(len(dims))):
            longer, left = [*dims], tuple(axis for axis in own if axis not in axes)
            longer[place], longer[other] = left, (*dims[other], *axes)
            if other != place and shape[other] % mesh.product(longer[other]) == 0:
                found.append(tuple(longer))
    return tuple(found)


def _blocks(dims: Layout, mesh: Mesh) -> int:
    return mesh.product(tuple(chain(*dims)))
