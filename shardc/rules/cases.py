"""The four cases of the book, one mesh axis at a time.

*How To Scale Your Model*, chapter 3. A case says what an axis does in a product whose operands lie as
written; which of the remedies is cheapest is for the planner to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardc.ir.sharding import Axes, Sharding

Dims = tuple[str, ...]


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
    return len(site.sharded) == 2 and len(set(site.sharded)) == 1 and site.sharded[0] in site.summed


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
    return {axis: case_of(axis, operand_dims, result_dims, operands) for axis in axes}


def _dim_on(axis: str, dims: Dims, sharding: Sharding) -> str | None:
    return next((dim for dim, axes in zip(dims, sharding.dims, strict=True) if axis in axes), None)
