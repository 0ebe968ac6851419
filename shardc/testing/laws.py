"""A library of laws of collectives, as data: each a pair of sequences of moves that leave the same.

`p` and `q` stand for groups of axes, `d`, `e` and `f` for dims. A law says what its right side is wherever its left
side is legal and its condition holds; `counterexample` goes through every sharding of a rank on small meshes, every
group and every dim. `found_when` finds the condition from nothing but the two sides.

    AllGather_q(d); AllGather_p(d)  =  AllGather_pq(d)          A[I_pq] → A[I_p] → A[I]
    AllReduce_p; Slice_p(d)         =  ReduceScatter_p(d)       A[I]{U_p} → A[I] → A[I_p]

Sources: the chapter on sharded matrices (AllReduce = ReduceScatter; AllGather; AllToAll), what the Shardy dialect
makes of `all_gather`, `all_slice`, `all_to_all`, `all_reduce`, `reduce_scatter` and `collective_permute` when it
canonicalizes, and the transposes of JAX's collectives, which are in `TRANSPOSES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from typing import Any, TypeAlias

import numpy as np

from shardc import simulate
from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    JointGather,
    JointScatter,
    Move,
    ReduceScatter,
    Slice,
    apply,
)
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove
from shardc.ir.sharding import Array, Axes, Sharding
from shardc.testing.oracles import all_shardings

Groups: TypeAlias = Mapping[str, Axes]
Dims: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Law:
    """`before` = `after`, as text: moves between `;`, groups of axes after `_`, dims in brackets; "" is nothing."""

    before: str
    after: str
    when: str = "always"

    def __str__(self) -> str:
        condition = "" if self.when == "always" else f", where {self.when}"
        return f"{self.before or 'nothing'} = {self.after or 'nothing'}{condition}"


LAWS = (
    # What undoes what.
    Law("AllGather_p(d); Slice_p(d)", ""),
    Law("Slice_p(d); AllGather_p(d)", ""),
    Law("AllToAll_p(d,e); AllToAll_p(e,d)", ""),
    # Two that are one.
    Law("AllReduce_p; Slice_p(d)", "ReduceScatter_p(d)"),
    Law("ReduceScatter_p(d); AllGather_p(d)", "AllReduce_p"),
    Law("AllGather_p(d); Slice_p(e)", "AllToAll_p(d,e)", when="d ≠ e"),
    Law("AllGather_q(d); AllGather_p(d)", "AllGather_pq(d)"),
    Law("Slice_p(d); Slice_q(d)", "Slice_pq(d)"),
    Law("AllReduce_p; AllReduce_q", "AllReduce_pq"),
    Law("ReduceScatter_p(d); ReduceScatter_q(d)", "ReduceScatter_pq(d)"),
    Law("AllToAll_p(d,e); AllToAll_p(e,f)", "AllToAll_p(d,f)", when="d ≠ f"),
    Law("AllToAll_p(d,e); AllGather_p(e)", "AllGather_p(d)"),
    Law("Slice_p(d); AllToAll_p(d,e)", "Slice_p(e)"),
    Law("ReduceScatter_p(d); AllToAll_p(d,e)", "ReduceScatter_p(e)"),
    Law("AllGather_p(d); AllGather_q(e)", "JointGather_pq(d,e)", when="d ≠ e"),
    Law("ReduceScatter_p(d); ReduceScatter_q(e)", "JointScatter_pq(d,e)", when="d ≠ e"),
    # The order of axes within a sum is free.
    Law("AllReduce_pq", "AllReduce_qp"),
    # What changes places. Of one dim the minor axes are moved first, so that order is fixed there.
    Law("AllGather_p(d); AllGather_q(e)", "AllGather_q(e); AllGather_p(d)", when="d ≠ e"),
    Law("Slice_p(d); Slice_q(e)", "Slice_q(e); Slice_p(d)", when="d ≠ e"),
    Law("AllReduce_p; AllReduce_q", "AllReduce_q; AllReduce_p"),
    Law("ReduceScatter_p(d); ReduceScatter_q(e)", "ReduceScatter_q(e); ReduceScatter_p(d)", when="d ≠ e"),
    Law("AllReduce_p; AllGather_q(d)", "AllGather_q(d); AllReduce_p"),
    Law("AllGather_q(d); AllReduce_p", "AllReduce_p; AllGather_q(d)"),
    Law("AllReduce_p; AllToAll_q(d,e)", "AllToAll_q(d,e); AllReduce_p"),
    Law("AllToAll_q(d,e); AllReduce_p", "AllReduce_p; AllToAll_q(d,e)"),
    Law("Slice_q(d); AllReduce_p", "AllReduce_p; Slice_q(d)"),
    Law("AllReduce_p; Slice_q(d)", "Slice_q(d); AllReduce_p", when="p and q are apart"),
    Law("ReduceScatter_p(d); AllGather_q(e)", "AllGather_q(e); ReduceScatter_p(d)", when="d ≠ e"),
    Law("AllGather_q(e); ReduceScatter_p(d)", "ReduceScatter_p(d); AllGather_q(e)", when="d ≠ e"),
    Law("Slice_q(e); ReduceScatter_p(d)", "ReduceScatter_p(d); Slice_q(e)", when="d ≠ e"),
    Law("ReduceScatter_p(d); Slice_q(e)", "Slice_q(e); ReduceScatter_p(d)", when="d ≠ e"),
    Law("Slice_p(d); AllGather_q(e)", "AllGather_q(e); Slice_p(d)", when="d ≠ e"),
    Law("AllReduce_p; ReduceScatter_q(d)", "ReduceScatter_q(d); AllReduce_p"),
    Law("ReduceScatter_q(d); AllReduce_p", "AllReduce_p; ReduceScatter_q(d)"),
)

_MESHES = (Mesh.of({"X": 2, "Y": 2}), Mesh.of({"X": 2, "Y": 3}), Mesh.of({"X": 2, "Y": 2, "Z": 2}))
_SIZES = 12  # of each dim: shared out by all that the meshes have
CONDITIONS: dict[str, Callable[[Groups, Dims], bool]] = {
    "always": lambda groups, dims: True,
    "d ≠ e": lambda groups, dims: dims["d"] != dims["e"],
    "d ≠ f": lambda groups, dims: dims["d"] != dims["f"],
    "d = e": lambda groups, dims: dims["d"] == dims["e"],
    "p and q are apart": lambda groups, dims: not set(groups["p"]) & set(groups["q"]),
    "p = q": lambda groups, dims: groups["p"] == groups["q"],
}


def counterexample(law: Law, meshes: Sequence[Mesh] = _MESHES, rank: int = 2) -> str | None:
    """Where the two sides of a law differ though its condition holds; None if nowhere.

    >>> counterexample(Law("AllReduce_p; Slice_p(d)", "ReduceScatter_p(d)"))
    >>> print(counterexample(Law("AllGather_q(d); AllGather_p(d)", "AllGather_qp(d)")))
    A[I_XY, J] on X=2, Y=2 with p=X, q=Y, d=I
    """
    holds = CONDITIONS[law.when]
    for case in cases(law, meshes, rank):
        if holds(case.groups, case.dims) and not case.agrees:
            return str(case)
    return None


def found_when(before: str, after: str, meshes: Sequence[Mesh] = _MESHES, rank: int = 2) -> str:
    """The condition on groups and dims under which two sides agree, found by trying all; "never" if there is none.

    Of conditions that are sufficient it is the one that leaves most cases; cases in which the left side is not legal
    are none.

    >>> found_when("AllGather_p(d); Slice_p(e)", "AllToAll_p(d,e)")
    'd ≠ e'
    >>> found_when("AllGather_p(d)", "AllGather_p(d); Slice_p(d)")
    'never'
    """
    every = list(cases(Law(before, after), meshes, rank))
    named = set(_names(before + after))
    fits = [name for name in CONDITIONS if {part for part in name.split() if part in "pqdef"} <= named]
    kept = {name: [case for case in every if CONDITIONS[name](case.groups, case.dims)] for name in fits}
    enough = [name for name, some in kept.items() if some and all(case.agrees for case in some)]
    return max(enough, key=lambda name: len(kept[name]), default="never")


@dataclass(frozen=True, slots=True)
class LawCase:
    """One array, and one reading of a law's letters; whether both sides leave the same."""

    array: Array
    mesh: Mesh
    groups: Groups
    dims: Dims
    agrees: bool

    def __str__(self) -> str:
        groups = [f"{name}={''.join(axes)}" for name, axes in self.groups.items()]
        dims = [f"{name}={self.array.dims[place]}" for name, place in self.dims.items()]
        return f"{self.array} on {self.mesh} with {', '.join([*groups, *dims])}"


def cases(law: Law, meshes: Sequence[Mesh], rank: int) -> Iterator[LawCase]:
    """Every sharding, group and dim for which the left side is legal."""
    names = _names(law.before + law.after)
    rank = 3 if "f" in names else rank
    for mesh in meshes:
        if rank == 3 and len(mesh.axes) > 2:
            continue
        groups = [some for n in (1, 2) for some in permutations(mesh.names, n)]
        letters = [groups if name in "pq" else range(rank) for name in names]
        for sharding, values in product(all_shardings(mesh, rank), product(*letters)):
            chosen = dict(zip(names, values, strict=True))
            yield from _case(law, sharding, mesh, chosen)


def _case(law: Law, sharding: Sharding, mesh: Mesh, chosen: Mapping[str, Any]) -> Iterator[LawCase]:
    groups = {name: axes for name, axes in chosen.items() if name in "pq"}
    dims = {name: dim for name, dim in chosen.items() if name not in "pq"}
    array = Array("A", ("I", "J", "K")[: sharding.rank], (_SIZES,) * sharding.rank, sharding, DTYPES["int32"])
    if not sharding.divides(array.shape, mesh):
        return
    try:
        wanted = _after(array, read(law.before, groups, dims), mesh)
    except IllegalMove:
        return
    if wanted is None:
        return
    try:
        found = _after(array, read(law.after, groups, dims), mesh)
    except IllegalMove:
        found = None
    same = found is not None and found[0] == wanted[0] and bool(np.array_equal(*_compared(found, wanted, mesh)))
    yield LawCase(array, mesh, groups, dims, same)


def _compared(found: tuple[Array, Any], wanted: tuple[Array, Any], mesh: Mesh) -> list[Any]:
    """Blocks; of partial sums what they add up to."""
    along = tuple(mesh.names.index(axis) for axis in mesh.ordered(wanted[0].sharding.unreduced))
    return [blocks.sum(axis=along) for _, blocks in (found, wanted)]


def _after(array: Array, moves: Sequence[Move], mesh: Mesh) -> tuple[Array, Any] | None:
    """The array and its blocks after moves; None where a dim is not shared out evenly."""
    shardings = [array.sharding]
    for move in moves:
        shardings.append(apply(move, shardings[-1], mesh))
    if not all(sharding.divides(array.shape, mesh) for sharding in shardings):
        return None
    ways = [Array(array.name, array.dims, array.shape, sharding, array.dtype) for sharding in shardings]
    held = _laid_out(array, mesh)
    for move, before, after in zip(moves, ways, ways[1:], strict=False):
        held = simulate.step(move, (held,), (before,), after, mesh)
    return ways[-1], held


@cache
def _laid_out(array: Array, mesh: Mesh) -> Any:
    whole = np.arange(1, 1 + math.prod(array.shape), dtype=np.int64).reshape(array.shape)
    return simulate.scatter(whole, array, mesh)


def read(text: str, groups: Groups, dims: Dims) -> tuple[Move, ...]:
    """The moves that a side of a law stands for; IllegalMove where its letters name an axis twice."""
    return tuple(_move(part.strip(), groups, dims) for part in text.split(";") if part.strip())


def _move(text: str, groups: Groups, dims: Dims) -> Move:
    name, _, rest = text.partition("_")
    letters, _, inside = rest.partition("(")
    axes = tuple(axis for letter in letters for axis in groups[letter])
    if len(set(axes)) < len(axes):
        raise IllegalMove(f"{text} names an axis twice")
    at = [dims[letter] for letter in inside.rstrip(")").split(",") if letter]
    match name:
        case "AllGather":
            return AllGather(axes, at[0])
        case "Slice":
            return Slice(axes, at[0])
        case "ReduceScatter":
            return ReduceScatter(axes, at[0])
        case "AllReduce":
            return AllReduce(axes)
        case "AllToAll":
            return AllToAll(axes, at[0], at[1])
        case "JointGather" | "JointScatter":
            if at[0] == at[1]:
                raise IllegalMove(f"{text} names a dim twice")
            parts = tuple(sorted((dim, groups[letter]) for dim, letter in zip(at, letters, strict=True)))
            return JointGather(parts) if name == "JointGather" else JointScatter(parts)
        case _:
            raise ValueError(f"unknown move `{text}`")


def _names(text: str) -> tuple[str, ...]:
    """The letters of a law: groups first, then dims."""
    groups = {letter for part in text.split("_")[1:] for letter in part.partition("(")[0] if letter in "pq"}
    inside = {letter for part in text.split("(")[1:] for letter in part.partition(")")[0] if letter in "def"}
    return (*sorted(groups), *sorted(inside))


# What JAX's derivative of each is: for blocks x and y of all devices, the sum of move(x)·y is that of x·transpose(y).
TRANSPOSES: dict[str, str] = {
    "AllGather_p(d)": "ReduceScatter_p(d)",
    "ReduceScatter_p(d)": "AllGather_p(d)",
    "AllToAll_p(d,e)": "AllToAll_p(e,d)",
    "AllReduce_p": "AllReduce_p",
}
