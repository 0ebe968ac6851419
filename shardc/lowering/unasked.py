"""Products that name no type to add up in, since what is exchanged next would be copied for it.

    Q[B, S_X, N, H] = x · Wq;  Q[B, S, N_X, H] = AllToAll Q

    Q = jnp.einsum("bsd,dnh->bsnh", x, Wq, preferred_element_type=jnp.float32).astype(jnp.bfloat16)
    Q = jnp.einsum("bsd,dnh->bsnh", x, Wq)                                                      of bf16, for a TPU

A TPU adds up in f32 either way, and rounds once. Asked for f32 its compiler rounds in a loop of its own, and lays out
the pieces to be sent in another (`lowering.rounds.copies_what_it_was_asked_for`).
"""

from __future__ import annotations

from shardc.ir.plan import Block, Einsum, Step, operands_of
from shardc.lowering.fusion import readers_of
from shardc.lowering.rounded import NARROW
from shardc.lowering.rounds import copies_what_it_was_asked_for


def unasked(block: Block) -> frozenset[int]:
    """What products of bf16 leave and exchanges alone read, by number."""
    readers = readers_of(block.steps)
    products = {step.result for step in block.steps if _is_narrow_product(step, block)}
    alone = products.intersection(readers).difference(block.outputs)
    return frozenset(value for value in alone if all(_copies(reader, value, block) for reader in readers[value]))


def _copies(reader: Step, value: int, block: Block) -> bool:
    return copies_what_it_was_asked_for(reader.op.facts, len(block.values[value].dims))


def _is_narrow_product(step: Step, block: Block) -> bool:
    arrays = (*operands_of(step, block.values), block.values[step.results[0]])
    return isinstance(step.op, Einsum) and len(step.operands) == 2 and all(each.dtype == NARROW for each in arrays)
