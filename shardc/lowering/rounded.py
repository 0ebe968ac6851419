"""What the TPU's compiler keeps and moves as bf16 of a program in f32: what products alone read, which round it.

B[J, K] = AllGather B; T = relu(A); C = T · B      gathered as bf16, half the bytes, and T lies as bf16
D[J, K_X] = Slice B; E = A · D                     so it is where moves, or another order of dims, lie between
"""

from __future__ import annotations

from dataclasses import replace

from shardc.ir.digits import Reshape
from shardc.ir.dtypes import DTYPES
from shardc.ir.plan import Block, Einsum, Step, ValueNumber
from shardc.lowering import tpu
from shardc.lowering.fusion import Reads, reads


def as_kept(block: Block) -> Block:
    """A block with each value in the type in which it lies in memory; sums are added up as they are."""
    summed = {value for step in block.steps if step.op.facts.reduces for value in step.results}
    kept = rounded(block) - summed
    narrow = (replace(each, dtype=DTYPES["bf16"]) if n in kept else each for n, each in enumerate(block.values))
    return replace(block, values=tuple(narrow)) if kept else block


def rounded(block: Block) -> frozenset[ValueNumber]:
    """The values of f32 that products alone read, directly or moved."""
    readers: dict[ValueNumber, list[Step]] = {}
    for step in block.steps:
        for operand in step.operands:
            readers.setdefault(operand, []).append(step)
    found = set[ValueNumber]()
    for step in reversed(block.steps):
        for value in step.results:
            is_kept = block.values[value].dtype.name == "f32" and value not in block.outputs
            if is_kept and value in readers and all(_rounds(reader, block, found) for reader in readers[value]):
                found.add(value)
    return frozenset(found)


def _rounds(step: Step, block: Block, found: set[ValueNumber]) -> bool:
    """Whether it reads rounded elements: a product, or what only puts them where they are read so."""
    if isinstance(step.op, Einsum):
        way = Reads.PRODUCT if len(step.operands) > 1 else Reads.ELEMENTS
        return reads(step, block) is way and (way is Reads.PRODUCT or not found.isdisjoint(step.results))
    return not found.isdisjoint(step.results) and (isinstance(step.op, Reshape) or tpu.rounds_before(step.op.facts))
