"""Products by the book: the four cases, one mesh axis at a time; local products; why a move stands beside one.

The cases are those of *How To Scale Your Model*, chapter 3. A case says what an axis does in a product whose operands
lie as written; which of the remedies is cheapest is for the planner to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TypeAlias, assert_never

from shardc.ir.collectives import Move
from shardc.ir.operations import Kind
from shardc.ir.plan import Rule
from shardc.ir.sharding import Axes, Dims, Sharding
from shardc.rules.placements import ANYWHERE, Space


@dataclass(frozen=True, slots=True)
class Site:
    """What one axis shards: per operand, the dim (None: it shards nothing there), and the dims that are summed."""

    dims: tuple[str | None, ...]
    summed: frozenset[str]

    @property
    def sharded(self) -> tuple[str, ...]:
        return tuple(dim for dim in self.dims if dim is not None)


def case_3(site: Site) -> bool:
    """`A[I, J_X] · B[J_X, K] → C[I, K]{U_X}`: then AllReduce, ReduceScatter, or leave it unreduced."""
    return len(site.sharded) == 2 and len(set(site.sharded)) == 1 and site.summed.issuperset(site.sharded)


def case_2(site: Site) -> bool:
    """`A[I, J_X] · B[J, K]`: `AllGather_X A`; or `B[J, K] → B[J_X, K]` by a slice, and reduce as in case 3."""
    return any(dim in site.summed for dim in site.sharded)


def case_4(site: Site) -> bool:
    """`A[I_X, J] · B[J, K_X]`: C would be `[I_X, K_X]`; `AllGather_X` one of the two first."""
    return len(set(site.sharded)) == 2


def case_1(site: Site) -> bool:
    """`A[I_X, J] · B[J, K] → C[I_X, K]`: no communication."""
    return True


@dataclass(frozen=True, slots=True)
class Case:
    number: int
    holds: Callable[[Site], bool]
    remedy: str


# The first that holds is the case.
CASES: tuple[Case, ...] = (
    Case(3, case_3, "multiply locally, then reduce"),
    Case(2, case_2, "gather the operand, or slice the other and reduce"),
    Case(4, case_4, "gather one operand"),
    Case(1, case_1, "no communication"),
)


def case_of(axis: str, operand_dims: Sequence[Dims], result_dims: Dims, operands: Sequence[Sharding]) -> int:
    """The case, 1 to 4, of one axis of a product of one or two operands."""
    site = Site(
        tuple(_dim_on(axis, dims, sharding) for dims, sharding in zip(operand_dims, operands, strict=True)),
        frozenset(dim for dims in operand_dims for dim in dims if dim not in result_dims),
    )
    return next(case.number for case in CASES if case.holds(site))


def cases_of(
    axes: Axes, operand_dims: Sequence[Dims], result_dims: Dims, operands: Sequence[Sharding]
) -> dict[str, int]:
    """Of each axis its case."""
    return dict(_cases(axes, tuple(operand_dims), result_dims, tuple(operands)))


@lru_cache(maxsize=1024)
def _cases(
    axes: Axes, operand_dims: tuple[Dims, ...], result_dims: Dims, operands: tuple[Sharding, ...]
) -> tuple[tuple[str, int], ...]:
    return tuple((axis, case_of(axis, operand_dims, result_dims, operands)) for axis in axes)


def _dim_on(axis: str, dims: Dims, sharding: Sharding) -> str | None:
    return next((dim for dim, axes in zip(dims, sharding.dims, strict=True) if axis in axes), None)


@dataclass(frozen=True, slots=True)
class LocalProduct:
    """One way to multiply with no communication: the operands' shardings and the result's."""

    operands: tuple[Sharding, ...]
    result: Sharding


def local_product(operand_dims: Sequence[Dims], result_dims: Dims, operands: Sequence[Sharding]) -> Sharding | None:
    """What a product of local blocks leaves, or None where blocks do not meet.

    `A[I_X, J_Y] · B[J_Y, K] → C[I_X, K]{U_Y}`: a dim keeps its axes, a summed dim's axes become unreduced.
    Refused: a dim sharded differently on the two operands; an axis on two dims; an axis over which one
    operand is unreduced and the other differs as well, since (a₀ + a₁)·(b₀ + b₁) is not a₀b₀ + a₁b₁.
    """
    axes_of: dict[str, Axes] = {}
    for dims, sharding in zip(operand_dims, operands, strict=True):
        for dim, axes in zip(dims, sharding.dims, strict=True):
            if axes_of.setdefault(dim, axes) != axes:
                return None
    placed = [axis for axes in axes_of.values() for axis in axes]
    partial = [axis for sharding in operands for axis in sharding.unreduced]
    if len(set(placed + partial)) != len(placed) + len(partial):
        return None
    summed = [axis for dim, axes in axes_of.items() if dim not in result_dims for axis in axes]
    return Sharding(tuple(axes_of[dim] for dim in result_dims), frozenset(partial + summed))


@lru_cache(maxsize=256)
def local_products(
    operand_dims: tuple[Dims, ...],
    result_dims: Dims,
    pool: Axes,
    unreduced: tuple[frozenset[str], ...],
    space: Space = ANYWHERE,
) -> tuple[LocalProduct, ...]:
    """Every local product over the axes of `pool`; `unreduced` are the axes each operand may be unreduced over.

    With a space of its dims, in the order in which they come, those of its placements.

    An axis lies on one dim of the product, or is unreduced on one operand, or takes no part: that makes
    each way, so they are counted by the shardings of one array with all the dims.
    """
    every_dim = tuple(dict.fromkeys(dim for dims in operand_dims for dim in dims))
    found = []
    for placement in space.placements(pool, len(every_dim)):
        axes_of = dict(zip(every_dim, placement, strict=True))
        used = {axis for axes in placement for axis in axes}
        lie = [tuple(axes_of[dim] for dim in dims) for dims in operand_dims]
        for partials in _partials(tuple(axis for axis in pool if axis not in used), unreduced):
            operands = tuple(Sharding(dims, partial) for dims, partial in zip(lie, partials, strict=True))
            result = local_product(operand_dims, result_dims, operands)
            assert result is not None
            found.append(LocalProduct(operands, result))
    return tuple(found)


@lru_cache(maxsize=1024)
def _partials(free: Axes, unreduced: tuple[frozenset[str], ...]) -> tuple[tuple[frozenset[str], ...], ...]:
    """Every way to have the operands unreduced over axes that shard nothing, each axis on one operand at most."""
    found = []
    candidates = [axis for axis in free if any(axis in allowed for allowed in unreduced)]
    for owners in product((None, *range(len(unreduced))), repeat=len(candidates)):
        pairs = list(zip(candidates, owners, strict=True))
        if all(owner is None or axis in unreduced[owner] for axis, owner in pairs):
            found.append(tuple(frozenset(a for a, owner in pairs if owner == i) for i in range(len(unreduced))))
    return tuple(found)


# --- why a move is done

_MASK = "one copy, to be added to partial sums"


@dataclass(frozen=True, slots=True)
class Reshard:
    """For no product: between the sharding that an array has and one that is asked for."""

    def rule(self, move: Move, dims: Dims) -> Rule:
        return _rule(move, _MASK if move.facts.kind is Kind.MASK else "reshard")


@dataclass(frozen=True, slots=True)
class Before:
    """To bring an operand to where a product takes it: the case of each axis, and the dims that the product sums."""

    cases: Mapping[str, int]
    summed: frozenset[str]

    def rule(self, move: Move, dims: Dims) -> Rule:
        """`dims` are of each place of the array the dim, or the dim that it is a digit of."""
        is_summed, cases = len(move.on) == 1 and dims[move.on[0]] in self.summed, _met(move, self.cases)
        match move.facts.kind:
            case Kind.GATHER if is_summed:
                return _rule(move, "gather the contracted dim", 2 if 2 in cases else None)
            case Kind.GATHER if 4 in cases:
                return _rule(move, "gather one operand", 4)
            case Kind.GATHER:
                return _rule(move, "gather before the product")
            case Kind.SLICE if is_summed and 2 in cases:
                return _rule(move, "slice the other operand", 2)
            case Kind.SLICE if is_summed:
                return _rule(move, "slice the contracted dim")
            case Kind.SLICE:
                return _rule(move, "slice before the product")
            case Kind.SUM | Kind.SCATTER:
                return _rule(move, "reduce before the product")
            case Kind.MASK:
                return _rule(move, _MASK)
            case Kind.EXCHANGE | Kind.PERMUTE | Kind.LOCAL | Kind.LOOP:
                return _rule(move, "reshard before the product")
            case kind:
                assert_never(kind)


@dataclass(frozen=True, slots=True)
class After:
    """To bring what a local product leaves to where it is wanted: the case of each axis."""

    cases: Mapping[str, int]

    def rule(self, move: Move, dims: Dims) -> Rule:
        case = max(_met(move, self.cases) & {2, 3}, default=None)
        match move.facts.kind:
            case Kind.SUM:
                return _rule(move, "reduce the result", case)
            case Kind.SCATTER:
                return _rule(move, "reduce and scatter the result", case)
            case Kind.GATHER:
                return _rule(move, "gather after the product")
            case Kind.SLICE:
                return _rule(move, "slice after the product")
            case Kind.MASK:
                return _rule(move, _MASK)
            case Kind.EXCHANGE | Kind.PERMUTE | Kind.LOCAL | Kind.LOOP:
                return _rule(move, "reshard after the product")
            case kind:
                assert_never(kind)


Why: TypeAlias = Reshard | Before | After


def _met(move: Move, cases: Mapping[str, int]) -> set[int]:
    """The cases of a move's axes."""
    return {cases.get(axis, 1) for axis in move.axes}


def _rule(move: Move, words: str, case: int | None = None) -> Rule:
    times = move.turns.times
    return Rule(words, case, times if times > 1 else None)
