"""Which products can be done as a ring with a collective over some axes, along which dim of theirs, and which way.

C[I, K] = A[I, J] · AllGather_X B[J_X, K]    along J: blocks of B go round, each with its columns of A; sums
C[I, K] = A[I, J] · AllGather_X B[J, K_X]    along K: each block gives its columns of C
ReduceScatter_X,I A[I, J_X] · B[J_X, K]      along I: sums go round, to each the rows of A that are its share
AllReduce_X A[I, J_X] · B[J_X, K]            the same along some dim, gathered in the end

Over several axes at once a ring goes round through all their devices, each beside the one before, so that links of
all the axes are in use: there and back over all but the first column, and back along that. By the numbers of the
blocks, on X=2, Y=2 and on X=4, Y=3:

    0 → 1        0 → 1 → 2
    ↑   ↓        ↑       ↓       Where X is odd, Y takes its part. Where all sizes are odd there is no such way, and the
    2 ← 3        3   4 ← 5       last block goes back to the first over several links. Where a mesh is itself laid on a
                 ↑   ↓           walk through the chips, as `jax.make_mesh` lays it on small slices, neighbours are
                 6   7 → 8       those whose numbers follow: there a ring goes by number.
                 ↑       ↓
                 9 ←10 ← 11
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardc.ir.exchange import Pairs
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Einsum, How, Schedule, Step, Together, ValueNumber, operands_of
from shardc.ir.sharding import Axes
from shardc.lowering.around import multiplies_in_pairs, waits_for_gather
from shardc.lowering.flow import equal_along
from shardc.lowering.repeats import any_repeats
from shardc.lowering.target import Target

MOST = 16  # devices round: each has a product and a permute of its own in the program


@dataclass(frozen=True, slots=True)
class Ring:
    """Along this dim of the product, through the devices of these axes, by the numbers of their blocks in order.

    `in_pairs`: the blocks of both turns are one product, so that the other operand is read once for both:

        right, left = split(concatenate([A[i], A[k]]) · B)      for     right = A[i] · B;  left = A[k] · B
    """

    axes: Axes
    around: tuple[int, ...]
    dim: str
    gathers: bool
    gathered_after: bool = False  # the sum is for all
    waits: ValueNumber | None = None  # the other operand, for which what goes round is held
    in_pairs: bool = False

    @property
    def size(self) -> int:
        return len(self.around)

    @property
    def is_in_order(self) -> bool:
        """Whether the blocks come by in the order of their numbers."""
        return self.around == tuple(range(self.size))

    def pairs(self, step: int) -> Pairs:
        """Every device with the one that many further on, or back."""
        return tuple((at, self.around[(place + step) % self.size]) for place, at in enumerate(self.around))


def way_round(sizes: Sequence[int]) -> tuple[int, ...]:
    """Devices of axes of these sizes, by their numbers, each beside the one before.

    >>> way_round([2, 2]), way_round([4, 3]), way_round([4])
    ((0, 1, 3, 2), (0, 1, 2, 5, 4, 7, 8, 11, 10, 9, 6, 3), (0, 1, 2, 3))
    """
    rows = _rows([size for size in sizes if size > 1])
    if len(rows) % 2 and len(rows[0]) % 2 == 0:
        rows = [list(column) for column in zip(*rows, strict=True)]
    if len(rows) % 2 or len(rows[0]) == 1:
        return tuple(_there_and_back(rows))
    first, *others = (row[0] for row in rows)
    return (first, *_there_and_back([row[1:] for row in rows]), *others[::-1])


def _rows(sizes: Sequence[int]) -> list[list[int]]:
    """For each place along the first axis the devices of the others, each beside the one before."""
    first, *others = sizes
    row = _there_and_back(_rows(others)) if others else [0]
    return [[place * len(row) + at for at in row] for place in range(first)]


def _there_and_back(rows: Sequence[Sequence[int]]) -> list[int]:
    return [at for number, row in enumerate(rows) for at in (row[::-1] if number % 2 else row)]


def ring_of(schedule: Schedule, group: Together) -> Ring | None:
    """How a group is done as a ring; None where it cannot be."""
    steps = schedule.steps[group.first : group.last + 1]
    if len(steps) != 2 or any_repeats(schedule.block, group.places):
        return None
    one, other = steps
    found = None
    if isinstance(other.op, Einsum):
        found = _gathering(schedule, one, other)
    elif isinstance(one.op, Einsum):
        found = _scattering(schedule, one, other)
    return replace(found, around=tuple(range(found.size))) if found and group.numbered else found


def rings(schedule: Schedule, group: Together) -> Iterator[Together]:
    """The group as a ring, each way round that there is."""
    by_mesh = replace(group, how=How.RING)
    found = ring_of(schedule, by_mesh)
    if found is not None:
        yield by_mesh
        yield from () if found.is_in_order else [replace(by_mesh, numbered=True)]


def _gathering(schedule: Schedule, gather: Step, product: Step) -> Ring | None:
    """The result varies along the axis, as what goes round does: it must not have to be equal there."""
    if gather.op.facts.kind is not Kind.GATHER or len(gather.op.on) != 1 or len(set(product.operands)) != 2:
        return None
    axes, equal = gather.op.axes, equal_along(schedule.block, schedule.mesh)[product.result]
    if not _are_few(axes, schedule.mesh) or not equal.isdisjoint(axes):
        return None
    arrays = operands_of(product, schedule.values)
    dim = arrays[product.operands.index(gather.result)].dims[gather.op.on[0]]
    waits = _waited_for(schedule, gather, product)
    return Ring(axes, _around(axes, schedule.mesh), dim, gathers=True, waits=waits)


def _waited_for(schedule: Schedule, gather: Step, product: Step) -> ValueNumber | None:
    """The other operand, where a collective leaves it and the product hides what goes round."""
    if not waits_for_gather(product.cost.time_s, gather.cost.time_s, Target.of(schedule.program)):
        return None
    (other,) = (value for value in product.operands if value != gather.result)
    return other if any(step.is_collective for step in schedule.steps if other in step.results) else None


def _scattering(schedule: Schedule, product: Step, move: Step) -> Ring | None:
    axes, result = move.op.axes, schedule.values[product.result]
    if not _are_few(axes, schedule.mesh) or len(set(product.operands)) != 2:
        return None
    around = _around(axes, schedule.mesh)
    if move.op.facts.kind is Kind.SCATTER and len(move.op.on) == 1:
        dim = result.dims[move.op.on[0]]
        return Ring(axes, around, dim, gathers=False, in_pairs=_is_read_once(schedule, product, dim, len(around)))
    shape = zip(result.local_shape(schedule.mesh), result.dims, strict=True)
    wide = [(size, dim) for size, dim in shape if size % len(around) == 0]
    if not wide or move.op.facts.kind is not Kind.SUM:  # of a product's partial results it is of no maxima
        return None
    dim = max(wide, key=lambda pair: pair[0])[1]
    in_pairs = _is_read_once(schedule, product, dim, len(around))
    return Ring(axes, around, dim, gathers=False, gathered_after=True, in_pairs=in_pairs)


def _is_read_once(schedule: Schedule, product: Step, dim: str, count: int) -> bool:
    """Whether the operand that lacks a dim is read once for the blocks of both turns, of so many round."""
    arrays, result = operands_of(product, schedule.values), schedule.values[product.result]
    others = [array for array in arrays if dim not in array.dims]
    if count == 2 or len(others) != 1:
        return False
    (other,), mesh = others, schedule.mesh
    shape = zip(result.local_shape(mesh), result.dims, strict=True)
    rows = math.prod(size for size, each in shape if each not in other.dims) // count
    return multiplies_in_pairs(rows, other.local_bytes(mesh), Target.of(schedule.program))


def _are_few(axes: Axes, mesh: Mesh) -> bool:
    return 2 <= mesh.product(axes) <= MOST


def _around(axes: Axes, mesh: Mesh) -> tuple[int, ...]:
    return way_round([mesh.size(axis) for axis in axes])
