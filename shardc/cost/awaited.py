"""The argument that is brought to the chip before a program starts, for which its first product waits.

C[I, K_Y] = A[I, J] · B[J, K_Y]        B is brought, then multiplied: one after the other, with I=1024, J=K=2048 on v5e
                                       10 and 50 µs; what is not brought is read beside the product
B[J, K_Y] = Slice_Y B[J, K]; C = …     all of B is brought, of which a part is read: with J=8192, K=2048, Y=8 41 µs
A[I, J] = AllGather_X A[I, J_X]; C = … B is brought beside what comes before
y[I] = sum_J(A[I, J])                  so is A where no product reads it, and nothing else: with I=J=4096 41 of 51 µs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from shardc.cost.alone import Amount
from shardc.cost.formulas import local_bytes, longer
from shardc.cost.held_up import multiplies
from shardc.cost.model import CostModel
from shardc.cost.on_chip import brought_early, shares_of
from shardc.ir.functions import FUNCTIONS
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Block, Einsum, Step, StepCost, ValueNumber, operands_of
from shardc.ir.sharding import Array
from shardc.lowering.timed import brings_at_most
from shardc.lowering.tpu import is_brought_early

_LITTLE = 0.01  # of a product's time


@dataclass(frozen=True, slots=True)
class Awaited:
    """The place of a step among those of its block, the argument that it waits for, what of it it reads, and whether it
    is a sum that is done by a product (`lowering.ones`)."""

    place: int
    whole: Array
    part: ValueNumber
    by_ones: bool = False

    @classmethod
    def of(cls, block: Block, model: CostModel, by_ones: Collection[int]) -> Awaited | None:
        """Of the first product of a program that reads what is brought, or a share of it; of one without such products
        the first that adds up an argument, or looks for its largest. A product that is a loop waits for nothing."""
        room = brings_at_most(model.target)
        sizes = {number: array.local_bytes(model.mesh) for number, array in enumerate(block.values)}
        brought = brought_early(block, sizes, room)
        if brought is None:
            return cls._by_reduction(block, sizes, room, by_ones)
        shares = shares_of(block.steps)
        place, step, value = next(
            (place, step, value)
            for place, step in enumerate(block.steps)
            if multiplies(step, block.values)
            for value in step.operands
            if shares.get(value, value) == brought
        )
        return None if step.cost.in_loop else cls(place, block.values[brought], value)

    @classmethod
    def _by_reduction(
        cls, block: Block, sizes: Mapping[int, int], room: int, by_ones: Collection[int]
    ) -> Awaited | None:
        """Of the first sum, or largest, of an argument that nothing else reads."""
        shares = shares_of(block.steps)
        readers = (step for step in block.steps if step.op.facts.kind is not Kind.SLICE)
        read = Counter(shares.get(value, value) for step in readers for value in step.operands)
        return next(
            (
                cls(place, block.values[whole], value, step.results[0] in by_ones)
                for place, step in enumerate(block.steps)
                if _reduces(step, block.values)
                for value in step.operands
                for whole in (shares.get(value, value),)
                if whole in block.inputs and read[whole] == 1 and is_brought_early(sizes[whole], room)
            ),
            None,
        )

    def by(self, steps: Sequence[Step], values: Sequence[Array], model: CostModel) -> Step:
        """The step, priced with what it waits for beyond what those before it take, and less what it reads beside."""
        step, part, whole = steps[self.place], values[self.part], self.whole
        bringing = whole.local_bytes(model.mesh) / model.chip.hbm_bandwidth
        waits = max(0.0, bringing - sum(each.cost.time_s for each in steps[: self.place]))
        reading, less = self._read_beside(step, values, model)
        spelled = partial(_spelled, step.cost, whole, waits / bringing, part, less / reading)
        cost = replace(step.cost, time_s=step.cost.time_s + waits - less, spelled=spelled)
        return replace(step, cost=replace(cost, as_written=step.cost.as_written or step.cost))

    def _read_beside(self, step: Step, values: Sequence[Array], model: CostModel) -> tuple[float, float]:
        """Seconds of reading from memory what was brought, and that the product takes less without. What goes through
        an array in a loop takes as long."""
        if not (multiplies(step, values) or self.by_ones):
            return 1.0, 0.0
        read, result, alone = operands_of(step, values), values[step.result], model.alone
        size, part = (sum(array.local_bytes(model.mesh) for array in each) for each in (read, [values[self.part]]))
        wide = max((array.dtype for array in read), key=lambda dtype: dtype.bytes)
        amount = Amount(step.cost.flops, size, result.local_bytes(model.mesh), wide, leaves=result.dtype)
        reading = alone.moving_s(part, 0, values[self.part].dtype)
        less = min(alone.product_s(amount) - alone.product_s(amount._replace(read=size - part)), step.cost.time_s)
        if less < _LITTLE * step.cost.time_s:
            return reading, 0.0
        return reading, reading if abs(less - reading) < _LITTLE * reading else less


def _reduces(step: Step, values: Sequence[Array]) -> bool:
    """Whether it leaves the sum, or the largest, along dims of one array."""
    is_sum = isinstance(step.op, Einsum) and len(step.operands) == 1 and step.cost.time_s > 0
    sums = is_sum and len(values[step.result].dims) < len(values[step.operands[0]].dims)
    return sums or (isinstance(step.op, Apply) and FUNCTIONS[step.op.function].reduces != "")


def _spelled(cost: StepCost, whole: Array, waits: float, part: Array, less: float) -> str:
    """`… + 2·J·K / W_hbm - 2·J·K/X / W_read`."""
    found = cost.formula + (f" + {_times(f'{local_bytes(whole)} / W_hbm', waits)}" if waits else "")
    rate = "W_read" if part.dtype.bytes <= 2 else "W_read_f32"
    return found + (f" - {_times(f'{local_bytes(part)} / {rate}', less)}" if less else "")


def _times(found: str, times: float) -> str:
    return found if times == 1 else longer(found, times)
