"""The collectives, as the rewrites of a sharding that they are.

Dims are positions, so that one move serves every array of its rank. Each class shows its rewrite
and, for L local bytes before the step over n devices, the bytes that each device receives; and it has its facts, the
axes that it goes over, and the dims `on` which it gathers, scatters, slices, or lays what it exchanges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, TypeAlias, assert_never

from shardc.ir.exchange import keeps_some, moved, pieces, tails
from shardc.ir.facts import Facts, Kind
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import SUM, Axes, Sharding
from shardc.ir.uneven import cells, timetable


class IllegalMove(ValueError):
    """The sharding does not allow the move. A bug of ours, unless the user named the collective."""


@dataclass(frozen=True, slots=True)
class AllGather:
    """`A[I_XY] → A[I_X]` over Y: the minor axes of a dim come off. (n−1)·L."""

    facts: ClassVar[Facts] = Facts(Kind.GATHER, "AllGather")

    axes: Axes
    dim: int

    @property
    def on(self) -> tuple[int, ...]:
        return (self.dim,)


@dataclass(frozen=True, slots=True)
class JointGather:
    """`A[I_X, J_Y] → A[I, J]` over X and Y in one AllGather, so that the links of both carry. (n−1)·L.

    `parts` are (dim, its minor axes), in order of the dims, two at least.
    """

    facts: ClassVar[Facts] = Facts(Kind.GATHER, "AllGather")

    parts: tuple[tuple[int, Axes], ...]

    @property
    def axes(self) -> Axes:
        return tuple(axis for _, axes in self.parts for axis in axes)

    @property
    def on(self) -> tuple[int, ...]:
        return tuple(dim for dim, _ in self.parts)


@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """`A[I_X]{U_Y} → A[I_XY]` over Y: partial sums become sums, shared out. (n−1)/n·L."""

    facts: ClassVar[Facts] = Facts(Kind.SCATTER, "ReduceScatter")

    axes: Axes
    dim: int

    @property
    def on(self) -> tuple[int, ...]:
        return (self.dim,)


@dataclass(frozen=True, slots=True)
class JointScatter:
    """`A[I, J]{U_XY} → A[I_X, J_Y]` over X and Y in one ReduceScatter, so that the links of both carry. (n−1)/n·L.

    `parts` are (dim, its new minor axes), in order of the dims, two at least.
    """

    facts: ClassVar[Facts] = Facts(Kind.SCATTER, "ReduceScatter")

    parts: tuple[tuple[int, Axes], ...]

    @property
    def axes(self) -> Axes:
        return tuple(axis for _, axes in self.parts for axis in axes)

    @property
    def on(self) -> tuple[int, ...]:
        return tuple(dim for dim, _ in self.parts)


@dataclass(frozen=True, slots=True)
class AllReduce:
    """`A[I]{U_X} → A[I]` over X: partial sums become sums, everywhere. 2(n−1)/n·L.

    `A[I]{max_X} → A[I]`: or, of partial maxima, the largest; `reduction` as of the sharding.
    """

    facts: ClassVar[Facts] = Facts(Kind.SUM, "AllReduce")
    on: ClassVar[tuple[int, ...]] = ()

    axes: Axes
    reduction: str = SUM


@dataclass(frozen=True, slots=True)
class AllToAll:
    """`A[I_X, J] → A[I, J_X]` over X: the minor axes of one dim go to the end of another. (n−1)/n·L."""

    facts: ClassVar[Facts] = Facts(Kind.EXCHANGE, "AllToAll")

    axes: Axes
    source: int
    dim: int

    @property
    def on(self) -> tuple[int, ...]:
        return (self.dim,)


@dataclass(frozen=True, slots=True)
class JointExchange:
    """`A[I_XY, J, K] → A[I, J_X, K_Y]` in one AllToAll: tails of dims become tails of others. (n−1)/n·L.

    n counts the devices over the axes that change dims, `axes`. Every device keeps one of its n pieces.
    """

    facts: ClassVar[Facts] = Facts(Kind.EXCHANGE, "AllToAll", is_named=False)

    axes: Axes
    dims: tuple[Axes, ...]

    @property
    def on(self) -> tuple[int, ...]:
        return tuple(dim for dim, some in enumerate(self.dims) if not set(some).isdisjoint(self.axes))


@dataclass(frozen=True, slots=True)
class CollectivePermute:
    """`A[I_XY] → A[I_YX]`: whole blocks change devices; local shapes stay. L.

    Device (x, y) of X=2, Y=2 holds block 2x + y and wants block 2y + x: (0,1) and (1,0) swap,
    the others keep their own. The sharded axes are the same before and after, since JAX's types
    cannot know that a permuted value is equal along an axis which no longer shards it.
    """

    facts: ClassVar[Facts] = Facts(Kind.PERMUTE, "CollectivePermute")
    on: ClassVar[tuple[int, ...]] = ()

    axes: Axes
    dims: tuple[Axes, ...]


@dataclass(frozen=True, slots=True)
class DirectExchange:
    """`A[I_X, J_Y] → A[I_YX, J]`: pieces of blocks change devices, in `rounds` CollectivePermutes of one piece. L.

    On X=2, Y=2 device (x, y) holds half x of the rows, half y of the columns, and wants quarter 2y + x of the
    rows, all columns. It cuts its block in two quarters 2x + j; piece j goes to device (j, x), in round y - j
    (mod 2), so that in each round every device sends one piece and receives one. With a block in one piece it
    would be a CollectivePermute. The sharded axes are the same before and after, as there.
    """

    facts: ClassVar[Facts] = Facts(Kind.PERMUTE, "CollectivePermute", is_named=False)
    on: ClassVar[tuple[int, ...]] = ()

    axes: Axes
    dims: tuple[Axes, ...]
    rounds: int


@dataclass(frozen=True, slots=True)
class UnevenExchange:
    """`A[I_X] → A[I_Y]`, `A[I_X, J_Y] → A[I_Y, J_X]` on X=2, Y=3: pieces of blocks of whatever sizes. R/C·L.

    The blocks of both shardings cut the array into cells: see `ir.uneven`. A block has C = `cells` of them, and the
    busiest device receives R, those that it wants and does not hold: one CollectivePermute of so many cells after
    another, `rounds`. Any sharding leads to any other so.
    """

    facts: ClassVar[Facts] = Facts(Kind.PERMUTE, "CollectivePermute", is_named=False)
    on: ClassVar[tuple[int, ...]] = ()

    axes: Axes
    dims: tuple[Axes, ...]
    cells: int
    rounds: tuple[int, ...]

    @property
    def brings(self) -> int:
        return sum(self.rounds)


@dataclass(frozen=True, slots=True)
class Slice:
    """`A[I] → A[I_X]`: each device keeps its block of what all of X hold. 0."""

    facts: ClassVar[Facts] = Facts(Kind.SLICE, "Slice")

    axes: Axes
    dim: int

    @property
    def on(self) -> tuple[int, ...]:
        return (self.dim,)


Move: TypeAlias = (
    AllGather
    | JointGather
    | ReduceScatter
    | JointScatter
    | AllReduce
    | AllToAll
    | JointExchange
    | CollectivePermute
    | DirectExchange
    | UnevenExchange
    | Slice
)
COLLECTIVE_NAMES: dict[str, type[Move]] = {
    kind.__name__: kind for kind in (AllGather, ReduceScatter, AllReduce, AllToAll, CollectivePermute, Slice)
}


def apply(move: Move, before: Sharding, mesh: Mesh) -> Sharding:
    """The sharding that a move leaves; IllegalMove if the sharding does not allow it."""
    match move:
        case AllGather(axes, dim):
            return before.with_dim(dim, _without_minor(before.dims[dim], axes))
        case JointGather(parts):
            _require(len(parts) > 1, "one dim is an AllGather's")
            for dim, axes in parts:
                before = before.with_dim(dim, _without_minor(before.dims[dim], axes))
            return before
        case ReduceScatter(axes, dim):
            reduced = _reduce(before, axes)
            return reduced.with_dim(dim, reduced.dims[dim] + axes)
        case JointScatter(parts):
            _require(len(parts) > 1, "one dim is a ReduceScatter's")
            reduced = _reduce(before, move.axes)
            for dim, axes in parts:
                reduced = reduced.with_dim(dim, reduced.dims[dim] + axes)
            return reduced
        case AllReduce(axes, reduction):
            return _reduce(before, axes, reduction)
        case AllToAll(axes, source, dim):
            _require(source != dim, "an AllToAll needs two dims")
            taken = before.with_dim(source, _without_minor(before.dims[source], axes))
            return taken.with_dim(dim, taken.dims[dim] + axes)
        case JointExchange(axes, dims):
            after = _exchanged(before, axes, dims, mesh)
            _require(keeps_some(tails(before.dims, dims, mesh)), "the axes of some dim change places")
            return after
        case DirectExchange(axes, dims, rounds):
            after = _exchanged(before, axes, dims, mesh)
            cuts = tails(before.dims, dims, mesh)
            _require(rounds == pieces(cuts), "the rounds are as many as the pieces of a block")
            _require(not keeps_some(cuts), "where devices keep some, an AllToAll moves less")
            return after
        case UnevenExchange():
            _require(not before.unreduced, "partial sums are not exchanged")
            _require(move == uneven_exchange(before, move.dims, mesh), "the cells, or rounds, are not as many")
            return Sharding(move.dims)
        case CollectivePermute(_, dims):
            after = Sharding(dims, before.unreduced, before.reduction)
            _require(set(after.sharded) == set(before.sharded), "a permute keeps the sharded axes")
            _require(after.blocks(mesh) == before.blocks(mesh), "a permute keeps the local shape")
            return after
        case Slice(axes, dim):
            _require(not before.used & set(axes), "only an axis that holds copies can be sliced")
            return before.with_dim(dim, before.dims[dim] + axes)
        case _:
            assert_never(move)


def wire_bytes(move: Move, before: Sharding, mesh: Mesh, local_bytes: int) -> int:
    """The bytes received by the busiest device, for `local_bytes` per device before the move."""
    n = mesh.product(move.axes)
    match move:
        case AllGather() | JointGather():
            return (n - 1) * local_bytes
        case ReduceScatter() | JointScatter() | AllToAll() | JointExchange():
            return (n - 1) * local_bytes // n
        case AllReduce():
            return 2 * (n - 1) * local_bytes // n
        case CollectivePermute(_, dims):
            # Two orders of the axes that exceed 1 give some device another block.
            stays = all(
                [a for a in old if mesh.size(a) > 1] == [a for a in new if mesh.size(a) > 1]
                for old, new in zip(before.dims, dims, strict=True)
            )
            return 0 if stays else local_bytes
        case DirectExchange():
            return local_bytes  # some device keeps nothing
        case UnevenExchange():
            return local_bytes * move.brings // move.cells
        case Slice():
            return 0
        case _:
            assert_never(move)


def uneven_exchange(before: Sharding, dims: tuple[Axes, ...], mesh: Mesh) -> UnevenExchange | None:
    """The one to a sharding by these axes; None where nothing moves, or it is too long to be written."""
    found, ideal = timetable(before.dims, dims, mesh), in_one_round(before, dims, mesh)
    if found is None or ideal is None:
        return None
    return replace(ideal, rounds=tuple(each.count for each in found.rounds))


def in_one_round(before: Sharding, dims: tuple[Axes, ...], mesh: Mesh) -> UnevenExchange | None:
    """The same if one round were enough: no other is cheaper. None where nothing moves."""
    parts = tails(before.dims, dims, mesh)
    grid = cells(parts)
    return UnevenExchange(moved(parts, mesh), dims, grid.block, (grid.asked,)) if grid.asked else None


def one_dim_at_a_time(move: Move) -> tuple[Move, ...]:
    """`A[I, J]{U_XY} → A[I_X, J_Y]` as a ReduceScatter for each dim; whatever is no scatter as it is."""
    match move:
        case JointScatter(parts):
            return tuple(ReduceScatter(axes, dim) for dim, axes in parts)
        case AllGather() | JointGather() | ReduceScatter() | AllReduce() | Slice():
            return (move,)
        case AllToAll() | JointExchange() | CollectivePermute() | DirectExchange() | UnevenExchange():
            return (move,)
        case _:
            assert_never(move)


class Turns(NamedTuple):
    """So many collectives one after another, each of above/below of a block."""

    times: int
    above: int
    below: int


def turns(move: Move) -> Turns:
    """In how many collectives a move is done, by what it is; of unequal ones as long as that many equal ones."""
    match move:
        case DirectExchange():
            return Turns(move.rounds, 1, move.rounds)
        case UnevenExchange():
            return Turns(len(move.rounds), move.brings, move.cells * len(move.rounds))
        case AllGather() | JointGather() | ReduceScatter() | JointScatter() | AllReduce() | Slice():
            return _AT_ONCE
        case AllToAll() | JointExchange() | CollectivePermute():
            return _AT_ONCE
        case _:
            assert_never(move)


_AT_ONCE = Turns(1, 1, 1)


def _exchanged(before: Sharding, axes: Axes, dims: tuple[Axes, ...], mesh: Mesh) -> Sharding:
    after = Sharding(dims)
    _require(not before.unreduced, "partial sums are not exchanged")
    _require(set(after.sharded) == set(before.sharded), "an exchange keeps the sharded axes")
    parts = tails(before.dims, dims, mesh)
    _require(axes == moved(parts, mesh), "the axes are not those that change places")
    _require((pieces(parts) or 1) > 1, "the blocks cannot be cut and joined so")
    return after


def _without_minor(axes: Axes, minor: Axes) -> Axes:
    _require(bool(minor) and axes[-len(minor) :] == minor, "the axes are not the minor axes of the dim")
    return axes[: -len(minor)]


def _reduce(before: Sharding, axes: Axes, reduction: str = SUM) -> Sharding:
    _require(bool(axes) and before.unreduced.issuperset(axes), "the value is not unreduced over these axes")
    _require(before.reduction == reduction, f"the value is no partial {reduction}")
    left = before.unreduced.difference(axes)
    return Sharding(before.dims, left, reduction if left else SUM)


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise IllegalMove(reason)
