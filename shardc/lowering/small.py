"""Products of many small matrices: term by term, as functions of elements.

    Q[B, T, H, F, E] = x[B, T, H, C, E] · R[T, C, F, E]        of bf16, for a TPU; C=2, F=2: a rotation at each T and E

    Q = jnp.einsum("bthce,tcfe->bthfe", x, R, …)
    Q = sum(jnp.einsum("bthe,tfe->bthfe", left, right, …) for left, right in zip(jnp.unstack(x, axis=3), …))

Of the first the compiler makes one small product after another, each in tiles of its own; the second is one loop over
elements, a hundred times as fast (`lowering.timed.takes_terms`). A product that reads what that loop leaves would
compute it in its own, and is made to wait for it. How many matrices there are, and how large they are, follows from how
much is multiplied and from the sizes of what is multiplied, so that a price needs no dims to know it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shardc.ir import dtypes
from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Einsum, Loop, Step, operands_of
from shardc.ir.sharding import Array, Dims
from shardc.lowering.fusion import Reads, reads
from shardc.lowering.timed import takes_terms


class Matrices(NamedTuple):
    """So many products of `rows` × `summed` and `summed` × `columns` numbers; `last_is_counted` where the result's last
    dim tells them apart: the numbers of one then lie far from each other."""

    number: int
    rows: int
    summed: int
    columns: int
    last_is_counted: bool = False

    @classmethod
    def of(cls, multiplied: int, left: int, right: int, result: int, last_is_counted: bool) -> Matrices:
        """By the numbers that are multiplied, and by those of the operands and the result; none where devices have more
        parts than there are numbers."""
        if not all((multiplied, left, right, result)):
            return cls(0, 0, 0, 0)
        number = left * right * result // multiplied**2
        return cls(number, multiplied // right, multiplied // result, multiplied // left, last_is_counted)


def tells_apart(dims: Dims, operands: Sequence[Dims]) -> bool:
    """Whether the last dim of a result is one of both operands."""
    return bool(dims) and all(dims[-1] in each for each in operands)


def terms(matrices: Matrices, types: Sequence[DType]) -> int:
    """Of how many terms each number of a product of such operands is, where it is added up so; else none.

    Floats alone: they are added up in f32 either way.
    """
    if not all(each.kind is dtypes.Kind.FLOAT and each.bytes <= 4 for each in types):
        return 0
    return matrices.summed if takes_terms(*matrices) else 0


def terms_of(step: Step, block: Block, mesh: Mesh) -> str | None:
    """The dim whose numbers are the terms, where a step is such a product on each device."""
    if not isinstance(step.op, Einsum):
        return None
    arrays, result = operands_of(step, block.values), block.values[step.result]
    if len(arrays) != 2:
        return None
    extents = _extents(arrays, mesh)
    left, right, made = (math.prod(extents[dim] for dim in each.dims) for each in (*arrays, result))
    is_counted = tells_apart(result.dims, [array.dims for array in arrays])
    found = Matrices.of(math.prod(extents.values()), left, right, made, is_counted)
    summed = [dim for dim, size in extents.items() if dim not in result.dims and size > 1]
    is_one = len(summed) == 1 and all(summed[0] in array.dims for array in arrays)
    return summed[0] if is_one and terms(found, [array.dtype for array in arrays]) else None


def waited_for(terms: Mapping[int, str | None], block: Block) -> frozenset[int]:
    """Which of these products other products read, or what is computed of them element by element."""
    made = {value: {value} for value, dim in terms.items() if dim is not None}
    found = set[int]()
    for step in block.steps if made else ():
        if isinstance(step.op, Loop):
            continue
        before = set[int]().union(*(made.get(value, ()) for value in step.operands))
        if isinstance(step.op, Einsum):
            found |= before
        elif before and step.op.facts.kind is Kind.LOCAL and reads(step, block) is Reads.ELEMENTS:
            made[step.result] = before
    return frozenset(found)


def _extents(arrays: Sequence[Array], mesh: Mesh) -> Mapping[str, int]:
    return {dim: size for array in arrays for dim, size in zip(array.dims, array.local_shape(mesh), strict=True)}
