"""What is told apart from what reads it: behind an `optimization_barrier`, which leaves it as it is.

    s[I] = sum_J(a[I, J] ⊙ p[I, J]);  d[I, J] = a - s      the gradient of a softmax: s is read along J again

A sum over elements and its reader along the same dims are two loops. The TPU's compiler now and then makes them one, in
which each element has the sum of its whole row anew (`lowering.tpu.joins_sum_and_reader`).

    y = x + o · W;  n = y ⊙ rsqrt(mean_D(y ⊙ y))           a layer's residual stream, and its norm

The product adds x to its tiles as it makes them. With the sum it is one loop as well, which takes longer than both
(`lowering.tpu.sums_what_meets_tiles`).

    K[B, S, H, E] = x[B, S, D] · W[D, H, E];  A[B, H, T, S] = Q[B, T, H, E] · K

Scores that are masked and softened are one loop, which the compiler may let make K as well, over and over for each tile
of Q (`lowering.timed.makes_products_again`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Einsum, Loop, Step, operands_of
from shardc.lowering.fusion import Reads, is_batched, readers_of, reads


def sums_apart(block: Block) -> frozenset[int]:
    """The sums of elements of a block that are read along the dims that they are taken over."""
    summed = {step.result: _over(step, block) for step in block.steps if _is_sum(step, block)}
    return frozenset(
        value
        for step in block.steps
        if not isinstance(step.op, Loop) and step.op.facts.kind is Kind.LOCAL and reads(step, block) is Reads.ELEMENTS
        for value, dims in zip(step.operands, (array.dims for array in operands_of(step, block.values)), strict=True)
        if value in summed and summed[value] & (set(block.values[step.result].dims) - set(dims))
    )


def met_apart(block: Block, laid: Collection[int] = ()) -> frozenset[int]:
    """The values in which a product's tiles meet another array, that are summed, and read by others too; but for what
    is told to lie in order (`lowering.laid`), whose sums take nothing."""
    tiles, summed = set[int](), set[int]()
    met = dict[int, int]()  # of what is computed of such a value, that value
    readers = Counter[int](number for step in block.steps for number in step.operands)
    for step in block.steps:
        if isinstance(step.op, Loop) or step.op.facts.kind is not Kind.LOCAL:
            continue
        kind, of = reads(step, block), [met[value] for value in step.operands if value in met]
        if kind is Reads.PRODUCT:
            tiles.add(step.result)
        elif kind is Reads.SUMS:
            summed.update(of)
        elif kind is Reads.ELEMENTS and tiles.intersection(step.operands):
            tiles.add(step.result)
            if of or _meets_others(step, block, tiles):
                met[step.result] = of[0] if of else step.result
    return frozenset(value for value in summed if readers[value] > 1 and value not in laid)


def products_apart(block: Block) -> frozenset[int]:
    """The products that another reads, one with dims of batches, and nothing else does."""
    readers = readers_of(block.steps)
    products = [step for step in block.steps if _is_product(step, block)]
    batched = {step.results for step in products if is_batched(step, block)}
    left = (step.result for step in products if step.result not in block.outputs)
    return frozenset(value for value in left if [each.results in batched for each in readers.get(value, ())] == [True])


def _is_product(step: Step, block: Block) -> bool:
    return isinstance(step.op, Einsum) and reads(step, block) is Reads.PRODUCT


def _meets_others(step: Step, block: Block, tiles: Collection[int]) -> bool:
    """Whether an operand as large as the result is no tile."""
    size = {*block.values[step.result].dims}
    return any(value not in tiles and size == {*block.values[value].dims} for value in step.operands)


def _is_sum(step: Step, block: Block) -> bool:
    return isinstance(step.op, Einsum) and reads(step, block) is Reads.SUMS


def _over(step: Step, block: Block) -> set[str]:
    """The dims that a step sums over."""
    before = {dim for array in operands_of(step, block.values) for dim in array.dims}
    return before - set(block.values[step.result].dims)
