"""Moves with letters in the place of axes and dims, as laws say them: `AllGather_p(d)`, `JointScatter_pq(d,e)`.

`p`, `q`, `r`, `s` are groups of axes, `d`, `e`, `f` dims. Beside the moves of `ir` there is one that no plan has, the
derivative of a Slice: `Spread_p(d)`, A[I_p] → A[I]{U_p}, of partial sums in which each device has its own block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from shardc import simulate
from shardc.errors import ShardcError
from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    JointExchange,
    JointGather,
    JointScatter,
    Move,
    ReduceScatter,
    Slice,
)
from shardc.ir.exchange import moved, tails
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove, require, require_minor
from shardc.ir.sharding import SUM, Array, Axes, Sharding

Groups: TypeAlias = Mapping[str, Axes]
Sizes: TypeAlias = Mapping[str, int]
GROUPS, DIMS = "pqrs", "def"
_MOVE = re.compile(rf"([A-Za-z]+)_([{GROUPS}]+)(?:\(([{DIMS}](?:,[{DIMS}])*)\))?")
_KNOWN = (
    "AllGather_p(d), Slice_p(d), ReduceScatter_p(d), AllReduce_p, AllToAll_p(d,e), CollectivePermute_pq(d), "
    "CollectivePermute_pq(d,e), JointGather_pq(d,e), JointScatter_pq(d,e), JointExchange_pq(d,e,d,f), "
    "Mask_p, Spread_p(d)"
)


@dataclass(frozen=True, slots=True)
class Spread:
    """`A[I_X] → A[I]{U_X}`: a device has its own block in its place, and zeros beside it. Nothing moves."""

    axes: Axes
    dim: int

    def check(self, before: Sharding, _: Mesh) -> None:
        require(before.reduction == SUM, "the value is no partial sum")
        require_minor(before.dims[self.dim], self.axes)

    def leaves(self, before: Sharding) -> Sharding:
        kept = before.with_dim(self.dim, before.dims[self.dim][: -len(self.axes)])
        return Sharding(kept.dims, before.unreduced | set(self.axes))

    def step(self, held: Any, after: Array, mesh: Mesh) -> Any:
        found = np.zeros(mesh.sizes + after.local_shape(mesh), held.dtype)
        for device in np.ndindex(*mesh.sizes):
            number = _number(dict(zip(mesh.names, device, strict=True)), self.axes, mesh)
            size = held[device].shape[self.dim]
            found[(*device, *(slice(None),) * self.dim, slice(number * size, (number + 1) * size))] = held[device]
        return found


def _number(place: Mapping[str, int], axes: Axes, mesh: Mesh) -> int:
    found = 0
    for axis in axes:
        found = found * mesh.size(axis) + place[axis]
    return found


@dataclass(frozen=True, slots=True)
class Tails:
    """A move from the ends of dims to those of others, which is of a sharding before: `AllToAll_p(d,e)` of several.

    `ends`: axes that leave the end of a dim, and the dim to whose end they go.
    """

    kind: type[CollectivePermute] | type[JointExchange]
    ends: tuple[tuple[Axes, int, int], ...]

    def of(self, before: Sharding, mesh: Mesh) -> Move:
        dims = list(before.dims)
        for axes, source, _ in self.ends:
            require_minor(dims[source], axes)
            dims[source] = dims[source][: -len(axes)]
        for axes, _, target in self.ends:
            dims[target] += axes
        changed = mesh.ordered([axis for old, new in zip(before.dims, dims, strict=True) if old != new for axis in old])
        if self.kind is JointExchange:
            changed = moved(tails(before.dims, tuple(dims), mesh), mesh)
        return self.kind(changed, tuple(dims))


LawMove: TypeAlias = Move | Spread | Tails
Lies: TypeAlias = tuple[Array, Any]  # an array, and its blocks


def after(array: Array, moves: Sequence[LawMove], laid_out: Callable[[], Any], mesh: Mesh) -> Lies | None:
    """The array and its blocks after moves; None where a dim is not shared out evenly.

    Raises IllegalMove where a sharding does not allow a move.
    """
    lies: list[tuple[Move | Spread, Array]] = []
    sharding = array.sharding
    for each in moves:
        move = each.of(sharding, mesh) if isinstance(each, Tails) else each
        move.check(sharding, mesh)
        sharding = move.leaves(sharding)
        lies.append((move, Array(array.name, array.dims, array.shape, sharding, array.dtype)))
    if not all(way.sharding.divides(array.shape, mesh) for _, way in lies):
        return None
    held = laid_out()
    for move, way in lies:
        held = (
            move.step(held, way, mesh)
            if isinstance(move, Spread)
            else simulate.step(move, (held,), (array,), way, mesh)
        )
        array = way
    return array, held


def read(text: str, groups: Groups, dims: Sizes) -> tuple[LawMove, ...]:
    """The moves that a side of a law stands for; IllegalMove where its letters name an axis twice.

    SHC001 where it is no side of a law.
    """
    return tuple(_move(part, groups, dims) for part in _parts(text))


def names_of(*sides: str) -> tuple[str, ...]:
    """The letters of the sides of a law: groups first, then dims. SHC001 where one is no side of a law."""
    every = [_MOVE.fullmatch(part) for side in sides for part in _parts(side)]
    groups = {letter for found in every if found for letter in found[2]}
    inside = {letter for found in every if found for letter in found[3] or "" if letter in DIMS}
    return (*sorted(groups), *sorted(inside))


def _parts(side: str) -> tuple[str, ...]:
    """The moves of a side, each as text; SHC001 where one is none."""
    if not isinstance(side, str):
        raise ShardcError("SHC001", f"{side!r} is no side of a law", help=f"give text, moves between `;`: {_KNOWN}")
    return _parts_of_text(side)


@cache
def _parts_of_text(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(";") if part.strip())
    for part in parts:
        found = _MOVE.fullmatch(part)
        if found is None or not _is_known(found[1], len(found[2]), len((found[3] or "").replace(",", ""))):
            raise ShardcError("SHC001", f"`{part}` is no move of a law", help=f"write {_KNOWN}")
    return parts


def _is_known(name: str, groups: int, dims: int) -> bool:
    """Whether a move of that name is along so many groups of axes and so many dims."""
    match name:
        case "AllGather" | "Slice" | "ReduceScatter" | "Spread":
            return dims == 1
        case "AllReduce" | "Mask":
            return dims == 0
        case "AllToAll":
            return dims == 2
        case "CollectivePermute":
            return groups == 2 and dims in (1, 2)
        case "JointGather" | "JointScatter":
            return groups == dims == 2
        case "JointExchange":
            return groups > 1 and dims == 2 * groups
        case _:
            return False


def _move(text: str, groups: Groups, dims: Sizes) -> LawMove:
    name, _, rest = text.partition("_")
    letters, _, inside = rest.partition("(")
    some = [groups[letter] for letter in letters]
    axes = tuple(axis for each in some for axis in each)
    if len(set(axes)) < len(axes):
        raise IllegalMove(f"{text} names an axis twice")
    at = [dims[letter] for letter in inside.rstrip(")").split(",") if letter]
    match name, at:
        case "AllGather", [dim]:
            return AllGather(axes, dim)
        case "Slice", [dim]:
            return Slice(axes, dim)
        case "ReduceScatter", [dim]:
            return ReduceScatter(axes, dim)
        case "AllReduce", []:
            return AllReduce(axes)
        case "AllToAll", [source, dim]:
            return AllToAll(axes, source, dim)
        case "Spread", [dim]:
            return Spread(axes, dim)
        case "Mask", []:
            return Mask(axes)
        case "CollectivePermute", [dim]:  # of the two groups at the end of a dim the major one comes last
            major, minor = some
            return Tails(CollectivePermute, ((minor, dim, dim), (major, dim, dim)))
        case "CollectivePermute", [one, other]:
            require(one != other, f"{text} names a dim twice")
            return Tails(CollectivePermute, ((some[0], one, other), (some[1], other, one)))
        case "JointExchange", _:
            ends = zip(some, at[::2], at[1::2], strict=True)
            return Tails(JointExchange, tuple(ends))
        case "JointGather" | "JointScatter", [one, other]:
            require(one != other, f"{text} names a dim twice")
            parts = tuple(sorted(zip(at, some, strict=True)))
            return JointGather(parts) if name == "JointGather" else JointScatter(parts)
        case _:
            raise AssertionError(f"unknown move `{text}`")
