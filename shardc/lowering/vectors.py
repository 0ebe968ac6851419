"""Products of a matrix and a vector: the vector is read twice, and one of two equal rows is taken.

    w[N] = A[N, M] · v[M]

    w = jnp.einsum("nm,m->n", A, v)                                                 of bf16, for a TPU
    w = jnp.einsum("nm,am->an", A, jnp.broadcast_to(v, (2,) + v.shape))[0]

Of the first the compiler makes a loop that multiplies and adds up element by element, of the second a product, which is
as fast as A is read (`lowering.timed.reads_vectors_twice`). So it is where a device has one row of `V[P_X, M]`, P as
many as devices.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Mapping, Sequence

from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Einsum, Step, operands_of
from shardc.ir.sharding import Array
from shardc.lowering.fusion import Reads, reads
from shardc.lowering.rounded import NARROW
from shardc.lowering.timed import reads_vectors_twice

LETTERS = len(string.ascii_letters)  # that an einsum has for dims


def vector_of(step: Step, block: Block, mesh: Mesh) -> int | None:
    """Which operand of a product is such a vector on each device."""
    arrays = operands_of(step, block.values)
    if not isinstance(step.op, Einsum) or len(arrays) != 2:
        return None
    extents = {dim: size for array in arrays for dim, size in zip(array.dims, array.local_shape(mesh), strict=True)}
    vector = _lacking(*arrays, extents)
    if vector is None or not _is_loop(arrays, block.values[step.result].dims, extents) or len(extents) >= LETTERS:
        return None
    matrix = arrays[1 - vector]
    if _is_computed(step.operands[1 - vector], block) or not is_read_twice(
        [array.dtype for array in arrays], matrix.local_bytes(mesh)
    ):
        return None
    return vector


def _is_computed(value: int, block: Block) -> bool:
    """Whether it is made element by element: part of a loop that reads it, and read from memory by a product."""
    made = next((step for step in block.steps if value in step.results), None)
    return made is not None and made.op.facts.kind is Kind.LOCAL and reads(made, block) is Reads.ELEMENTS


def is_read_twice(dtypes: Sequence[DType], size: int) -> bool:
    """Of operands of these types, and a matrix of so many bytes."""
    return all(dtype == NARROW for dtype in dtypes) and reads_vectors_twice(size)


def _lacking(left: Array, right: Array, extents: Mapping[str, int]) -> int | None:
    """The operand that has no dim for itself, where the other has one."""
    own = [_own(left, right, extents), _own(right, left, extents)]
    return own.index(False) if any(own) and not all(own) else None


def _own(array: Array, other: Array, extents: Mapping[str, int]) -> bool:
    return any(extents[dim] > 1 and dim not in other.dims for dim in array.dims)


def _is_loop(arrays: Sequence[Array], result: Collection[str], extents: Mapping[str, int]) -> bool:
    """Whether something is summed; and nothing is batched, or some of that is one element, by which the compiler knows
    no product."""
    both = {*arrays[0].dims} & {*arrays[1].dims}
    batched = [extents[dim] for dim in both & {*result}]
    return any(extents[dim] > 1 for dim in both - {*result}) and (not batched or 1 in batched)
