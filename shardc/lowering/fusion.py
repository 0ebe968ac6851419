"""What the TPU's compiler computes as it is read, and so keeps no buffer for: one fold over a block, from its end.

    x = A · B; y = gelu(x); z = y ⊙ x; s = sum_F(z)      one loop over the product's tiles: x, y and z lie nowhere
    S = f32(x · W); L = logsumexp_V(S)                    x · W lies in bf16; S is made of it as it is read
    x = A · B; m = max_F(x); z = x - m                   x is read in two loops: it lies in memory, z where x lay
    p = softmax_S(x); o = p · V                          x is read three times; p is computed as the product reads it

A value belongs to the loop of what reads it, if all that read it belong to one. Where products alone read it, it is
computed in each as they read. Collectives and products read from memory, and outputs lie there. A loop computes one
product at most, and what is made of nothing (a mask, positions along a dim) is computed in every loop that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from shardc.ir.digits import Reshape
from shardc.ir.functions import FUNCTIONS, Through
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Block, Einsum, Loop, Op, Step, ValueNumber, operands_of
from shardc.lowering import rounds, tpu, work
from shardc.lowering.repeats import is_again


class Reads(Enum):
    """How a step reads its operands."""

    ELEMENTS = auto()  # each once, for an element of its result: it may be part of another's loop
    SUMS = auto()  # each once, for a smaller result, which lies in memory
    PRODUCT = auto()  # from memory, tile by tile; what reads its result may do so as the tiles are made
    SHARES = auto()  # from memory, several times, the last time for an element of its result: a softmax
    MEMORY = auto()  # from memory


def reads(step: Step, block: Block) -> Reads:
    match step.op:
        case Einsum():
            return _product(step, block)
        case Apply(function):
            if is_again(step.op):
                return Reads.MEMORY
            row = FUNCTIONS[function]
            if row.across > 1:  # a maximum first, then a sum of what it shifts
                return Reads.SHARES if Through.RESULT in row.through else Reads.MEMORY
            return Reads.SUMS if row.over_dims and step.operands else Reads.ELEMENTS
        case Reshape() | Loop():
            return Reads.MEMORY
        case _:
            assert step.op.facts.is_move, step.op
            return Reads.ELEMENTS if step.op.facts.kind is Kind.SLICE else Reads.MEMORY


def _product(step: Step, block: Block) -> Reads:
    """Of two arrays that each have a dim of their own, and sum another; others multiply elements, and may sum."""
    dims = [set(array.dims) for array in operands_of(step, block.values)]
    if set().union(*dims) == set(block.values[step.result].dims):
        return Reads.ELEMENTS
    return Reads.PRODUCT if len(dims) > 1 and dims[0] - dims[1] and dims[1] - dims[0] else Reads.SUMS


def kinds_of(block: Block, steps: Iterable[Step]) -> dict[ValueNumber, Reads]:
    """How each of these steps of a block reads, by its result; loops are left out."""
    return {step.result: reads(step, block) for step in steps if not isinstance(step.op, Loop)}


def needs_whole(reader: Step, kinds: Mapping[ValueNumber, Reads]) -> bool:
    """Whether it reads an array that lies in memory, and not as that is computed."""
    return isinstance(reader.op, Loop) or kinds[reader.result] in (Reads.MEMORY, Reads.SHARES)


def is_batched(step: Step, block: Block) -> bool:
    """Whether a product's operands and its result have a dim in common."""
    one, other, *_ = (set(array.dims) for array in operands_of(step, block.values))
    return not (one & other).isdisjoint(block.values[step.result].dims)


def is_of_product(value: ValueNumber, block: Block) -> bool:
    """Whether a product leaves it, but for what is done to each element."""
    made = {result: step for step in block.steps for result in step.results}
    seen, waiting = set[ValueNumber](), [value]
    while waiting:
        step = made.get(each := waiting.pop())
        if each in seen or step is None or isinstance(step.op, Loop):
            continue
        seen.add(each)
        kind = reads(step, block)
        if kind is Reads.PRODUCT:
            return True
        waiting += step.operands if kind is Reads.ELEMENTS else ()
    return False


def readers_of(steps: Sequence[Step]) -> dict[int, list[Step]]:
    """The steps that read each value, in their order; one that reads it twice stands there twice."""
    found = dict[int, list[Step]]()
    for step in steps:
        for operand in step.operands:
            found.setdefault(operand, []).append(step)
    return found


@dataclass(frozen=True, slots=True)
class Fused:
    """Of each value that has no buffer, what is read in its place; and the results of loops that compute a product."""

    inside: dict[int, tuple[int, ...]]
    products: frozenset[int]


def fused(block: Block, steps: Sequence[Step], again: int = 0) -> Fused:
    """What of some steps of a block has no buffer. What products alone read is computed in each, if it is not more work
    than `again`."""
    single = [step for step in _last_operands_first(block, steps) if not isinstance(step.op, Loop)]
    kinds = kinds_of(block, single)
    free = _made_of_nothing(single, kinds)
    readers = readers_of(steps)
    loop_of, products, inside = dict[int, int](), set[int](), dict[int, tuple[int, ...]]()
    sliced = _sliced(single, kinds, readers)
    repeated = _computed_again(single, block, kinds, readers, again)
    for step in reversed(single):
        value, kind = step.result, kinds[step.result]
        loops = {_loop(reader, kinds, loop_of) for reader in readers.get(value, ())}
        loop = next(iter(loops), None) if len(loops) == 1 or (value in free and None not in loops) else None
        if (is_again(step.op) and value not in block.outputs) or value in repeated:
            inside[value], loop = step.operands, value  # it lies where its operand lies, or nowhere
        elif loop is None and _is_widened_again(step, readers.get(value, ()), kinds, block.outputs):
            inside[value], loop, kinds[value] = step.operands, value, Reads.MEMORY  # its operand is what is read
        elif loop is None or value in block.outputs or kind not in (Reads.ELEMENTS, Reads.PRODUCT, Reads.SHARES):
            loop = value  # read by several, or from memory
        elif kind is not Reads.ELEMENTS and value in sliced:
            loop = value  # done whole, before a part of it is taken
        else:
            inside[value] = step.operands
        if kind is Reads.PRODUCT and not tpu.is_computed_in_loop(products_before=loop in products):
            loop = value
            inside.pop(value, None)
        loop_of[value] = loop
        products |= {loop} if kind is Reads.PRODUCT else set()
    return Fused(inside, frozenset(products))


def _last_operands_first(block: Block, steps: Sequence[Step]) -> list[Step]:
    """These steps in an order that does not depend on theirs, each behind what it reads.

    y = a · b + relu(c · d)      c · d, then a · b: gone through from its end, the first operand's product is met first,
                                 and computed with the sum (libtpu 0.0.42.1, whichever of them is written first)
    """
    made = {value: step for step in steps for value in step.results}
    found, pending = dict[tuple[int, ...], Step](), [(value, False) for value in reversed(block.outputs)]
    while pending:
        value, is_ready = pending.pop()
        step = made.get(value)
        if step is None or step.results in found:
            continue
        if is_ready:
            found[step.results] = step
        else:
            pending += [(value, True), *((operand, False) for operand in step.operands)]
    return [*found.values(), *(step for step in steps if step.results not in found)]  # what nothing reads is last


def _is_widened_again(
    step: Step, readers: Sequence[Step], kinds: Mapping[ValueNumber, Reads], outputs: Sequence[ValueNumber]
) -> bool:
    """Whether a cast to a wider type is made by each function or product that reads it, and what it is made of lies in
    memory: `S = f32(x · W); L = logsumexp_V(S)` writes bf16. An output of as many elements lies in S's place."""
    if not rounds.widens_as_it_reads(step.op) or step.result in outputs:
        return False
    from_memory = (isinstance(each.op, Loop) or _is_whole(each.op) for each in readers)
    lies_there = (by.results[0] in outputs and kinds[by.results[0]] in (Reads.ELEMENTS, Reads.SHARES) for by in readers)
    return not any(from_memory) and not any(lies_there)


def _is_whole(op: Op) -> bool:
    """Whether it reads an array as it lies in memory."""
    return op.facts.is_move or isinstance(op, Reshape)


def _sliced(steps: Sequence[Step], kinds: dict[ValueNumber, Reads], readers: dict[int, list[Step]]) -> set[int]:
    """Values of which a Slice takes a part, or of what is made of them element by element.

    x = A · B; y = Slice_X(relu(x))          x, of whose relu a part is taken
    """
    found = set[int]()
    for step in reversed(steps):
        for reader in readers.get(step.result, ()):
            is_of_elements = not isinstance(reader.op, Loop) and kinds[reader.result] is Reads.ELEMENTS
            if is_of_elements and (reader.op.facts.kind is Kind.SLICE or reader.result in found):
                found.add(step.result)
    return found


@dataclass(frozen=True, slots=True)
class _Chain:
    """Functions of elements, one of the other: `made` are their values, `read` what the first of them read."""

    made: frozenset[int] = frozenset()
    read: frozenset[int] = frozenset()

    def and_(self, other: _Chain) -> _Chain:
        return _Chain(self.made | other.made, self.read | other.read)


def _computed_again(
    steps: Sequence[Step], block: Block, kinds: dict[ValueNumber, Reads], readers: dict[int, list[Step]], most: int
) -> set[int]:
    """What products alone read: all that one reads, and functions of elements of little work that several read, if they
    are not computed with a product of their own."""
    by_value, with_product, found = {step.result: step for step in steps}, set[int](), set[int]()
    chains = _chains(steps, block, kinds)
    for step in steps:
        value, read = step.result, readers.get(step.result, [])
        own = (operand for operand in step.operands if len(readers[operand]) == 1)
        if kinds[value] is Reads.PRODUCT or (value in chains and not with_product.isdisjoint(own)):
            with_product.add(value)
            continue
        if step.op.facts.is_move or value in block.outputs or not read:
            continue
        if not all(kinds.get(each.results[0]) is Reads.PRODUCT for each in read):
            continue
        if len(read) == 1 and kinds[value] in (Reads.ELEMENTS, Reads.SHARES):
            found.add(value)
        elif value in chains:
            is_little = _work(chains[value], block, by_value) <= most
            found |= {value} if is_little and _bytes_read(chains[value], block, value) <= work.READ_AGAIN else set()
    return found


def _chains(steps: Sequence[Step], block: Block, kinds: dict[ValueNumber, Reads]) -> dict[int, _Chain]:
    """Of each function of elements, those of its own size that it is made of; outputs and what is smaller are read."""
    found: dict[int, _Chain] = {}
    for step in steps:
        if kinds[step.result] is not Reads.ELEMENTS:
            continue
        dims = set(block.values[step.result].dims)
        found[step.result] = _Chain(frozenset({step.result}))
        for operand in step.operands:
            passes = set(block.values[operand].dims) == dims and operand not in block.outputs
            chain = found.get(operand) if passes else None
            found[step.result] = found[step.result].and_(chain or _Chain(read=frozenset({operand})))
    return found


def _work(chain: _Chain, block: Block, steps: Mapping[ValueNumber, Step]) -> int:
    """Of an element: its functions, and what it takes to spread the arrays of fewer dims."""
    rank = max(len(block.values[value].dims) for value in chain.made)
    spread = sum(0 < len(block.values[value].dims) < rank for value in chain.read)
    made = (work.work_of(steps[ValueNumber(value)].op, block.values[value].dtype) for value in chain.made)
    return sum(made) + spread * work.SPREAD


def _bytes_read(chain: _Chain, block: Block, value: int) -> int:
    dims = set(block.values[value].dims)
    return sum(block.values[each].dtype.bytes for each in chain.read if set(block.values[each].dims) == dims)


def _loop(reader: Step, kinds: dict[ValueNumber, Reads], loop_of: dict[int, int]) -> int | None:
    """The result of the loop that a step reads in; None of one that reads from memory."""
    if isinstance(reader.op, Loop) or kinds[reader.result] in (Reads.SHARES, Reads.MEMORY, Reads.PRODUCT):
        return None
    return loop_of[reader.result]


def _made_of_nothing(steps: Sequence[Step], kinds: dict[ValueNumber, Reads]) -> set[int]:
    """Values that no array goes into: positions along dims, and what is made of these."""
    found = set[int]()
    for step in steps:
        if kinds[step.result] is Reads.ELEMENTS and found.issuperset(step.operands):
            found.add(step.result)
    return found
