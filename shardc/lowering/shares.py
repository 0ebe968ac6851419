"""The sum of exponentials: as a product with ones, of a softmax between two products, and of a product's logsumexp.

    s[B, T, H, S] = q · k;  p = softmax_S(s);  o[B, T, H, E] = p · v                          of bf16, for a TPU

    p = jax.nn.softmax(s, axis=3) …

    highest = jax.lax.stop_gradient(jnp.max(s, axis=3))
    p = jnp.exp(jnp.subtract(s, jnp.expand_dims(highest, 3)))
    total = jnp.einsum("bths,as->abth", p, jnp.broadcast_to(jnp.bfloat16(1), (2, p.shape[3])), …)
    p = jnp.divide(p, jnp.expand_dims(total[0].astype(jnp.bfloat16), 3))

Of the first the compiler adds up in a loop over elements, which takes longer than both products; of the second it
multiplies, as fast as the scores are read (`lowering.timed.adds_up_as_product`). The ones are two equal rows, since of
one it would make that loop again (`lowering.vectors`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from shardc.ir.dtypes import DType
from shardc.ir.functions import FUNCTIONS, Through
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Block, Einsum, Loop, Step, operands_of
from shardc.lowering.fusion import Reads, reads
from shardc.lowering.rounded import NARROW
from shardc.lowering.timed import adds_up_as_product


def is_by_product(function: str, over: Collection[int], dtype: DType, is_multiplied: bool) -> bool:
    """Whether a function over dims of these sizes adds up so, of a product's tiles; `is_multiplied` where a product
    reads it."""
    through = FUNCTIONS[function].through
    is_read_so = is_multiplied or Through.RESULT not in through
    return Through.SUM in through and is_read_so and _is_long(over, dtype)


def _is_long(over: Collection[int], dtype: DType) -> bool:
    return dtype == NARROW and len(over) == 1 and adds_up_as_product(*over)


def by_product(block: Block, mesh: Mesh) -> frozenset[int]:
    """The results of a block that are added up so: of functions over dims, and of sums of exponentials, as such a
    function is done over a sharded dim."""
    multiplied, read = _multiplied(block), Counter(value for step in block.steps for value in step.operands)
    found = set[int]()
    for step in _of_tiles(block):
        (array,), (value,) = operands_of(step, block.values), step.operands
        sizes = dict(zip(array.dims, array.local_shape(mesh), strict=True))
        if isinstance(step.op, Apply):
            over = [sizes[dim] for dim in step.op.over]
            is_so = is_by_product(step.op.function, over, array.dtype, step.result in multiplied)
        else:
            over = [size for dim, size in sizes.items() if dim not in block.values[step.result].dims]
            is_so = (value in multiplied or read[value] == 1) and _is_long(over, array.dtype)
        found |= {step.result} if is_so else set()
    return frozenset(found)


def _of_tiles(block: Block) -> Iterator[Step]:
    """What goes over a dim of a product's tiles, or of what is computed of their elements, and reads nothing else; of
    sums those of exponentials."""
    tiles, exponentials = set[int](), set[int]()
    for step in block.steps:
        if isinstance(step.op, Loop):
            continue
        kind, size = reads(step, block), {*block.values[step.result].dims}
        whole = [value for value in step.operands if {*block.values[value].dims} == size]
        if kind is Reads.PRODUCT or (kind is Reads.ELEMENTS and not tiles.isdisjoint(whole)):
            tiles.add(step.result)
            exponentials |= {step.result} if step.op == Apply("exp") else set()
        elif kind is not Reads.ELEMENTS and (_of_one(step, tiles) or _of_one(step, exponentials, is_sum=True)):
            yield step


def _of_one(step: Step, values: Collection[int], is_sum: bool = False) -> bool:
    """Whether it is a function over dims, or a sum, of one of these."""
    is_function = isinstance(step.op, Apply) and bool(FUNCTIONS[step.op.function].through)
    is_such = isinstance(step.op, Einsum) and len(step.operands) == 1 if is_sum else is_function
    return is_such and step.operands[0] in values


def _multiplied(block: Block) -> set[int]:
    """What products read, and what is made of its elements for them."""
    found = set[int]()
    for step in reversed(block.steps):
        if isinstance(step.op, Loop):
            continue
        kind = reads(step, block)
        if kind is Reads.PRODUCT or (kind is Reads.ELEMENTS and step.result in found):
            found.update(step.operands)
    return found
