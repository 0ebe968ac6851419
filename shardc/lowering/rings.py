"""Which products can be done as a ring with a collective over one axis, and along which dim of theirs.

C[I, K] = A[I, J] · AllGather_X B[J_X, K]    along J: blocks of B go round, each with its columns of A; sums
C[I, K] = A[I, J] · AllGather_X B[J, K_X]    along K: each block gives its columns of C
ReduceScatter_X,I A[I, J_X] · B[J_X, K]      along I: sums go round, to each the rows of A that are its share
AllReduce_X A[I, J_X] · B[J_X, K]            the same along some dim, gathered in the end
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Einsum, Schedule, Step, Together, operands_of
from shardc.ir.sharding import Axes
from shardc.lowering.flow import equal_along
from shardc.lowering.repeats import repeats

MOST = 16  # devices round: each has a product and a permute of its own in the program


@dataclass(frozen=True, slots=True)
class Ring:
    """So many devices round, along this dim of the product."""

    axis: str
    size: int
    dim: str
    gathers: bool
    gathered_after: bool = False  # the sum is for all


def ring_of(schedule: Schedule, group: Together) -> Ring | None:
    """How a group is done as a ring; None where it cannot be."""
    steps = schedule.steps[group.first : group.last + 1]
    twice = repeats(schedule.block)
    if len(steps) != 2 or any(place in twice for place in range(group.first, group.last + 1)):
        return None
    one, other = steps
    if isinstance(other.op, Einsum):
        return _gathering(schedule, one, other)
    return _scattering(schedule, one, other) if isinstance(one.op, Einsum) else None


def _gathering(schedule: Schedule, gather: Step, product: Step) -> Ring | None:
    """The result varies along the axis, as what goes round does: it must not have to be equal there."""
    if gather.op.facts.kind is not Kind.GATHER or len(gather.op.on) != 1 or len(set(product.operands)) != 2:
        return None
    axis = _axis(gather.op.axes, schedule.mesh)
    equal = equal_along(schedule.block, schedule.mesh)[product.result]
    if axis is None or axis in equal:
        return None
    arrays = operands_of(product, schedule.values)
    dim = arrays[product.operands.index(gather.result)].dims[gather.op.on[0]]
    return Ring(axis, schedule.mesh.size(axis), dim, gathers=True)


def _scattering(schedule: Schedule, product: Step, move: Step) -> Ring | None:
    axis, result = _axis(move.op.axes, schedule.mesh), schedule.values[product.result]
    if axis is None or len(set(product.operands)) != 2:
        return None
    count = schedule.mesh.size(axis)
    if move.op.facts.kind is Kind.SCATTER and len(move.op.on) == 1:
        return Ring(axis, count, result.dims[move.op.on[0]], gathers=False)
    shape = zip(result.local_shape(schedule.mesh), result.dims, strict=True)
    wide = [(size, dim) for size, dim in shape if size % count == 0]
    if not wide or move.op.facts.kind is not Kind.SUM:  # of a product's partial results it is of no maxima
        return None
    return Ring(axis, count, max(wide, key=lambda pair: pair[0])[1], gathers=False, gathered_after=True)


def _axis(axes: Axes, mesh: Mesh) -> str | None:
    return axes[0] if len(axes) == 1 and 2 <= mesh.size(axes[0]) <= MOST else None
