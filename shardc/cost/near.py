"""What lies on the chip from its making to its last use, and how much less its products take, where a slice is named.

    s[B, F] = x[B, D] · W[D, F]; p = softmax_F(s); o[B, E] = p · V[F, E]

s, of 16 MiB, finds room there (`cost.on_chip`): the first product writes it at a higher pace, the sum of exponentials
and the second product do not wait for memory. What functions compute of elements takes as long as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from shardc.cost.alone import Amount
from shardc.cost.formulas import longer
from shardc.cost.held_up import multiplies
from shardc.cost.model import CostModel
from shardc.cost.on_chip import Life, brought_early, on_chip
from shardc.ir.dtypes import multiplied
from shardc.ir.plan import Apply, Block, Loop, Step, StepCost, ValueNumber
from shardc.ir.sharding import Array
from shardc.lowering.fusion import Reads, fused, readers_of, reads
from shardc.lowering.held import taken_by_brought
from shardc.lowering.timed import leaves_near, reads_near, waits_near
from shardc.lowering.tpu import on_chip as room_on_chip


@dataclass(frozen=True, slots=True)
class Near:
    """The values of a block that lie on the chip, and what is read where a value lies nowhere."""

    values: Set[int]
    inside: Mapping[int, tuple[int, ...]]
    left: Mapping[int, int]  # of what a product makes, where it is left

    @classmethod
    def of(cls, block: Block, model: CostModel) -> Near:
        """Of a program: what products leave, and local steps alone read."""
        room = room_on_chip(model.target)
        if not room or leaves_near(model.target) == 1.0:
            return NONE
        steps, inside = block.steps, _inside(block)
        sizes = [array.local_bytes(model.mesh) for array in block.values]
        found = cls(frozenset(), inside, _left(block, inside))
        made = {found.left.get(step.result, step.result) for step in steps if multiplies(step, block.values)}
        lives = {
            value: Life(sizes[value], *span)
            for value, span in _spans(block, found).items()
            if value in made and value not in block.outputs and _is_read_here(value, steps)
        }
        early = brought_early(block, sizes, room)
        first = {} if early is None else {early: Life(taken_by_brought(sizes[early]), 0, len(steps))}
        return replace(found, values=on_chip(lives | first, room, first.keys()) - first.keys())

    def cost(self, step: Step, cost: StepCost, values: Sequence[Array], model: CostModel) -> StepCost:
        """Of a step that costs so much where all lies in memory."""
        if not self.values or isinstance(step.op, Loop) or not cost.time_s:
            return cost
        if multiplies(step, values):
            return self._multiplied(step, cost, values, model)
        if isinstance(step.op, Apply) and cost.by_memory and self.values >= {*step.operands}:
            start = model.alone.function_start_s
            return _times(cost, (start + (cost.time_s - start) * waits_near(model.target)) / cost.time_s)
        if cost.if_sent is not None:  # with a product's tiles, while these are multiplied
            beside = (values[value] for value in step.operands if value in self.values)
            less = sum(model.alone.moving_s(array.local_bytes(model.mesh), 0, array.dtype) for array in beside)
            return _times(cost, max(0.0, 1 - less / cost.time_s)) if less else cost
        return cost

    def _multiplied(self, step: Step, cost: StepCost, values: Sequence[Array], model: CostModel) -> StepCost:
        read = [*self._read(step, values)]
        left = values[self.left.get(step.result, step.result)]
        near, far = (
            sum(values[value].local_bytes(model.mesh) for value in read if (value in self.values) == is_near)
            for is_near in (True, False)
        )
        is_left = self.left.get(step.result, step.result) in self.values
        if not near and not is_left:
            return cost
        size = left.local_bytes(model.mesh)
        kind = multiplied(values[value].dtype for value in step.operands)
        amount = Amount(cost.flops, near + far, size, kind, leaves=left.dtype)
        less = amount._replace(read=far, written=int(size * leaves_near(model.target)) if is_left else size)
        alone = model.alone
        after = max(alone.product_s(less), alone.moving_s(near, 0, kind) * reads_near(model.target))
        start = alone.product_start_s
        times = (start + (cost.time_s - start) * after / alone.product_s(amount)) / cost.time_s
        return _times(cost, times) if times < 1 else cost

    def _read(self, step: Step, values: Sequence[Array]) -> Iterator[int]:
        """What a product reads, as large as its operands."""
        for operand in step.operands:
            for value in self.lying(operand):
                if set(values[value].dims) == set(values[operand].dims):
                    yield value

    def lying(self, value: int) -> Iterator[int]:
        """What is read for a value."""
        if value not in self.inside:
            yield value
            return
        for below in self.inside[value]:
            yield from self.lying(below)


NONE = Near(frozenset(), {}, {})


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
