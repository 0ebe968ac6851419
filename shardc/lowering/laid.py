"""Values on their way to outputs that are told in which order to lie, since the compiler would lay them for a sum.

    h[B, D] = x + o · W;  y = h ⊙ rsqrt(mean_D(h ⊙ h))        a residual stream and its norm
    L[B, V] = In · W;     p = softmax_V(L)                     logits and their shares

A sum of a product's tiles is made as these are. Along the last dim it adds up within a register's lanes, so the
compiler lays the product the other way round, and copies what is computed of it to where it is read, or left: h and y
are written twice. A product that is told to lie as it would without the sum is written once, and its sum takes no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Block, Loop, Step
from shardc.lowering.forms import Form, Plain
from shardc.lowering.fusion import Reads, is_batched, reads
from shardc.lowering.target import Target
from shardc.lowering.timed import is_laid_in_order

_WIDENED = Apply("widen")  # which rounds nothing, and lies nowhere


def lies_as_told(form: Form | None) -> bool:
    """Whether what a step leaves lies as it is told."""
    return isinstance(form, Plain) and form.laid is not None


def laid_in_order(block: Block, target: Target) -> Mapping[int, tuple[int, ...]]:
    """The products, and what is computed of their elements, that are summed and lead to outputs; and of each the places
    of its dims, from the major to the minor: in its own order, or in that of the one that is computed of it at last.

        p[I, K] = A · B;  y[K, I] = p / (1 + sum_I(p))      p lies as [K, I], its dims at 1, 0
    """
    tiles, summed, left = _tiles(block)
    readers, found = _readers(block), dict[int, tuple[int, ...]]()
    for value in summed:
        own = block.values[value]
        is_kept = readers[value] > 1 or value in block.outputs
        orders = {block.values[each].dims for each in left if value in tiles.get(each, ())}
        if not is_kept or len(orders) != 1:
            continue
        places = tuple(own.dims.index(dim) for dim in orders.pop())
        if is_laid_in_order(own.dtype, target, own.local_shape(target.mesh)[places[-1]]):
            found[value] = places
    return found


class _Tiles(NamedTuple):
    """Of what is computed of a product's elements, itself and such values that it is computed of; those of them that
    are summed; and those that are outputs, or moved to be outputs."""

    of: Mapping[int, frozenset[int]]
    summed: AbstractSet[int]
    left: AbstractSet[int]


def _tiles(block: Block) -> _Tiles:
    tiles, summed, left = dict[int, frozenset[int]](), set[int](), set[int]()
    ends = set(block.outputs)
    for step in reversed(block.steps):
        if not isinstance(step.op, Loop) and step.op.facts.kind is not Kind.LOCAL and step.result in ends:
            ends.update(step.operands)
    for step in block.steps:
        if isinstance(step.op, Loop) or step.op.facts.kind is not Kind.LOCAL:
            continue
        kind, dims = reads(step, block), {*block.values[step.result].dims}
        of = frozenset[int]().union(*(tiles[value] for value in step.operands if value in tiles))
        if kind is Reads.PRODUCT:
            tiles |= {} if is_batched(step, block) else {step.result: frozenset({step.result})}
        elif any(dims != {*block.values[value].dims} for value in of):
            summed |= of if kind is not Reads.ELEMENTS else set()
        elif of and kind in (Reads.ELEMENTS, Reads.SHARES):
            tiles[step.result] = of | {step.result}
            summed |= of if kind is Reads.SHARES else set()
        left |= {step.result} & tiles.keys() & ends
    return _Tiles(tiles, summed, left)


def _readers(block: Block) -> Mapping[int, int]:
    """How often each value is read, a softmax counted twice; of what is widened, how often that is."""
    found = Counter[int]()
    for step in reversed(block.steps):
        times = found[step.result] if step.op == _WIDENED else 2 if _reads_twice(step, block) else 1
        found.update(dict.fromkeys(step.operands, times))
    return found


def _reads_twice(step: Step, block: Block) -> bool:
    return not isinstance(step.op, Loop) and reads(step, block) is Reads.SHARES
