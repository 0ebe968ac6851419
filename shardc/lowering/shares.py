"""The sum of exponentials: as a product with ones, of a softmax between two products, and of a product's logsumexp.

    s[B, T, H, S] = q · k;  p = softmax_S(s);  o[B, T, H, E] = p · v                          of bf16, for a TPU

    p = softmax(s, axis=3) …

    highest = jax.lax.stop_gradient(jnp.max(s, axis=3))
    p = jnp.exp(jnp.subtract(s, jnp.expand_dims(highest, 3)))
    total = jnp.einsum("bths,as->abth", p, jnp.broadcast_to(jnp.bfloat16(1), (2, p.shape[3])), …)
    p = jnp.divide(p, jnp.expand_dims(total[0].astype(jnp.bfloat16), 3))

Of the first the compiler adds up in a loop over elements, which takes longer than both products; of the second it
multiplies, as fast as the scores are read (`lowering.timed.adds_up_as_product`). The ones are two equal rows, since of
one it would make that loop again (`lowering.vectors`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shardc.ir.dtypes import DType
from shardc.ir.functions import FUNCTIONS, Through
from shardc.ir.plan import Apply, Block, Loop, Step, operands_of
from shardc.lowering.fusion import Reads, reads
from shardc.lowering.rounded import NARROW
from shardc.lowering.timed import adds_up_as_product


def is_by_product(function: str, over: Collection[int], dtype: DType, is_multiplied: bool) -> bool:
    """Whether a function over dims of these sizes adds up so, of a product's tiles; `is_multiplied` where a product
    reads it."""
    through = FUNCTIONS[function].through
    is_read_so = is_multiplied or Through.RESULT not in through
    return Through.SUM in through and is_read_so and dtype == NARROW and len(over) == 1 and adds_up_as_product(*over)


def by_product(block: Block) -> frozenset[int]:
    """The results of a block that are added up so."""
    multiplied = _multiplied(block)
    return frozenset(
        step.result
        for step, op in _of_tiles(block)
        if is_by_product(op.function, *_asked(step, op, block), step.result in multiplied)
    )


def _asked(step: Step, op: Apply, block: Block) -> tuple[list[int], DType]:
    (array,) = operands_of(step, block.values)
    return [array.shape[array.dims.index(dim)] for dim in op.over], array.dtype


def _of_tiles(block: Block) -> Iterator[tuple[Step, Apply]]:
    """The functions over dims of which a product's tiles, or what is computed of their elements, are all that they
    read."""
    tiles = set[int]()
    for step in block.steps:
        if isinstance(step.op, Loop):
            continue
        kind, size = reads(step, block), {*block.values[step.result].dims}
        whole = [value for value in step.operands if {*block.values[value].dims} == size]
        if kind is Reads.PRODUCT or (kind is Reads.ELEMENTS and not tiles.isdisjoint(whole)):
            tiles.add(step.result)
        elif isinstance(step.op, Apply) and FUNCTIONS[step.op.function].through and tiles.issuperset(step.operands):
            yield step, step.op


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
