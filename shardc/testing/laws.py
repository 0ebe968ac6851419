"""A library of laws of collectives, as data: each a pair of sequences of moves that leave the same.

`p`, `q`, `r` and `s` stand for groups of axes, `d`, `e` and `f` for dims (`letters`). A law says what its right side is
wherever its left side is legal and its condition holds; `counterexample` goes through every sharding of a rank on small
meshes, every group and every dim. `found_when` finds the condition from nothing but the two sides.

    AllGather_q(d); AllGather_p(d)  =  AllGather_pq(d)          A[I_pq] → A[I_p] → A[I]
    AllReduce_p; Slice_p(d)         =  ReduceScatter_p(d)       A[I]{U_p} → A[I] → A[I_p]

Sources: the chapter on sharded matrices (AllReduce = ReduceScatter; AllGather; AllToAll), what the Shardy dialect
rewrites when it canonicalizes (`shardy` has its cases). The transposes of JAX's collectives are in `transposes`,
identities with products and functions in `identities`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations, permutations, product
from typing import Any

import numpy as np

from shardc import simulate
from shardc.errors import ShardcError
from shardc.interface.arguments import MeshLike
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove
from shardc.ir.sharding import Array, Sharding
from shardc.testing.letters import DIMS, GROUPS, Groups, LawMove, Lies, Sizes, after, names_of, read
from shardc.testing.oracles import all_shardings
from shardc.testing.refusals import count_of, meshes_given

_MORE = 'give meshes of two devices and more, with as many axes as it has groups: [{"X": 2, "Y": 2}]'
Condition = Callable[[Groups, Sizes, Mesh], bool]
CONDITIONS: dict[str, Condition] = {
    "always": lambda groups, dims, mesh: True,
    "d ≠ e": lambda groups, dims, mesh: dims["d"] != dims["e"],
    "d ≠ f": lambda groups, dims, mesh: dims["d"] != dims["f"],
    "e ≠ f": lambda groups, dims, mesh: dims["e"] != dims["f"],
    "d = e": lambda groups, dims, mesh: dims["d"] == dims["e"],
    "p and q are apart": lambda groups, dims, mesh: not set(groups["p"]) & set(groups["q"]),
    "p = q": lambda groups, dims, mesh: groups["p"] == groups["q"],
    "p is of one device": lambda groups, dims, mesh: mesh.product(groups["p"]) == 1,
}


def _letters(condition: str) -> set[str]:
    return {part for part in condition.split() if part in (*GROUPS, *DIMS)}


@dataclass(frozen=True, slots=True)
class Law:
    """`before` = `after`, as text: moves between `;`, groups of axes after `_`, dims in brackets; "" is nothing.

    `when` is a condition of `CONDITIONS`, or several between `, `. SHC001 for anything else.
    """

    before: str
    after: str
    when: str = "always"

    def __post_init__(self) -> None:
        named = set(names_of(self.before, self.after))
        if not named:
            raise ShardcError(
                "SHC001", "a law of no moves says nothing", help='give Law("AllReduce_pq", "AllReduce_qp")'
            )
        for each in self.when.split(", ") if isinstance(self.when, str) else [self.when]:
            if not isinstance(each, str) or each not in CONDITIONS or not _letters(each) <= named:
                fits = ", ".join(f'"{name}"' for name in CONDITIONS if _letters(name) <= named)
                raise ShardcError("SHC001", f"{each!r} is no condition of {self}", help=f"give one of {fits}")

    def __str__(self) -> str:
        condition = "" if self.when == "always" else f", where {self.when}"
        return f"{self.before or 'nothing'} = {self.after or 'nothing'}{condition}"


ONE_BY_ONE = (
    *("AllGather_p(d)", "Slice_p(d)", "AllReduce_p", "ReduceScatter_p(d)", "AllToAll_p(d,e)"),
    *("CollectivePermute_pq(d)", "Mask_p", "Spread_p(d)"),
)
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
    # Over one device nothing is done.
    *(Law(move, "", when="p is of one device") for move in ONE_BY_ONE),
    # Two dims at once.
    Law("JointGather_pq(d,e); Slice_p(d); Slice_q(e)", ""),
    Law("JointScatter_pq(d,e); JointGather_pq(d,e)", "AllReduce_pq"),
    Law("JointGather_pq(d,e); Slice_q(e)", "AllGather_p(d)"),
    Law("AllReduce_pq; Slice_p(d); Slice_q(e)", "JointScatter_pq(d,e)", when="d ≠ e"),
    Law("AllReduce_pq; Slice_pr(d); Slice_q(e)", "JointScatter_pq(d,e); Slice_r(d)", when="d ≠ e"),
    Law("AllToAll_p(d,e); AllToAll_q(d,f)", "JointExchange_pq(d,e,d,f)"),
    Law("AllToAll_p(d,e); AllToAll_q(f,e)", "JointExchange_pq(d,e,f,e)"),
    # Of axes that are summed some are sliced, or of those sliced some are summed.
    Law("AllReduce_p; Slice_pq(d)", "ReduceScatter_p(d); Slice_q(d)"),
    Law("AllReduce_p; Slice_qp(d)", "Slice_q(d); ReduceScatter_p(d)"),
    Law("AllReduce_pq; Slice_p(d)", "AllReduce_q; ReduceScatter_p(d)"),
    Law("AllReduce_p; Slice_q(d); Slice_p(e)", "ReduceScatter_p(e); Slice_q(d)", when="d ≠ e"),
    Law("AllGather_pq(d); Slice_p(d)", "AllGather_q(d)"),
    Law("AllGather_pq(d); Slice_q(e)", "AllToAll_q(d,e); AllGather_p(d)", when="d ≠ e"),
    Law("AllGather_p(d); AllReduce_q; Slice_p(d)", "AllReduce_q"),
    Law("AllGather_p(d); ReduceScatter_q(e); Slice_p(d)", "ReduceScatter_q(e)", when="d ≠ e"),
    # Blocks change devices: the order of axes on a dim, or the dims of two groups.
    Law("CollectivePermute_pq(d); CollectivePermute_qp(d)", ""),
    Law("CollectivePermute_pq(d); AllGather_qp(d)", "AllGather_pq(d)"),
    Law("Slice_pq(d); CollectivePermute_pq(d)", "Slice_qp(d)"),
    Law("ReduceScatter_pq(d); CollectivePermute_pq(d)", "ReduceScatter_qp(d)"),
    Law("AllToAll_q(d,e); AllToAll_p(d,e)", "AllToAll_pq(d,e); CollectivePermute_pq(e)"),
    Law("CollectivePermute_pq(d); AllToAll_qp(d,e)", "AllToAll_pq(d,e); CollectivePermute_pq(e)"),
    Law("CollectivePermute_pq(d,e); CollectivePermute_qp(d,e)", ""),
    Law("CollectivePermute_pq(d,e); AllGather_q(d); AllGather_p(e)", "AllGather_p(d); AllGather_q(e)"),
    # An exchange, and what is on a third dim.
    Law("AllToAll_p(d,e); AllGather_q(f)", "AllGather_q(f); AllToAll_p(d,e)", when="d ≠ f, e ≠ f"),
    Law("AllToAll_p(d,e); Slice_q(f)", "Slice_q(f); AllToAll_p(d,e)", when="d ≠ f, e ≠ f"),
    Law("AllToAll_p(d,e); ReduceScatter_q(f)", "ReduceScatter_q(f); AllToAll_p(d,e)", when="d ≠ f, e ≠ f"),
    # Partial sums of a value.
    Law("Mask_p; AllReduce_p", ""),
    Law("Spread_p(d); AllReduce_p", "AllGather_p(d)"),
    Law("Spread_p(d); ReduceScatter_p(d)", ""),
    Law("Spread_p(d); ReduceScatter_p(e)", "AllToAll_p(d,e)", when="d ≠ e"),
    Law("Mask_p; ReduceScatter_p(d)", "Slice_p(d)"),
    Law("Slice_p(d); Spread_p(d)", "Mask_p"),
    Law("AllGather_p(d); Mask_p", "Spread_p(d)"),
    Law("Mask_p; Mask_q", "Mask_pq"),
)

MESHES = (
    *(Mesh.of({"X": 2, "Y": 2}), Mesh.of({"X": 2, "Y": 3}), Mesh.of({"X": 1, "Y": 2})),
    Mesh.of({"X": 2, "Y": 2, "Z": 2}),
)
_SIZES = {1: 24, 2: 24, 3: 12}  # of each dim, by rank: about so large, shared out by all that a mesh has


def holds(when: str, groups: Groups, dims: Sizes, mesh: Mesh) -> bool:
    """Whether a condition of `CONDITIONS` holds, or all of several: `d ≠ e, d ≠ f`."""
    return all(CONDITIONS[each](groups, dims, mesh) for each in when.split(", "))


def counterexample(law: Law, meshes: Sequence[MeshLike] = MESHES, rank: int = 2) -> str | None:
    """Where the two sides of a law differ though its condition holds; None if nowhere.

    >>> counterexample(Law("AllReduce_p; Slice_p(d)", "ReduceScatter_p(d)"))
    >>> print(counterexample(Law("AllGather_q(d); AllGather_p(d)", "AllGather_qp(d)")))
    A[I_XY, J] on X=2, Y=2 with p=X, q=Y, d=I
    """
    if not isinstance(law, Law):
        raise ShardcError("SHC001", f"{law!r} is no law", help='give Law("AllGather_p(d); Slice_p(d)", "")')
    for case in tried(law, meshes, rank):
        if not case.agrees:
            return str(case)
    return None


def tried(law: Law, meshes: Sequence[MeshLike], rank: int) -> Iterator[LawCase]:
    """The cases where the left side of a law is legal and its condition holds; SHC001 where there is none."""
    is_tried = False
    for case in cases(law, meshes_given(meshes), count_of("the rank", rank, 1, max(_SIZES))):
        if holds(law.when, case.groups, case.dims, case.mesh):
            is_tried = True
            yield case
    if not is_tried:
        where = "" if law.when == "always" else f", where {law.when},"
        raise ShardcError("SHC001", f"`{law.before}`{where} is legal on none of the meshes", help=_MORE)


def found_when(before: str, behind: str, meshes: Sequence[MeshLike] = MESHES, rank: int = 2) -> str:
    """The condition on groups and dims under which two sides agree, found by trying all; "never" if there is none.

    Of conditions that are sufficient it is the one that leaves most cases; cases in which the left side is not legal
    are none.

    >>> found_when("AllGather_p(d); Slice_p(e)", "AllToAll_p(d,e)")
    'd ≠ e'
    >>> found_when("AllGather_p(d)", "AllGather_p(d); Slice_p(d)")
    'p is of one device'
    """
    every = list(tried(Law(before, behind), meshes, rank))
    named = set(names_of(before, behind))
    fits = [name for name in CONDITIONS if _letters(name) <= named]
    conditions = fits + [", ".join(both) for both in combinations(fits[1:], 2)]
    kept = {name: [case for case in every if holds(name, case.groups, case.dims, case.mesh)] for name in conditions}
    enough = [name for name, some in kept.items() if some and all(case.agrees for case in some)]
    return max(enough, key=lambda name: len(kept[name]), default="never")


@dataclass(frozen=True, slots=True)
class LawCase:
    """One array, and one reading of a law's letters; whether both sides leave the same."""

    array: Array
    mesh: Mesh
    groups: Groups
    dims: Sizes
    agrees: bool

    def __str__(self) -> str:
        groups = [f"{name}={''.join(axes)}" for name, axes in self.groups.items()]
        dims = [f"{name}={self.array.dims[place]}" for name, place in self.dims.items()]
        return f"{self.array} on {self.mesh} with {', '.join([*groups, *dims])}"


def cases(law: Law, meshes: Sequence[Mesh], rank: int) -> Iterator[LawCase]:
    """Every sharding, group and dim for which the left side is legal. Of three groups and more each is of one axis."""
    names = names_of(law.before, law.after)
    rank, longest = max(rank, sum(name not in GROUPS for name in names)), 1 if "r" in names else 2
    for mesh in meshes:
        if rank == 3 and len(mesh.axes) > 2:
            continue
        groups = [some for n in range(1, longest + 1) for some in permutations(mesh.names, n)]
        every = list(all_shardings(mesh, rank))
        for values in product(*(groups if name in GROUPS else range(rank) for name in names)):
            chosen: dict[str, Any] = dict(zip(names, values, strict=True))
            named = {name: axes for name, axes in chosen.items() if name in GROUPS}
            dims = {name: dim for name, dim in chosen.items() if name not in GROUPS}
            sides = [_read(side, named, dims) for side in (law.before, law.after)]
            for sharding in every if sides[0] is not None else ():
                yield from _case(sides, sharding, mesh, named, dims)


def _read(side: str, groups: Groups, dims: Sizes) -> tuple[LawMove, ...] | None:
    try:
        return read(side, groups, dims)
    except IllegalMove:
        return None


def _case(
    sides: Sequence[tuple[LawMove, ...] | None], sharding: Sharding, mesh: Mesh, groups: Groups, dims: Sizes
) -> Iterator[LawCase]:
    rank = sharding.rank
    size = -(-_SIZES[rank] // mesh.devices) * mesh.devices
    array = Array("A", ("I", "J", "K")[:rank], (size,) * rank, sharding, DTYPES["int32"])
    wanted = _left(array, sides[0], mesh)
    if wanted is not None:
        found = _left(array, sides[1], mesh)
        yield LawCase(array, mesh, groups, dims, found is not None and _same(found, wanted, mesh))


def _left(array: Array, moves: tuple[LawMove, ...] | None, mesh: Mesh) -> Lies | None:
    """What a side leaves; None where it is not legal, or a dim not shared out evenly."""
    if moves is None or not array.sharding.divides(array.shape, mesh):
        return None
    try:
        return after(array, moves, partial(_laid_out, array, mesh), mesh)
    except IllegalMove:
        return None


def _same(found: Lies, wanted: Lies, mesh: Mesh) -> bool:
    """Lying in one way, but for axes of one device; and equal blocks, of partial sums what they add up to."""
    one, other = (_wide(array.sharding, mesh) for array, _ in (found, wanted))
    along = tuple(mesh.names.index(axis) for axis in mesh.ordered(one.unreduced))
    return one == other and bool(np.array_equal(*(blocks.sum(axis=along) for _, blocks in (found, wanted))))


def _wide(sharding: Sharding, mesh: Mesh) -> Sharding:
    def kept(axes: Iterable[str]) -> list[str]:
        return [axis for axis in axes if mesh.size(axis) > 1]

    return Sharding.of(map(kept, sharding.dims), kept(sharding.unreduced))


@cache
def _laid_out(array: Array, mesh: Mesh) -> Any:
    whole = np.arange(1, 1 + math.prod(array.shape), dtype=np.int64).reshape(array.shape)
    return simulate.scatter(whole, array, mesh)
