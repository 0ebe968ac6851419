"""Sums that are told apart from what reads them: behind an `optimization_barrier`, which leaves them as they are.

    s[I] = sum_J(a[I, J] ⊙ p[I, J]);  d[I, J] = a - s      the gradient of a softmax: s is read along J again

A sum over elements and its reader along the same dims are two loops. The TPU's compiler now and then makes them one, in
which each element has the sum of its whole row anew (`lowering.tpu.joins_sum_and_reader`).
"""

from __future__ import annotations

from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Einsum, Loop, Step, operands_of
from shardc.lowering.fusion import Reads, reads


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


def _is_sum(step: Step, block: Block) -> bool:
    return isinstance(step.op, Einsum) and reads(step, block) is Reads.SUMS


def _over(step: Step, block: Block) -> set[str]:
    """The dims that a step sums over."""
    before = {dim for array in operands_of(step, block.values) for dim in array.dims}
    return before - set(block.values[step.result].dims)
