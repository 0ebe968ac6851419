"""What the TPU's compiler keeps and moves as bf16 of a program in f32: what products alone read, which round it.

B[J, K] = AllGather B; T = relu(A); C = T · B      gathered as bf16, half the bytes, and T lies as bf16
D[J, K_X] = Slice B; E = A · D                     so it is where moves, or another order of dims, lie between
D[J, K] = AllGather B; C = A · relu(D)             or functions that leave one of the numbers that they are given
V[K, L] = AllGather V; C = softmax_K(S) · V        but not for what one kernel takes with a softmax
m[N] = AllReduce max_V(f32(S))                     the largest of what was bf16 is sent as it was

It is said once, here: prices, the memory that is promised, and what `verify` expects are read from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from shardc.ir.digits import Reshape
from shardc.ir.dtypes import DTYPES
from shardc.ir.plan import Apply, Block, Einsum, Loop, Step, ValueNumber
from shardc.lowering import rounds
from shardc.lowering.fusion import Reads, readers_of, reads

NARROW = DTYPES["bf16"]


def as_kept(block: Block, ends: Collection[ValueNumber] = ()) -> Block:
    """A block with each value in the type in which it lies in memory, loops' bodies too. `ends` are the outputs of a
    loop's body that are rounded where they are read."""
    found = rounded(block, ends)

    def inside(step: Step) -> Step:
        if not isinstance(step.op, Loop):
            return step
        return replace(step, op=replace(step.op, body=as_kept(step.op.body, rounded_ends(step, step.op, found))))

    return _narrow(replace(block, steps=tuple(map(inside, block.steps))), kept(block, ends))


def as_sent(block: Block, steps: Iterable[Step]) -> Block:
    """The same, with what these steps move as it is sent."""
    found = kept(block)
    moves = (step for step in steps if step.op.facts.is_move and not found.isdisjoint(step.results))
    return _narrow(block, found.union(*(step.operands for step in moves)) if found else found)


def _narrow(block: Block, found: Collection[ValueNumber]) -> Block:
    values = (replace(each, dtype=NARROW) if n in found else each for n, each in enumerate(block.values))
    return replace(block, values=tuple(values)) if found else block


def kept(block: Block, ends: Collection[ValueNumber] = ()) -> frozenset[ValueNumber]:
    """The values of f32 that lie as bf16, and are moved so; sums are added up as they are, and given as they lie."""
    found = rounded(block, ends)
    if not found:
        return _largest(block)
    summed = {value for step in block.steps if step.op.facts.reduces for value in step.results}
    return found.difference(summed, _gathered_again(block), block.inputs) | _largest(block)


def _largest(block: Block) -> frozenset[ValueNumber]:
    """What a device has of the largest of widened bf16, where it is sent, and what comes of that."""
    wide = {step.result for step in block.steps if rounds.widens_as_it_reads(step.op) and _of_narrow(step, block)}
    own = {step.result for step in block.steps if rounds.leaves_the_largest(step.op) and step.operands[0] in wide}
    sent = [step for step in block.steps if step.op.facts.reduces and not own.isdisjoint(step.operands)]
    return frozenset(value for step in sent for value in (*step.operands, *step.results))


def _of_narrow(step: Step, block: Block) -> bool:
    return block.values[step.operands[0]].dtype == NARROW


def _gathered_again(block: Block) -> Iterator[ValueNumber]:
    """What is gathered just as it was scattered: with the sum that scattered it it becomes one for all, or would if
    nothing else read the parts."""
    made = {value: step for step in block.steps for value in step.results}
    for step in block.steps:
        for value in step.operands[:1]:
            if value in made and rounds.are_one_sum(made[value].op, step.op):
                yield from step.results


def rounded(block: Block, ends: Collection[ValueNumber] = ()) -> frozenset[ValueNumber]:
    """The values of f32 that products alone read, directly, moved, or in a loop."""
    wide = {n for n, array in enumerate(block.values) if array.dtype.name == "f32"}
    return _Rounding(block, ends).values() if wide else frozenset()


def rounded_ends(step: Step, loop: Loop, found: Collection[ValueNumber]) -> frozenset[ValueNumber]:
    """What a loop's body leaves to be stacked, for readers around the loop that round it."""
    stacked = zip(step.results[loop.carried :], loop.body.outputs[loop.carried :], strict=True)
    carried = loop.body.outputs[: loop.carried]
    return frozenset(inner for outer, inner in stacked if outer in found and inner not in carried)


@dataclass(frozen=True, slots=True)
class _Rounding:
    """A block, and of its values which are known to be rounded where they are read."""

    block: Block
    ends: Collection[ValueNumber] = ()
    found: set[ValueNumber] = field(default_factory=set)

    def values(self) -> frozenset[ValueNumber]:
        readers = readers_of(self.block.steps)
        made = {value: step for step in self.block.steps for value in step.results}
        for value in (*(value for step in reversed(self.block.steps) for value in step.results), *self.block.inputs):
            is_wide = self.block.values[value].dtype.name == "f32"
            is_read = value in self.ends if value in self.block.outputs else value in readers
            if is_wide and is_read and all(self._rounds(reader, value, made) for reader in readers.get(value, ())):
                self.found.add(value)
        return frozenset(self.found)

    def _rounds(self, step: Step, value: ValueNumber, made: Mapping[ValueNumber, Step]) -> bool:
        """Whether a step reads rounded elements: a product, or what only puts them where they are read so."""
        passes = not self.found.isdisjoint(step.results)
        match step.op:
            case Einsum():
                if len(step.operands) == 1:
                    return passes and reads(step, self.block) is Reads.ELEMENTS
                below = (made[operand].op for operand in step.operands if operand in made)
                return reads(step, self.block) is Reads.PRODUCT and not any(map(rounds.is_one_kernel, below))
            case Apply(function):
                if function == "cast":
                    return self.block.values[step.result].dtype == NARROW
                return passes and rounds.leaves_what_it_is_given(function)
            case Loop():
                return _rounded_inside(step, step.op, value, rounded_ends(step, step.op, self.found))
            case Reshape():
                return passes
            case _:
                return passes and rounds.rounds_before(step.op.facts)


def _rounded_inside(step: Step, loop: Loop, value: ValueNumber, ends: Collection[ValueNumber]) -> bool:
    """Whether all that a loop does with a value rounds it: with what is the same in each trip, and with rows."""
    inside = rounded(loop.body, ends)
    carried = range(loop.fixed, loop.fixed + loop.carried)
    places = [place for place, operand in enumerate(step.operands) if operand == value]
    return all(place not in carried and loop.body.inputs[place] in inside for place in places)
