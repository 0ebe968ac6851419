"""From one sharding to another in as few bytes as any method needs, with no search.

With G the axes that go and N those that come, both of more than one device, a route slices N, exchanges blocks
among devices that hold different ones, and gathers G. Of the target's block a device then receives all but what
it has:

    in pieces   some dim is cut by other axes than before: a device may have nothing of what it needs, so an
                exchange may move whole blocks. G goes to the ends of the target's dims, N to the ends of the
                source's, where blocks then come in the fewest pieces

                A[I_X, J_Z] → A[I_Y, J]     slice A[I_XY, J_Z], permute A[I_YX, J_Z], gather A[I_Y, J]

    in digits   no dim is: every device keeps a part. G is gathered and N is sliced where they stand, and only the
                axes on both sides move. Where that is above an axis that leaves or comes, the dim is seen as digits

                A[I_XY, J] → A[I, J_X]      as A[I0_X, I1_Y, J]: exchange A[I0, I1_Y, J_X], gather A[I0, I1, J_X]

In digits partial sums are reduced and scattered where their axes come to stand, once the others that come are sliced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, product, takewhile
from math import lcm, prod
from typing import TypeAlias

from shardc.ir.collectives import AllGather, AllReduce, JointGather, JointScatter, Move, ReduceScatter, Slice
from shardc.ir.digits import Reshape
from shardc.ir.exchange import keeps_some, tails
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding, shared
from shardc.rules.moves import exchange, fillings

MAX_EXTENDED = 128  # ways to put axes to the ends of dims: every pair of such, before and after, is compared
MAX_TRIED = 512
Layout: TypeAlias = tuple[Axes, ...]  # of each dim its axes
Route: TypeAlias = tuple[Move | Reshape, ...]


def route(source: Sharding, target: Sharding, shape: tuple[int, ...], mesh: Mesh) -> Route | None:
    """A route that moves the fewest bytes; None if blocks do not fit, or sums are not scattered over the target."""
    if any(mesh.size(axis) == 1 for axis in source.used.union(target.sharded)) or not _scatters(source, target):
        return None
    if keeps_some(tails(source.dims, target.dims, mesh)):
        return _in_digits(source, target.dims, mesh)
    return None if source.unreduced else _in_pieces(source.dims, target.dims, shape, mesh)


def plainly(source: Sharding, target: Sharding, mesh: Mesh) -> Iterator[Route]:
    """The routes with no exchange of pieces, which need nothing of shapes but what source and target do.

    `A[I_X, J]{U_Z} → A[I_Y, J_W]`: slice W, AllReduce Z, gather X, slice Y. And where blocks may change devices first
    so that less is to be gathered: `A[I_X, J_Y] → A[I_Y, J_Z]` with X=2, Y=2: permute `A[I_Y, J_X]`, then gather X,
    slice Z. What is to be scattered is scattered too (`_scattered`). There are none where partial sums are wanted that
    do not arrive.
    """
    if not source.unreduced >= target.unreduced:
        return
    early = tuple(
        old + _free(new[len(old) :], source.used) if new[: len(old)] == old else old
        for old, new in zip(source.dims, target.dims, strict=True)
    )
    summed = mesh.ordered(source.unreduced - target.unreduced)
    slices: Route = tuple(Slice(axes, dim) for dim, axes in added(source.dims, early))
    first: Route = (*slices, *([AllReduce(summed)] if summed else []))
    yield (*first, *_regathered(early, target.dims))
    if not set(summed).isdisjoint(target.sharded):
        yield from ((*slices, *each) for each in _scattered(early, target.dims, summed, mesh))
    permuted = None if source.unreduced else _nearest(early, target.dims, mesh)
    move = None if permuted is None else exchange(early, permuted, mesh)
    if permuted is not None and move is not None:
        yield (*first, move, *_regathered(permuted, target.dims))


def _scattered(source: Layout, target: Layout, summed: Axes, mesh: Mesh) -> Iterator[Route]:
    """Scatter what of the sums is to stand behind what stands there, reduce the rest, and regather. And where no axis
    goes: scatter the rest as well, wherever there is room for as many blocks, and move all of them at once.

    `A[I, J_Y]{U_XZ} → A[I_X, J_Z]`, and `A[I_A, J]{U_BCD} → A[I_DC, J_BA]`, all of 2: ReduceScatter A[I_A, J_B]{U_CD},
    A[I_AC, J_B]{U_D}, A[I_AC, J_BD]; permute.
    """
    direct = tuple(
        old + tuple(takewhile(summed.__contains__, new[len(old) :])) if new[: len(old)] == old else old
        for old, new in zip(source, target, strict=True)
    )
    rest = tuple(axis for axis in summed if axis not in chain(*direct))
    if direct != source:
        yield (*_summed(source, direct, rest, mesh), *_regathered(direct, target))
    here, left = set(chain(*target)), tuple(axis for axis in rest if axis in chain(*target))
    if not left or {*chain(*direct), *left} != here:
        return
    room = tuple(mesh.product(new) // mesh.product(own) for new, own in zip(target, direct, strict=True))
    for more in islice(fillings(left, room, mesh), 1):  # none where one is no multiple of the other
        layout = tuple(own + axes for own, axes in zip(direct, more, strict=True))
        move = exchange(layout, target, mesh)
        if move is not None:
            yield (*_summed(source, layout, tuple(axis for axis in rest if axis not in left), mesh), move)


def _summed(source: Layout, scattered: Layout, reduced: Axes, mesh: Mesh) -> Route:
    """Partial sums scattered to the ends of dims, over many devices first, and others reduced, once there is less."""
    scatters = [ReduceScatter(axes, dim) for dim, axes in added(source, scattered)]
    scatters.sort(key=lambda move: -mesh.product(move.axes))
    return (*scatters, *([AllReduce(reduced)] if reduced else []))


def _regathered(source: Layout, target: Layout) -> Route:
    """Gather whatever is not as in the target, slice the rest of it."""
    left = tuple(map(shared, source, target))
    return (*gathered(added(left, source)), *(Slice(axes, dim) for dim, axes in added(left, target)))


@lru_cache(maxsize=16384)
def _nearest(source: Layout, target: Layout, mesh: Mesh) -> Layout | None:
    """The same axes on as many blocks, dim after dim as many as fit where the target has them; None if none do."""
    blocks, left = list(map(mesh.product, source)), mesh.ordered(axis for some in source for axis in some)
    kept = list[Axes]()
    for dim, wanted in enumerate(target):
        own = tuple(takewhile(left.__contains__, wanted))
        while blocks[dim] % mesh.product(own):
            own = own[:-1]
        kept.append(own)
        blocks[dim] //= mesh.product(own)
        left = tuple(axis for axis in left if axis not in own)
    rest = next(fillings(left, tuple(blocks), mesh), None)
    return None if rest is None else tuple(own + more for own, more in zip(kept, rest, strict=True))


def _free(axes: Axes, used: frozenset[str]) -> Axes:
    return tuple(takewhile(lambda axis: axis not in used, axes))


def aligned(source: Sharding, target: Sharding, shape: tuple[int, ...], mesh: Mesh) -> Reshape:
    """Dims cut wherever blocks of both end: whatever a route does above a cut, it may do another thing below.

    `A[I_W] → A[I_XY]`, all of 2 and I = 4, as `A[I0_W, I1] → A[I0_X, I1_Y]`: slice Y, gather W, slice X. Whole, I is
    gathered first.
    """
    sizes = []
    for size, old, new in zip(shape, source.dims, target.dims, strict=True):
        ends = [[mesh.product(axes[: n + 1]) for n in range(len(axes))] or [1] for axes in (old, new)]
        both = sorted(
            end
            for end in {*ends[0], *ends[1]}
            if 1 < end < size and all(end in own or end % own[-1] == 0 for own in ends)
        )
        sizes.append(tuple(end // before for before, end in zip([1, *both], both, strict=False)))
    return Reshape(tuple(sizes), joins=False)


def depends_on_shape(source: Sharding, target: Sharding, mesh: Mesh) -> bool:
    """Whether the route is chosen by where blocks divide: in pieces."""
    return not keeps_some(tails(source.dims, target.dims, mesh))


def needs_digits(source: Sharding, target: Sharding, mesh: Mesh) -> bool:
    """Whether an axis that is gathered or sliced stands below one that moves: whole axes do not get there so."""
    if all(abs(len(old) - len(new)) < 2 for old, new in zip(source.dims, target.dims, strict=True)):
        return False  # no axis is below another that one side lacks
    if not _scatters(source, target) or not keeps_some(tails(source.dims, target.dims, mesh)):
        return False
    return any(len(digits) > 1 for digits in _digits(source, target.dims))


def _scatters(source: Sharding, target: Sharding) -> bool:
    """Whether all partial sums become sums, each device holding a part."""
    return not target.unreduced and source.unreduced.issubset(target.sharded)


@dataclass(frozen=True, slots=True)
class _Digit:
    """A part of a dim: its axes before and after, those of one in front of those of the other."""

    old: Axes
    new: Axes

    @property
    def longer(self) -> Axes:
        return max(self.old, self.new, key=len)

    def filled(self, later: frozenset[str]) -> Axes:
        """Its axes when those that come have come, except some that do so later."""
        return max(self.old, tuple(a for a in self.new if a not in later), key=len)

    def exchanged(self, moving: frozenset[str]) -> Axes:
        """Its axes when all that move have moved, and nothing is gathered yet."""
        return max(self.new, tuple(a for a in self.old if a not in moving), key=len)


def _moving(source: Sharding, target: Layout) -> frozenset[str]:
    """The axes on both sides that are not where they were."""
    stood = {axis: dim for dim, axes in enumerate(source.dims) for axis in axes}
    return frozenset(axis for dim, axes in enumerate(target) for axis in axes if stood.get(axis, dim) != dim)


def _digits(source: Sharding, target: Layout) -> list[tuple[_Digit, ...]]:
    """The digits of each dim.

    Axes are sliced, then reduced, then moved; or moved, then gathered. Those of a digit come and go in this order
    from its end, so a new one begins where an axis follows one that is to be above it no longer, or not yet.
    """
    moving = _moving(source, target)
    found = []
    for old, new in zip(source.dims, target, strict=True):
        longer, kept = max(old, new, key=len), min(len(old), len(new))
        turn = [(axis in moving, axis in source.unreduced) for axis in longer]
        cuts = [n for n in range(kept + 1, len(longer)) if turn[n] < turn[n - 1]]
        ends = zip([0, *cuts], [*cuts, len(longer)], strict=True)
        found.append(tuple(_Digit(old[start:end], new[start:end]) for start, end in ends))
    return found


@lru_cache(maxsize=16384)
def _in_digits(source: Sharding, target: Layout, mesh: Mesh) -> Route | None:
    moving, digits = _moving(source, target), _digits(source, target)
    every = [digit for dim in digits for digit in dim]
    sizes = tuple(tuple(mesh.product(d.longer) for d in dim[:-1]) for dim in digits)
    found = _ops(
        tuple(digit.old for digit in every),
        tuple(digit.filled(moving | source.unreduced) for digit in every),
        tuple(digit.filled(moving) for digit in every),
        tuple(digit.exchanged(moving) for digit in every),
        tuple(digit.new for digit in every),
        mesh,
    )
    if found is None or not any(sizes):
        return found
    return (Reshape(sizes, joins=False), *found, Reshape(sizes, joins=True))


def _in_pieces(source: Layout, target: Layout, shape: tuple[int, ...], mesh: Mesh) -> Route | None:
    before = _extended(source, _less(target, source), target, shape, mesh)
    after = _extended(target, _less(source, target), source, shape, mesh)
    best = None
    for (old, held), (new, wanted) in product(before, after):
        count = _pieces(held, wanted)
        if count and (best is None or count < best[0]):
            best = (count, old, new)
    return None if best is None else _ops(source, best[1], best[1], best[2], target, mesh)


def _less(dims: Layout, others: Layout) -> Axes:
    taken = {axis for axes in others for axis in axes}
    return tuple(axis for axes in dims for axis in axes if axis not in taken)


@lru_cache(maxsize=512)
def _extended(
    dims: Layout, axes: Axes, others: Layout, shape: tuple[int, ...], mesh: Mesh
) -> tuple[tuple[Layout, tuple[int, ...]], ...]:
    """Every way to put the axes to the ends of the dims that divides the shape, and into how many blocks.

    Of very many ways the first, if each axis is put first where the others have it.
    """
    found = []
    places_of = [list(range(len(dims))) for _ in axes]
    if len(dims) ** len(axes) > MAX_EXTENDED:
        home = {axis: place for place, some in enumerate(others) for axis in some}
        places_of = [sorted(places, key=lambda n: n != home[a]) for a, places in zip(axes, places_of, strict=True)]
    for places in islice(product(*places_of), MAX_TRIED):
        longer = list(dims)
        for axis, place in zip(axes, places, strict=True):
            longer[place] += (axis,)
        blocks = tuple(map(mesh.product, longer))
        if all(size % count == 0 for size, count in zip(shape, blocks, strict=True)):
            found.append((tuple(longer), blocks))
            if len(found) == MAX_EXTENDED:
                break
    return tuple(found)


def _pieces(held: tuple[int, ...], wanted: tuple[int, ...]) -> int:
    """Into how many pieces blocks are cut, as `ir.exchange` counts them; 0 if they do not fit."""
    cells = tuple(map(lcm, held, wanted))
    return prod(cells) // prod(held) if cells == tuple(map(max, held, wanted)) else 0


def _ops(
    source: Layout, sliced: Layout, reduced: Layout, exchanged: Layout, target: Layout, mesh: Mesh
) -> Route | None:
    """Slice, reduce, exchange, gather; None if the blocks cannot be exchanged so."""
    move = exchange(reduced, exchanged, mesh)
    if move is None and reduced != exchanged:
        return None
    slices = [Slice(axes, dim) for dim, axes in added(source, sliced)]
    scatters = scattered(added(sliced, reduced))
    gathers = gathered(added(target, exchanged))
    return (*slices, *scatters, *([move] if move is not None else []), *gathers)


def gathered(parts: tuple[tuple[int, Axes], ...]) -> list[Move]:
    """The one move that gathers the axes of these dims, if there are any."""
    return [JointGather(parts)] if len(parts) > 1 else [AllGather(axes, dim) for dim, axes in parts]


def scattered(parts: tuple[tuple[int, Axes], ...]) -> list[Move]:
    """The one move that reduces and scatters over the axes of these dims, if there are any."""
    return [JointScatter(parts)] if len(parts) > 1 else [ReduceScatter(axes, dim) for dim, axes in parts]


def added(shorter: Layout, longer: Layout) -> tuple[tuple[int, Axes], ...]:
    """(dim, its axes at the end that the shorter has not), where there are any."""
    pairs = enumerate(zip(shorter, longer, strict=True))
    return tuple((dim, many[len(few) :]) for dim, (few, many) in pairs if few != many)
