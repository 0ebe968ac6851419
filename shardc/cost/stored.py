"""What is around a product takes more where that is done in parts, as a ring or in chunks.

    T = A · B; C = relu(T)            done whole, a loop over T's tiles writes C, and T lies nowhere
    T = A · B; s = sum_K(T)           s is added up as the tiles are made

In parts T is put together in memory first: only then a loop reads it and writes C, or goes through it for the sum.

    P = softmax_S(Q); O = P · V       done whole, P is computed as the product reads it, and lies nowhere

In parts P is made before, and each product reads its part of it from memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from shardc.cost.model import CostModel
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Einsum, Schedule, Step
from shardc.lowering.fusion import Reads, fused, reads
from shardc.lowering.streams import Passes
from shardc.lowering.timed import elements_near, waits_near
from shardc.lowering.tpu import on_chip


@dataclass(slots=True)
class _AtHand:
    """What is computed of a product's tiles, element by element, and what reads these."""

    schedule: Schedule
    product: Step
    made: dict[int, Step] = field(default_factory=dict)
    ends: list[Step] = field(default_factory=list)

    @classmethod
    def of(cls, schedule: Schedule, product: Step) -> _AtHand:
        found, far = cls(schedule, product, {product.result: product}), set[int]()
        for step in schedule.steps[schedule.steps.index(product) + 1 :]:
            if found.made.keys().isdisjoint(step.operands) and far.isdisjoint(step.operands):
                continue
            if far.isdisjoint(step.operands) and found._is_of_elements(step):
                found.made[step.result] = step
                continue
            far.update(step.results)  # what waits for this meets no tiles
            found.ends += [step] if not found.made.keys().isdisjoint(step.operands) else []
        return found

    def _is_of_elements(self, step: Step) -> bool:
        if reads(step, self.schedule.block) is not Reads.ELEMENTS or step.op.facts.kind is Kind.SLICE:
            return False
        return {*self.schedule.values[step.result].dims} == {*self.schedule.values[self.product.result].dims}

    def written(self) -> Iterator[int]:
        """What lies in memory of them, the product's own result among it."""
        for value in self.made:
            readers = (step for step in self.ends if value in step.operands)
            if value in self.schedule.outputs or any(not self.goes_through(step) for step in readers):
                yield value

    def goes_through(self, step: Step) -> bool:
        """Whether a step takes a sum of what it reads, or the largest."""
        kind = reads(step, self.schedule.block)
        return (isinstance(step.op, Einsum) and kind is Reads.SUMS) or (
            isinstance(step.op, Apply) and kind is not Reads.ELEMENTS
        )


def made_before_s(schedule: Schedule, product: Step, model: CostModel) -> float:
    """Seconds of what a product would have computed as it reads; by the data sheet none are known. What has room on
    the chip lies there."""
    if model.alone.measured is None:
        return 0.0
    inside, found = fused(schedule.block, schedule.steps).inside, 0.0
    for step in schedule.steps:
        if step.results[0] in inside and step.results[0] in product.operands:
            found += _made_s(schedule, step, model)
    return found


def _made_s(schedule: Schedule, step: Step, model: CostModel) -> float:
    """Of functions of elements what they take for a collective; of shares they are written, and read from the chip."""
    array = schedule.values[step.result]
    size = array.local_bytes(model.mesh)
    has_room = size <= on_chip(model.target)
    if step.cost.to_lie is not None and reads(step, schedule.block) is Reads.ELEMENTS:
        return step.cost.to_lie.time_s * (elements_near(model.target) if has_room else 1.0)
    return model.alone.moving_s(size, size, array.dtype) * (waits_near(model.target) if has_room else 1.0)


def read_again_s(schedule: Schedule, product: Step, model: CostModel) -> float:
    """Seconds of the loops that would have had the product's tiles at hand; by the data sheet none are known."""
    if model.alone.measured is None:
        return 0.0
    at_hand, array = _AtHand.of(schedule, product), schedule.values[product.result]
    size, written = array.local_bytes(model.mesh), [*at_hand.written()]
    for value in written:
        if value != product.result:
            cost = next(step.cost for step in schedule.steps if value in step.results)
            if cost.if_sent is not None:
                return cost.if_sent.time_s - cost.time_s
            left = schedule.values[value]
            beside = left if product.result in written else None  # written beside the product, as long as it is read
            before = 0.0 if beside is None else model.alone.moving_s(left.local_bytes(model.mesh), 0, left.dtype)
            return model.alone.moving_s(size, left.local_bytes(model.mesh), array.dtype, left.dtype) - before
    through = [step for step in at_hand.ends if at_hand.goes_through(step)]
    if not through:
        return 0.0
    is_direct = all(product.result in step.operands for step in through)
    return model.alone.function_s(Passes(int(is_direct), int(not is_direct)), size, array.dtype)
