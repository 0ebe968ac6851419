"""Masks are made as wide as what is made of them.

    M[T, S] = index_T >= index_S;  P[B, H, T, S] = where(M, q · k, -inf)

    M = jnp.greater_equal(jnp.expand_dims(t, 1), s)                                          M[T, S]
    M = jnp.greater_equal(jnp.broadcast_to(jnp.expand_dims(t, 1), (4, 8, 2048, 2048)), s)    M[B, H, T, S], for a TPU

Of the first the compiler makes an array, which is read wherever scores are; the second is computed there
(`lowering.timed.stores_narrow_masks`). A mask is of truths or whole numbers, made of arrays that have fewer dims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardc.ir.dtypes import Kind
from shardc.ir.operations import Kind as Operation
from shardc.ir.plan import Block, Loop, Step, ValueNumber, operands_of
from shardc.ir.sharding import Array
from shardc.lowering.fusion import Reads, readers_of, reads


def masks_of(block: Block) -> set[int]:
    """Values that are no outputs, of truths or whole numbers and of several dims, made of arrays with fewer dims by
    functions of elements."""
    found = set[int]()
    for step in block.steps:
        if isinstance(step.op, Loop) or not _is_of_elements(step, reads(step, block)):
            continue
        made, read = block.values[step.result], zip(step.operands, operands_of(step, block.values), strict=True)
        is_mask = len(made.dims) > 1 and made.dtype.kind is not Kind.FLOAT and step.result not in block.outputs
        if is_mask and all(value in found or len(array.dims) < len(made.dims) for value, array in read):
            found.add(step.result)
    return found


def wider(block: Block) -> dict[int, int]:
    """Of each mask that only goes into elements of larger arrays, all of the same dims, one of these."""
    steps = [step for step in block.steps if not isinstance(step.op, Loop)]
    kinds = {step.result: reads(step, block) for step in steps}
    masks, readers, found = masks_of(block), readers_of(block.steps), dict[int, int]()
    for step in reversed(steps):
        value = step.result
        if value in masks and value in readers:
            made = [found.get(each.results[0], each.results[0]) for each in readers[value]]
            if all(_makes_elements(each, value, block, kinds) for each in readers[value]) and _is_narrower(
                block.values[value], [block.values[number] for number in made]
            ):
                found[value] = made[0]
    return found


def as_wide(array: Array, other: Array) -> Array:
    """An array with the dims of another."""
    sharding = replace(array.sharding, dims=other.sharding.dims)
    return replace(array, dims=other.dims, shape=other.shape, sharding=sharding)


def _makes_elements(reader: Step, value: int, block: Block, kinds: Mapping[ValueNumber, Reads]) -> bool:
    """Whether a step makes an element of its result of each that it reads, and calls the dims as they are called."""
    if not _is_of_elements(reader, kinds.get(reader.results[0])):
        return False
    read = zip(reader.operands, operands_of(reader, block.values), strict=True)
    return all(array.dims == block.values[value].dims for operand, array in read if operand == value)


def _is_of_elements(step: Step, kind: Reads | None) -> bool:
    """Whether it makes each element of one of each operand. A Slice is read so as well, and moves what is as it is."""
    return kind is Reads.ELEMENTS and step.op.facts.kind is Operation.LOCAL


def _is_narrower(array: Array, others: Sequence[Array]) -> bool:
    """Whether others have the same dims, and more than an array has, which lie as its own do."""
    first = others[0]
    lies = dict(zip(first.dims, first.sharding.dims, strict=True))
    own = zip(array.dims, array.sharding.dims, strict=True)
    return (
        len({other.dims for other in others}) == 1
        and len(first.dims) > len(array.dims)
        and all(lies.get(dim) == axes for dim, axes in own)
    )
