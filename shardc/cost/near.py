"""What lies on the chip from its making to its last use, and how much less its products take, where a slice is named.

    s[B, F] = x[B, D] · W[D, F]; p = softmax_F(s); o[B, E] = p · V[F, E]

s, of 16 MiB, finds room there (`cost.on_chip`): the first product writes it at a higher pace, the sum of exponentials
and the second product do not wait for memory. What functions compute of elements takes as long as before.

    h[B, F] = relu(x[B, D] · W[D, F]); y[B, E] = h · V[F, E]

h lies nowhere, where one product is done within the other (`lowering.within`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from shardc.cost.alone import Amount
from shardc.cost.formulas import longer
from shardc.cost.held_up import multiplies
from shardc.cost.model import CostModel
from shardc.cost.on_chip import Life, brought_early, on_chip, shares_of
from shardc.ir.dtypes import multiplied
from shardc.ir.plan import Apply, Block, Loop, Step, StepCost, ValueNumber
from shardc.ir.sharding import Array
from shardc.lowering.fusion import Reads, fused, kinds_of, readers_of, reads
from shardc.lowering.held import lies_in_memory_in_trips as too_large
from shardc.lowering.held import taken_by_brought
from shardc.lowering.timed import leaves_near, reads_near, waits_near
from shardc.lowering.tpu import on_chip as room_on_chip
from shardc.lowering.within import done_within
from shardc.lowering.work import MADE_WITHIN


@dataclass(frozen=True, slots=True)
class Near:
    """The values of a block that lie on the chip, and what is read where a value lies nowhere."""

    values: Set[int]
    nowhere: Set[int]  # what products leave to others that they are done within
    brought: Set[int]  # an argument that comes there early, and shares of it; its first reader waits for it
    first: int | None
    inside: Mapping[int, tuple[int, ...]]
    left: Mapping[int, int]  # of what a product makes, where it is left
    elements: Mapping[int, tuple[int, ...]]  # what functions of elements read, whose results products alone read

    @classmethod
    def of(cls, block: Block, model: CostModel) -> Near:
        """Of a program: what products leave, and local steps alone read."""
        found = cls._nowhere(block, model)
        if leaves_near(model.target) == 1.0:
            return found
        sizes, room = [array.local_bytes(model.mesh) for array in block.values], room_on_chip(model.target)
        early = brought_early(block, sizes, room)
        first = {} if early is None else {early: Life(taken_by_brought(sizes[early]), 0, len(block.steps))}
        values = on_chip(found._lives(block, sizes) | first, room, first.keys()) - first.keys()
        return replace(found._with(early, block), values=values)

    @classmethod
    def in_trip(cls, loop: Loop, made: Collection[bool], model: CostModel) -> Near:
        """Of a trip of a loop, of whose fixed values some are `made` before, and no arguments."""
        block, found = loop.body, cls._nowhere(loop.body, model)
        if leaves_near(model.target) == 1.0:
            return found
        sizes = [array.local_bytes(model.mesh) for array in block.values]
        lives = {value: life for value, life in found._lives(block, sizes).items() if not too_large(life.size)}
        fixed = (value for value, is_made in zip(block.inputs, made, strict=False) if is_made)
        there = {value: Life(sizes[value], 0, len(block.steps)) for value in fixed}
        return replace(found, values=on_chip(lives | there, room_on_chip(model.target), there.keys()))

    @classmethod
    def _nowhere(cls, block: Block, model: CostModel) -> Near:
        """With what lies nowhere alone."""
        inside = _inside(block)
        left = _left(block, inside)
        nowhere = done_within(block, left, model.mesh, model.target)
        return cls(frozenset(), nowhere, frozenset(), None, inside, left, _for_products(block))

    def _lives(self, block: Block, sizes: Sequence[int]) -> dict[int, Life]:
        """Of what products leave and local steps alone read."""
        steps = block.steps
        made = {self.left.get(step.result, step.result) for step in steps if multiplies(step, block.values)}
        may_lie = made - self.nowhere - self._in_outputs(block)
        return {
            value: Life(sizes[value], *span)
            for value, span in _spans(block, self).items()
            if value in may_lie and _is_read_here(value, steps)
        }

    def _in_outputs(self, block: Block) -> Set[int]:
        """Outputs, and what functions of elements write an output in the place of, with a product's tiles: there is
        nothing to write it again for, so that it takes no time of its own."""
        found = set[int](block.outputs)
        for step in block.steps:
            is_free = not isinstance(step.op, Loop) and not step.cost.time_s and step.result in block.outputs
            if is_free and reads(step, block) is Reads.ELEMENTS:
                found.update(value for operand in step.operands for value in self.lying(operand))
        return found

    def _with(self, early: int | None, block: Block) -> Near:
        """With an argument that is brought early."""
        shares = shares_of(block.steps)
        brought = frozenset[int]() if early is None else {early, *(each for each, of in shares.items() if of == early)}
        readers = (step for step in block.steps if multiplies(step, block.values))
        first = next((step.result for step in readers if not brought.isdisjoint(step.operands)), None)
        return replace(self, brought=brought, first=first)

    def cost(self, step: Step, cost: StepCost, values: Sequence[Array], model: CostModel) -> StepCost:
        """Of a step that costs so much where all lies in memory."""
        if not (self.values or self.nowhere or self.brought) or isinstance(step.op, Loop) or not cost.time_s:
            return cost
        if multiplies(step, values):
            return cost if cost.in_loop else self._multiplied(step, cost, values, model)
        if isinstance(step.op, Apply) and cost.by_memory and self.values >= {*step.operands}:
            start = model.alone.function_start_s
            return _times(cost, (start + (cost.time_s - start) * waits_near(model.target)) / cost.time_s)
        if cost.if_sent is not None:  # with a product's tiles, while these are multiplied
            beside = (values[value] for value in step.operands if value in self.values)
            less = sum(model.alone.moving_s(array.local_bytes(model.mesh), 0, array.dtype) for array in beside)
            return _times(cost, max(0.0, 1 - less / cost.time_s)) if less else cost
        return cost

    def _multiplied(self, step: Step, cost: StepCost, values: Sequence[Array], model: CostModel) -> StepCost:
        left, read = self.left.get(step.result, step.result), [*self._read(step, values)]
        there = self.values | self.nowhere | (frozenset[int]() if step.result == self.first else self.brought)
        if left not in there and there.isdisjoint(read):
            return cost
        sizes = {value: values[value].local_bytes(model.mesh) for value in (left, *read)}
        near, far = (sum(sizes[value] for value in read if (value in there) == is_near) for is_near in (True, False))
        alone, kind = model.alone, multiplied(values[value].dtype for value in step.operands)
        amount = Amount(cost.flops, self._priced(step, values, model), sizes[left], kind, leaves=values[left].dtype)
        less = amount._replace(read=far, written=int(sizes[left] * self._written(left, model)))
        after = max(alone.product_s(less), alone.moving_s(near, 0, kind) * reads_near(model.target))
        start = alone.product_start_s
        if left in self.nowhere:
            after += alone.moving_s(0, sizes[left], values[left].dtype) * MADE_WITHIN
        left_s = start + (cost.time_s - start) * after / alone.product_s(amount)
        return _times(cost, left_s / cost.time_s) if left_s < cost.time_s else cost

    def _written(self, value: int, model: CostModel) -> float:
        """How much of the time that it takes to write a value to memory."""
        if value in self.nowhere:
            return 0.0
        return leaves_near(model.target) if value in self.values else 1.0

    def _read(self, step: Step, values: Sequence[Array]) -> Iterator[int]:
        """What a product reads, as large as its operands."""
        for operand in step.operands:
            for value in self.lying(operand):
                if set(values[value].dims) == set(values[operand].dims):
                    yield value

    def _priced(self, step: Step, values: Sequence[Array], model: CostModel) -> int:
        """The bytes that it reads by its text, which has functions computed as they are read."""
        return sum(
            values[value].local_bytes(model.mesh)
            for operand in step.operands
            for value in dict.fromkeys(self._computed_of(operand))
            if {*values[value].dims} == {*values[operand].dims}
        )

    def _computed_of(self, value: int) -> Iterator[int]:
        for each in _ends(value, self.elements):
            yield from self.lying(each) if each not in self.left else [each]

    def lying(self, value: int) -> Iterator[int]:
        """What is read for a value, each once."""
        return _ends(value, self.inside)


def _ends(value: int, made_of: Mapping[int, tuple[int, ...]]) -> Iterator[int]:
    """What a value is made of in the end, however many ways lead there."""
    seen, waiting = set[int](), [value]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        if each in made_of:
            waiting += reversed(made_of[each])
        else:
            yield each


def _inside(block: Block) -> dict[int, tuple[int, ...]]:
    """What is read where a value lies nowhere; shares that products alone read, each computes."""
    readers, found = readers_of(block.steps), dict(fused(block, block.steps).inside)
    for step in block.steps:
        is_kept = isinstance(step.op, Loop) or reads(step, block) is not Reads.SHARES or step.result in block.outputs
        if not is_kept and all(multiplies(each, block.values) for each in readers.get(step.result, ())):
            found[step.result] = step.operands
    return found


def _left(block: Block, inside: Mapping[int, tuple[int, ...]]) -> dict[int, int]:
    """Where what lies nowhere is left, by functions of its elements."""
    readers, found = readers_of(block.steps), dict[int, int]()
    for step in reversed(block.steps):
        for value in step.results:
            if value in inside and value in readers:
                by = readers[value][0].results[0]
                found[value] = found.get(by, by)
    return found


def _for_products(block: Block) -> dict[int, tuple[int, ...]]:
    """What functions of elements read, that are computed for products alone."""
    kinds, readers, found = kinds_of(block, block.steps), readers_of(block.steps), dict[int, tuple[int, ...]]()
    for step in reversed(block.steps):
        is_whole = kinds.get(step.results[0]) is Reads.ELEMENTS and not step.op.facts.is_move
        if not is_whole or step.result in block.outputs:
            continue
        by = readers.get(step.result, [])
        if all(each.results[0] in found or multiplies(each, block.values) for each in by):
            found[step.result] = step.operands
    return found


def _spans(block: Block, near: Near) -> dict[int, tuple[int, int]]:
    """From which step to which each value lies there."""
    start, end = dict[int, int](), dict[int, int]()
    for place, step in enumerate(block.steps):
        start |= dict.fromkeys(step.results, place)
        for operand in step.operands:
            end |= dict.fromkeys(near.lying(operand), place)
    return {value: (at, end[value] + 1) for value, at in start.items() if value in end}


def _is_read_here(value: ValueNumber | int, steps: Sequence[Step]) -> bool:
    return all(not step.is_collective and not isinstance(step.op, Loop) for step in steps if value in step.operands)


def _times(cost: StepCost, times: float) -> StepCost:
    return replace(cost, time_s=cost.time_s * times, spelled=partial(_spelled, cost, times))


def _spelled(cost: StepCost, times: float) -> str:
    return longer(cost.formula, times)
