"""The collectives, as the rewrites of a sharding that they are.

Dims are positions, so that one move serves every array of its rank. Each class shows its rewrite
and, for L local bytes before the step over n devices, the bytes that each device receives. It says all that is asked of
a move on its own:

    facts, axes     its kind; the axes that it goes over
    on              the dims on which it gathers, scatters, slices, or lays what it exchanges
    check           IllegalMove if the sharding does not allow it
    leaves          the sharding after it
    wire_bytes      received by the busiest device
    turns           in how many collectives it is done; of unequal ones, as long as that many equal ones
    over            the same over other axes, as `ir.bundle` asks
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from shardc.ir.exchange import keeps_some, moved, pieces, tails
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.operations import (
    AT_ONCE,
    Facts,
    Kind,
    OnDim,
    OnDims,
    Renaming,
    ToDims,
    Turns,
    reduced,
    require,
    require_minor,
    require_unreduced,
    required_tails,
)
from shardc.ir.sharding import SUM, Axes, Sharding

_Positions: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AllGather(OnDim):
    """`A[I_XY] → A[I_X]` over Y: the minor axes of a dim come off. (n−1)·L."""

    facts: ClassVar[Facts] = Facts(Kind.GATHER, "AllGather")

    def check(self, before: Sharding, _: Mesh) -> None:
        require_minor(before.dims[self.dim], self.axes)

    def leaves(self, before: Sharding) -> Sharding:
        return before.with_dim(self.dim, before.dims[self.dim][: -len(self.axes)])

    def wire_bytes(self, _: Sharding, mesh: Mesh, local_bytes: int) -> int:
        return (mesh.product(self.axes) - 1) * local_bytes


@dataclass(frozen=True, slots=True)
class JointGather(OnDims):
    """`A[I_X, J_Y] → A[I, J]` over X and Y in one AllGather, so that the links of both carry. (n−1)·L."""

    facts: ClassVar[Facts] = Facts(Kind.GATHER, "AllGather")

    def check(self, before: Sharding, _: Mesh) -> None:
        require(len(self.parts) > 1, "one dim is an AllGather's")
        for dim, axes in self.parts:
            require_minor(before.dims[dim], axes)

    def leaves(self, before: Sharding) -> Sharding:
        for dim, axes in self.parts:
            before = before.with_dim(dim, before.dims[dim][: -len(axes)])
        return before

    def wire_bytes(self, _: Sharding, mesh: Mesh, local_bytes: int) -> int:
        return (mesh.product(self.axes) - 1) * local_bytes


@dataclass(frozen=True, slots=True)
class ReduceScatter(OnDim):
    """`A[I_X]{U_Y} → A[I_XY]` over Y: partial sums become sums, shared out. (n−1)/n·L."""

    facts: ClassVar[Facts] = Facts(Kind.SCATTER, "ReduceScatter")

    def check(self, before: Sharding, _: Mesh) -> None:
        require_unreduced(before, self.axes)

    def leaves(self, before: Sharding) -> Sharding:
        return reduced(before, self.axes).with_dim(self.dim, before.dims[self.dim] + self.axes)

    def wire_bytes(self, _: Sharding, mesh: Mesh, local_bytes: int) -> int:
        return all_but_own(mesh.product(self.axes), local_bytes)


@dataclass(frozen=True, slots=True)
class JointScatter(OnDims):
    """`A[I, J]{U_XY} → A[I_X, J_Y]` over X and Y in one ReduceScatter, so that the links of both carry. (n−1)/n·L."""

    facts: ClassVar[Facts] = Facts(Kind.SCATTER, "ReduceScatter")

    @property
    def dim_by_dim(self) -> tuple[ReduceScatter, ...]:
        """`A[I, J]{U_XY} → A[I_X, J_Y]` as a ReduceScatter for each dim."""
        return tuple(ReduceScatter(axes, dim) for dim, axes in self.parts)

    def check(self, before: Sharding, _: Mesh) -> None:
        require(len(self.parts) > 1, "one dim is a ReduceScatter's")
        require_unreduced(before, self.axes)

    def leaves(self, before: Sharding) -> Sharding:
        for move in self.dim_by_dim:
            before = move.leaves(before)
        return before

    def wire_bytes(self, _: Sharding, mesh: Mesh, local_bytes: int) -> int:
        return all_but_own(mesh.product(self.axes), local_bytes)


@dataclass(frozen=True, slots=True)
class AllReduce:
    """`A[I]{U_X} → A[I]` over X: partial sums become sums, everywhere. 2(n−1)/n·L.

    `A[I]{max_X} → A[I]`: or, of partial maxima, the largest; `reduction` as of the sharding.
    """

    facts: ClassVar[Facts] = Facts(Kind.SUM, "AllReduce")
    on: ClassVar[_Positions] = ()
    turns: ClassVar[Turns] = AT_ONCE

    axes: Axes
    reduction: str = SUM

    def over(self, renamed: Renaming, _: Mesh) -> AllReduce:
        return replace(self, axes=renamed(self.axes))

    def check(self, before: Sharding, _: Mesh) -> None:
        require_unreduced(before, self.axes, self.reduction)

    def leaves(self, before: Sharding) -> Sharding:
        return reduced(before, self.axes)

    def wire_bytes(self, _: Sharding, mesh: Mesh, local_bytes: int) -> int:
        return all_but_own(mesh.product(self.axes), 2 * local_bytes)


@dataclass(frozen=True, slots=True)
class AllToAll:
    """`A[I_X, J] → A[I, J_X]` over X: the minor axes of one dim go to the end of another. (n−1)/n·L."""

    facts: ClassVar[Facts] = Facts(Kind.EXCHANGE, "AllToAll")
    turns: ClassVar[Turns] = AT_ONCE

    axes: Axes
    source: int
    dim: int

    @property
    def on(self) -> _Positions:
        return (self.dim,)

    def over(self, renamed: Renaming, _: Mesh) -> AllToAll:
        return replace(self, axes=renamed(self.axes))

    def check(self, before: Sharding, _: Mesh) -> None:
        require(self.source != self.dim, "an AllToAll needs two dims")
        require_minor(before.dims[self.source], self.axes)

    def leaves(self, before: Sharding) -> Sharding:
        taken = before.with_dim(self.source, before.dims[self.source][: -len(self.axes)])
        return taken.with_dim(self.dim, taken.dims[self.dim] + self.axes)

    def wire_bytes(self, _: Sharding, mesh: Mesh, local_bytes: int) -> int:
        return all_but_own(mesh.product(self.axes), local_bytes)


@dataclass(frozen=True, slots=True)
class JointExchange(ToDims):
    """`A[I_XY, J, K] → A[I, J_X, K_Y]` in one AllToAll: tails of dims become tails of others. (n−1)/n·L.

    n counts the devices over the axes that change dims, `axes`. Every device keeps one of its n pieces.
    """

    facts: ClassVar[Facts] = Facts(Kind.EXCHANGE, "AllToAll", is_named=False)
    turns: ClassVar[Turns] = AT_ONCE

    @property
    def on(self) -> _Positions:
        return tuple(dim for dim, some in enumerate(self.dims) if not set(some).isdisjoint(self.axes))

    def check(self, before: Sharding, mesh: Mesh) -> None:
        require(keeps_some(required_tails(self, before, mesh)), "the axes of some dim change places")

    def wire_bytes(self, _: Sharding, mesh: Mesh, local_bytes: int) -> int:
        return all_but_own(mesh.product(self.axes), local_bytes)


@dataclass(frozen=True, slots=True)
class CollectivePermute(ToDims):
    """`A[I_XY] → A[I_YX]`: whole blocks change devices; local shapes stay. L.

    Device (x, y) of X=2, Y=2 holds block 2x + y and wants block 2y + x: (0,1) and (1,0) swap,
    the others keep their own. The sharded axes are the same before and after, since JAX's types
    cannot know that a permuted value is equal along an axis which no longer shards it.
    """

    facts: ClassVar[Facts] = Facts(Kind.PERMUTE, "CollectivePermute")
    on: ClassVar[_Positions] = ()
    turns: ClassVar[Turns] = AT_ONCE

    def check(self, before: Sharding, mesh: Mesh) -> None:
        after = Sharding(self.dims)
        require(set(after.sharded) == set(before.sharded), "a permute keeps the sharded axes")
        require(after.blocks(mesh) == before.blocks(mesh), "a permute keeps the local shape")

    def wire_bytes(self, before: Sharding, mesh: Mesh, local_bytes: int) -> int:
        # Two orders of the axes that exceed 1 give some device another block.
        return local_bytes if moved(tails(before.dims, self.dims, mesh), mesh) else 0


@dataclass(frozen=True, slots=True)
class DirectExchange(ToDims):
    """`A[I_X, J_Y] → A[I_YX, J]`: pieces of blocks change devices, in `rounds` CollectivePermutes of one piece. L.

    On X=2, Y=2 device (x, y) holds half x of the rows, half y of the columns, and wants quarter 2y + x of the
    rows, all columns. It cuts its block in two quarters 2x + j; piece j goes to device (j, x), in round y - j
    (mod 2), so that in each round every device sends one piece and receives one. With a block in one piece it
    would be a CollectivePermute. The sharded axes are the same before and after, as there.
    """

    facts: ClassVar[Facts] = Facts(Kind.PERMUTE, "CollectivePermute", is_named=False, cuts=True)
    on: ClassVar[_Positions] = ()

    rounds: int

    @property
    def turns(self) -> Turns:
        return Turns(self.rounds, 1, self.rounds)

    def check(self, before: Sharding, mesh: Mesh) -> None:
        cuts = required_tails(self, before, mesh)
        require(self.rounds == pieces(cuts), "the rounds are as many as the pieces of a block")
        require(not keeps_some(cuts), "where devices keep some, an AllToAll moves less")

    def wire_bytes(self, _: Sharding, __: Mesh, local_bytes: int) -> int:
        return local_bytes  # some device keeps nothing


@dataclass(frozen=True, slots=True)
class UnevenExchange(ToDims):
    """`A[I_X] → A[I_Y]`, `A[I_X, J_Y] → A[I_Y, J_X]` on X=2, Y=3: pieces of blocks of whatever sizes. R/C·L.

    The blocks of both shardings cut the array into cells: see `ir.uneven`. A block has C = `cells` of them, and the
    busiest device receives R, those that it wants and does not hold: one CollectivePermute of so many cells after
    another, `rounds`. Any sharding leads to any other so.
    """

    facts: ClassVar[Facts] = Facts(Kind.PERMUTE, "CollectivePermute", is_named=False, cuts=True)
    on: ClassVar[_Positions] = ()

    cells: int
    rounds: tuple[int, ...]

    @property
    def brings(self) -> int:
        return sum(self.rounds)

    @property
    def of_whole_blocks(self) -> bool:
        """Whether blocks stay whole: `A[I_X] → A[I_Y]`, X as large as Y. One cell may also be gathered, X=2."""
        return self.cells == self.brings == 1 and any(axis in self.axes for axes in self.dims for axis in axes)

    @property
    def turns(self) -> Turns:
        return Turns(len(self.rounds), self.brings, self.cells * len(self.rounds))

    def check(self, before: Sharding, mesh: Mesh) -> None:
        require(not before.unreduced, "partial sums are not exchanged")
        require(self == uneven_exchange(before, self.dims, mesh), "the cells, or rounds, are not as many")

    def wire_bytes(self, _: Sharding, __: Mesh, local_bytes: int) -> int:
        return local_bytes * self.brings // self.cells


@dataclass(frozen=True, slots=True)
class Slice(OnDim):
    """`A[I] → A[I_X]`: each device keeps its block of what all of X hold. 0."""

    facts: ClassVar[Facts] = Facts(Kind.SLICE, "Slice", cuts=True)

    def check(self, before: Sharding, _: Mesh) -> None:
        require(not before.used & set(self.axes), "only an axis that holds copies can be sliced")

    def leaves(self, before: Sharding) -> Sharding:
        return before.with_dim(self.dim, before.dims[self.dim] + self.axes)

    def wire_bytes(self, _: Sharding, __: Mesh, ___: int) -> int:
        return 0


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
    | Mask
)
COLLECTIVE_NAMES: dict[str, type[Move]] = {
    kind.__name__: kind for kind in (AllGather, ReduceScatter, AllReduce, AllToAll, CollectivePermute, Slice)
}


def apply(move: Move, before: Sharding, mesh: Mesh) -> Sharding:
    """The sharding that a move leaves; IllegalMove if the sharding does not allow it."""
    move.check(before, mesh)
    return move.leaves(before)


def uneven_exchange(before: Sharding, dims: tuple[Axes, ...], mesh: Mesh) -> UnevenExchange | None:
    """The one to a sharding by these axes; None where nothing moves, or it is too long to be written. Whole blocks go
    in one round whatever the mesh, by no tables."""
    from shardc.ir.uneven import timetable  # few plans have a finer mesh

    ideal = in_one_round(before, dims, mesh)
    if ideal is None or ideal.of_whole_blocks:
        return ideal
    found = timetable(before.dims, dims, mesh)
    return None if found is None else replace(ideal, rounds=tuple(each.count for each in found.rounds))


def in_one_round(before: Sharding, dims: tuple[Axes, ...], mesh: Mesh) -> UnevenExchange | None:
    """The same if one round were enough: no other is cheaper. None where nothing moves."""
    from shardc.ir.uneven import cells

    grid = cells(parts := tails(before.dims, dims, mesh))
    return UnevenExchange(moved(parts, mesh), dims, grid.block, (grid.asked,)) if grid.asked else None


def all_but_own(n: int, local_bytes: int) -> int:
    """All but one of n parts, in whole bytes: 3 of a sum of 2 bytes over 8 devices, of which each has no whole part."""
    return (n - 1) * local_bytes // n
