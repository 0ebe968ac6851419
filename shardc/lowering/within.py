"""Products that are done within the one that reads what they leave, which so lies nowhere.

    h[B, F] = relu(x[B, D] · W[D, F]); y[B, E] = h · V[F, E]      one loop, if W and V are small
    s = q ·_E k[N, S, E]; o = (s ⊙ m) · v[N, S, V]                the same, of one of N at a time
    g = relu(x · W); u = relu(g · U); o = u · V                   two in one loop, the third by itself
    s = x · W; p = softmax_F(s); o = p · V                        s is read more than once: it lies in memory

W has F, which the second product sums, and V is what that reads beside h.

(`lowering.work.is_done_within`.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from shardc.ir.mesh import Mesh
from shardc.ir.plan import Block, Step, operands_of
from shardc.ir.sharding import Array
from shardc.lowering.fusion import Reads, kinds_of, readers_of
from shardc.lowering.target import Target
from shardc.lowering.work import is_done_within


def done_within(block: Block, left: Mapping[int, int], mesh: Mesh, target: Target) -> frozenset[int]:
    """What such products leave; `left`: where what a product makes is left by functions of its elements."""
    kinds, readers, found, outer = kinds_of(block, block.steps), readers_of(block.steps), set[int](), set[int]()
    products = [step for step in block.steps if kinds.get(step.results[0]) is Reads.PRODUCT]
    for step in products:
        value = left.get(step.result, step.result)
        by = readers.get(value, [])
        if value in block.outputs or step.result in outer or len(by) != 1 or by[0] not in products:
            continue
        summed = {*block.values[value].dims} - {*block.values[by[0].result].dims}
        first = [array for array in operands_of(step, block.values) if not summed.isdisjoint(array.dims)]
        second = [block.values[each] for each in by[0].operands if each != value]
        if is_done_within(
            max(_matrix_bytes(step, first, block, mesh), _matrix_bytes(by[0], second, block, mesh)), target
        ):
            found.add(value)
            outer.add(by[0].result)
    return frozenset(found)


def _matrix_bytes(step: Step, arrays: Sequence[Array], block: Block, mesh: Mesh) -> int:
    """The bytes of these operands of a product that one of its batches reads."""
    batched = set[str](
        {*block.values[step.result].dims}.intersection(*(a.dims for a in operands_of(step, block.values)))
    )
    return sum(
        prod(size for dim, size in zip(array.dims, array.local_shape(mesh), strict=True) if dim not in batched)
        * array.dtype.bytes
        for array in arrays
    )
