"""The moves that lead on from a sharding: one small generator each, in an ordered table.

Whole axes only. A dim's axes are a stack: moves push to the end and pop from the end, since only the
minor axes of a dim can be gathered or exchanged without leaving the blocks strided. Permutes and exchanges
of pieces may lay the same axes anywhere, and whole blocks may go to axes that held copies. What goes further
sees dims as digits: `routes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations, permutations, product, takewhile
from math import comb, prod

from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    JointExchange,
    JointGather,
    JointScatter,
    Move,
    ReduceScatter,
    Slice,
    in_one_round,
)
from shardc.ir.exchange import keeps_some, moved, pieces, tails
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding
from shardc.rules.placements import arrangements, count_arrangements, count_placements

# Exchanges of pieces lead from every arrangement of the same axes to every other: three axes on three dims.
MAX_ARRANGEMENTS = count_arrangements(3, 3)
# Beyond four axes on three dims permutes are left to routes: five axes on four dims lie in 6,720 ways.
MAX_PERMUTED = count_arrangements(4, 3)
MAX_CHANGED = count_placements(3, 7)  # 694; four axes on three dims: 685
# Partial sums over four axes go onto three dims in 684 ways, over eight onto four in 9 million: beyond this fewer
# at a time, and all at once onto a goal (`scatter_onto`).
MAX_SCATTERS = count_placements(3, 7)
MAX_NAMED = count_arrangements(6, 4)  # 60,480


def slices(before: Sharding, mesh: Mesh, pool: Axes) -> Iterator[Move]:
    """`A[I] → A[I_X]` for each axis that holds copies. Slicing over XY is slicing over X, then Y."""
    free = [axis for axis in pool if axis not in before.used]
    for dim in range(before.rank):
        for axis in free:
            yield Slice((axis,), dim)


def gathers(before: Sharding, mesh: Mesh, pool: Axes) -> Iterator[Move]:
    """`A[I_XY] → A[I_X]`, `A[I_XY] → A[I]`: any number of minor axes together."""
    for dim, axes in enumerate(before.dims):
        for minor in _suffixes(axes):
            yield AllGather(minor, dim)


def joint_gathers(before: Sharding, mesh: Mesh, pool: Axes) -> Iterator[Move]:
    """`A[I_X, J_Y] → A[I, J]`: minor axes of several dims together."""
    options = [[(dim, ()), *((dim, minor) for minor in _suffixes(axes))] for dim, axes in enumerate(before.dims)]
    for chosen in product(*options):
        parts = tuple(part for part in chosen if part[1])
        if len(parts) > 1:
            yield JointGather(parts)


def exchanges(before: Sharding, mesh: Mesh, pool: Axes) -> Iterator[Move]:
    """`A[I_XY, J] → A[I_X, J_Y]`: minor axes of one dim to the end of another."""
    for source, axes in enumerate(before.dims):
        for minor in _suffixes(axes):
            for dim in range(before.rank):
                if dim != source:
                    yield AllToAll(minor, source, dim)


def permutes(before: Sharding, mesh: Mesh, pool: Axes) -> Iterator[Move]:
    """`A[I_XY] → A[I_YX]`, `A[I_X, J_Y] → A[I_Y, J_X]`: the same axes elsewhere, local shapes kept."""
    sharded = mesh.ordered(before.sharded)
    if len(sharded) < 2 or count_arrangements(len(sharded), before.rank) > MAX_PERMUTED:
        return
    for dims in _all_fillings(sharded, before.blocks(mesh), mesh):
        if dims != before.dims:
            yield _permute(before.dims, dims, mesh)


def pieces_exchanged(before: Sharding, mesh: Mesh, pool: Axes) -> Iterator[Move]:
    """`A[I_X, J_Y] → A[I_YX, J]`: the same axes elsewhere, local shapes changed. In small spaces only."""
    sharded = mesh.ordered(before.sharded)
    if before.unreduced or before.rank < 2 or count_arrangements(len(sharded), before.rank) > MAX_ARRANGEMENTS:
        return
    for dims in arrangements(sharded, before.rank):
        move = exchange(before.dims, dims, mesh)
        if move is not None and not move.facts.is_named:
            yield move


def exchange(before: tuple[Axes, ...], dims: tuple[Axes, ...], mesh: Mesh) -> Move | None:
    """The one move between two shardings by the same axes; None if they are one, or their blocks do not fit."""
    parts = tails(before, dims, mesh)
    axes, count = moved(parts, mesh), pieces(parts)
    if count is None or not axes:
        return None
    if count == 1:
        return _permute(before, dims, mesh)
    if not keeps_some(parts):
        return DirectExchange(axes, dims, count)
    source = next(dim for dim, part in enumerate(parts) if part.old)
    target = next(dim for dim, part in enumerate(parts) if part.new)
    plain = AllToAll(parts[source].old, source, target)
    expected = list(before)
    expected[source], expected[target] = before[source][: -len(plain.axes)], before[target] + plain.axes
    return plain if tuple(expected) == dims else JointExchange(axes, dims)


def _permute(before: tuple[Axes, ...], dims: tuple[Axes, ...], mesh: Mesh) -> CollectivePermute:
    """Over all axes of the dims that change; over none where only axes of one device stand in another order."""
    changed = {axis for old, new in zip(before, dims, strict=True) if old != new for axis in old + new}
    stays = not moved(tails(before, dims, mesh), mesh)
    return CollectivePermute(() if stays else mesh.ordered(changed), dims)


def changes_of_axes(before: Sharding, mesh: Mesh, pool: Axes) -> Iterator[Move]:
    """`A[I_X] → A[I_Y]`, `A[I_X, J_Y] → A[I_Y, J_Z]`: onto axes that held copies, as large as those that leave; blocks
    stay whole."""
    sharded = mesh.nontrivial(before.sharded)
    free = mesh.nontrivial(axis for axis in pool if axis not in before.used)
    if before.unreduced or not sharded or not free or count_placements(len(sharded + free), before.rank) > MAX_CHANGED:
        return
    blocks = before.blocks(mesh)
    for axes in _subsets(mesh.ordered(sharded + free)):
        if not set(axes) <= before.used and mesh.product(axes) == prod(blocks):
            for dims in _all_fillings(axes, blocks, mesh):
                move = in_one_round(before, dims, mesh)
                assert move is not None, "some block goes elsewhere"
                yield move


def reductions(before: Sharding, mesh: Mesh, pool: Axes) -> Iterator[Move]:
    """`A[I]{U_XY} → A[I]{U_Y}`: over any of the unreduced axes."""
    for axes in _subsets(mesh.ordered(before.unreduced)):
        yield AllReduce(axes)


def scatters(before: Sharding, mesh: Mesh, pool: Axes) -> Iterator[Move]:
    """`A[I]{U_XY} → A[I_YX]`: over any of the unreduced axes, in any order, onto any dim."""
    for subset in _scattered(before, mesh):
        yield from _onto_one(subset, before.rank)


def _onto_one(axes: Axes, rank: int) -> Iterator[Move]:
    for order in permutations(axes):
        for dim in range(rank):
            yield ReduceScatter(order, dim)


def joint_scatters(before: Sharding, mesh: Mesh, pool: Axes) -> Iterator[Move]:
    """`A[I, J]{U_XY} → A[I_X, J_Y]`: over several of the unreduced axes, onto several dims."""
    for subset in _scattered(before, mesh):
        yield from _onto_several(subset, before.rank)


def _onto_several(axes: Axes, rank: int) -> Iterator[Move]:
    for dims in arrangements(axes, rank) if len(axes) > 1 else ():
        parts = tuple((dim, axes) for dim, axes in enumerate(dims) if axes)
        if len(parts) > 1:
            yield JointScatter(parts)


def named_scatters(before: Sharding, mesh: Mesh, axes: Axes | None) -> Iterator[Move]:
    """Every scatter over these axes, or any, as far as can be gone through; else onto one dim as they are named."""
    if axes is not None and not before.unreduced.issuperset(axes):
        return
    every = _subsets(mesh.ordered(before.unreduced)) if axes is None else iter([axes])
    chosen = [subset for subset in every if count_arrangements(len(subset), before.rank) <= MAX_NAMED]
    for subset in chosen:
        yield from _onto_one(subset, before.rank)
    for subset in chosen:
        yield from _onto_several(subset, before.rank)
    if not chosen and axes is not None:
        yield from (ReduceScatter(axes, dim) for dim in range(before.rank))


def _scattered(before: Sharding, mesh: Mesh) -> Iterator[Axes]:
    """Over which axes scatters are listed: of one axis, then of two, as far as they are few enough together."""
    axes, count = mesh.ordered(before.unreduced), 1  # what `count_placements` counts: over none as well
    for length in range(1, len(axes) + 1):
        count += comb(len(axes), length) * count_arrangements(length, before.rank)
        if count > MAX_SCATTERS:
            return
        yield from combinations(axes, length)


def scatter_onto(before: Sharding, goal: Sharding) -> Move | None:
    """The scatter of all axes that the goal has behind those that are there, where scatters are not all listed.

    A[I_X, J]{U_YZ} → A[I_XY, J_Z]      onto A[I_XY, J_Z], or onto A[I_XYA, J_ZB]; onto A[I_Y, J_Z] over Z alone
    """
    if count_placements(len(before.unreduced), before.rank) <= MAX_SCATTERS:
        return None
    summed = before.unreduced - goal.unreduced
    added = (
        tuple(takewhile(summed.__contains__, new[len(old) :])) if new[: len(old)] == old else ()
        for old, new in zip(before.dims, goal.dims, strict=True)
    )
    parts = tuple((dim, axes) for dim, axes in enumerate(added) if axes)
    if not parts:
        return None
    (dim, axes), *others = parts
    return JointScatter(parts) if others else ReduceScatter(axes, dim)


Rule = Callable[[Sharding, Mesh, Axes], Iterator[Move]]
MOVES: tuple[Rule, ...] = (
    slices,
    gathers,
    joint_gathers,
    reductions,
    scatters,
    joint_scatters,
    exchanges,
    permutes,
    changes_of_axes,
    pieces_exchanged,
)


UNTYPED = (changes_of_axes,)  # those that leave blocks equal along axes for which JAX's types do not say so


def moves(before: Sharding, mesh: Mesh, pool: Axes, is_typed: bool = False) -> Iterator[Move]:
    """Every move from a sharding. `pool` are the axes that a Slice may take; `is_typed`: of every value the type says
    along which axes it is equal."""
    for rule in MOVES:
        if not (is_typed and rule in UNTYPED):
            yield from rule(before, mesh, pool)


def masks(before: Sharding, pool: Axes) -> Iterator[Move]:
    """`A[I] → A[I]{U_X}` for each axis that holds copies.

    Not among the moves, since it only ever comes last: whatever is moved after it could be moved before, and to reduce
    or scatter what it left is to keep or slice what there was.
    """
    return (Mask((axis,)) for axis in pool if axis not in before.used)


def _suffixes(axes: Axes) -> Iterator[Axes]:
    for length in range(1, len(axes) + 1):
        yield axes[-length:]


def _subsets(axes: Axes) -> Iterator[Axes]:
    for length in range(1, len(axes) + 1):
        yield from combinations(axes, length)


@lru_cache(maxsize=4096)
def _all_fillings(axes: Axes, blocks: tuple[int, ...], mesh: Mesh) -> tuple[tuple[Axes, ...], ...]:
    return tuple(fillings(axes, blocks, mesh))


def fillings(axes: Axes, blocks: tuple[int, ...], mesh: Mesh) -> Iterator[tuple[Axes, ...]]:
    """All ways to lay out the axes over dims that cut dim i into blocks[i]."""
    if not blocks:
        if not axes:
            yield ()
        return
    for first in _orders_of_product(axes, blocks[0], mesh):
        rest = tuple(axis for axis in axes if axis not in first)
        for others in fillings(rest, blocks[1:], mesh):
            yield (first, *others)


def _orders_of_product(axes: Axes, product: int, mesh: Mesh) -> Iterator[Axes]:
    """Ordered choices of axes whose sizes multiply to `product`."""
    if product == 1:
        yield ()
    for axis in axes:
        quotient, remainder = divmod(product, mesh.size(axis))
        if remainder == 0 and quotient >= 1:
            rest = tuple(other for other in axes if other != axis)
            for tail in _orders_of_product(rest, quotient, mesh):
                yield (axis, *tail)
