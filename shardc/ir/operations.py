"""What is said of an operation with the operation itself: its kind, its name; and what moves have in common.

What takes more than a word (how it is priced, simulated, called, held in memory) stands in tables that are closed by
`assert_never`, one in each room; an operation without facts, or without its row in one of them, the type checker names.

Moves have in common the dims that they are on, their axes under other names, and what is asked before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, Self, TypeAlias

from shardc.ir.exchange import Tail, moved, pieces, tails
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import SUM, Axes, Sharding


class Kind(Enum):
    """What becomes of the blocks of a group of devices, along however many dims."""

    GATHER = "each device gets the blocks of all"
    SCATTER = "partial sums become sums, each device keeps its share"
    SUM = "partial sums become sums, on every device"
    EXCHANGE = "each device sends every other a piece, and keeps one"
    PERMUTE = "blocks or pieces change devices, none stays by rule"
    SLICE = "each device keeps its share of what all hold"
    MASK = "one device keeps what all hold, the others have zeros"
    LOCAL = "each device by itself"
    LOOP = "a block of steps, trip after trip"


@dataclass(frozen=True, slots=True)
class Facts:
    """`is_named`: whether the notation's name may mean it. Others of its name are told from it by their dims.

    `cuts`: whether each device begins by taking a part of its block.
    """

    kind: Kind
    name: str
    is_named: bool = True
    cuts: bool = False

    @property
    def reduces(self) -> bool:
        """Whether partial sums over its axes become sums."""
        return self.kind in (Kind.SCATTER, Kind.SUM)

    @property
    def shards(self) -> bool:
        """Whether its axes come to stand on dims."""
        return self.kind in (Kind.SCATTER, Kind.EXCHANGE, Kind.SLICE)

    @property
    def is_along_dims(self) -> bool:
        """Whether the notation may name a dim with its axes: that on which they stand, or come to stand."""
        return self.shards or self.kind is Kind.GATHER

    @property
    def is_move(self) -> bool:
        """Whether it changes a sharding and no value: a collective, a Slice, or a Mask."""
        return self.kind not in (Kind.LOCAL, Kind.LOOP)

    @property
    def communicates(self) -> bool:
        """Whether devices send anything, if there are several."""
        return self.is_move and self.kind not in (Kind.SLICE, Kind.MASK)


@lru_cache(maxsize=256)
def local(name: str) -> Facts:
    """Of what each device does by itself, under this name.

    >>> local("relu").kind
    <Kind.LOCAL: 'each device by itself'>
    """
    return Facts(Kind.LOCAL, name)


Renaming: TypeAlias = Callable[[Iterable[str]], Axes]  # gives the axes that each of these stands for


class IllegalMove(ValueError):
    """The sharding does not allow the move. A bug of ours, unless the user named the collective."""


class Turns(NamedTuple):
    """So many collectives one after another, each of above/below of a block."""

    times: int
    above: int
    below: int


AT_ONCE = Turns(1, 1, 1)


@dataclass(frozen=True, slots=True)
class OnDim:
    """A move along one dim, at once."""

    axes: Axes
    dim: int

    @property
    def on(self) -> tuple[int, ...]:
        return (self.dim,)

    @property
    def turns(self) -> Turns:
        return AT_ONCE

    def over(self, renamed: Renaming, _: Mesh) -> Self:
        return replace(self, axes=renamed(self.axes))


@dataclass(frozen=True, slots=True)
class OnDims:
    """A move along several dims, at once. `parts` are (dim, its minor axes), in order of the dims, two at least."""

    parts: tuple[tuple[int, Axes], ...]

    @property
    def axes(self) -> Axes:
        return tuple(axis for _, axes in self.parts for axis in axes)

    @property
    def on(self) -> tuple[int, ...]:
        return tuple(dim for dim, _ in self.parts)

    @property
    def turns(self) -> Turns:
        return AT_ONCE

    def over(self, renamed: Renaming, _: Mesh) -> Self:
        return replace(self, parts=tuple((dim, renamed(axes)) for dim, axes in self.parts))


@dataclass(frozen=True, slots=True)
class ToDims:
    """A move to these axes of every dim; those that change places are `axes`, in the order of the mesh."""

    axes: Axes
    dims: tuple[Axes, ...]

    def over(self, renamed: Renaming, mesh: Mesh) -> Self:
        return replace(self, axes=mesh.ordered(renamed(self.axes)), dims=tuple(map(renamed, self.dims)))

    def leaves(self, before: Sharding) -> Sharding:
        return Sharding(self.dims, before.unreduced, before.reduction)


def require(condition: bool, reason: str) -> None:
    if not condition:
        raise IllegalMove(reason)


def require_minor(axes: Axes, minor: Axes) -> None:
    require(bool(minor) and axes[-len(minor) :] == minor, "the axes are not the minor axes of the dim")


def require_unreduced(before: Sharding, axes: Axes, reduction: str = SUM) -> None:
    require(bool(axes) and before.unreduced.issuperset(axes), "the value is not unreduced over these axes")
    require(before.reduction == reduction, f"the value is no partial {reduction}")


def required_tails(move: ToDims, before: Sharding, mesh: Mesh) -> tuple[Tail, ...]:
    """The tails of an exchange of pieces of equal sizes."""
    require(not before.unreduced, "partial sums are not exchanged")
    require(set(Sharding(move.dims).sharded) == set(before.sharded), "an exchange keeps the sharded axes")
    found = tails(before.dims, move.dims, mesh)
    require(move.axes == moved(found, mesh), "the axes are not those that change places")
    require((pieces(found) or 1) > 1, "the blocks cannot be cut and joined so")
    return found


def reduced(before: Sharding, axes: Axes) -> Sharding:
    """Partial over these axes no more."""
    left = before.unreduced.difference(axes)
    return Sharding(before.dims, left, before.reduction if left else SUM)
