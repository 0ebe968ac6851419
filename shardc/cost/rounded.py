"""What steps take of a program in f32 whose compiler rounds it to bf16 (`lowering.rounded`), where a slice is named.

A step is priced where it is planned, by the types that the text has: who reads what it leaves is not known there. Once
all steps stand, what is kept as bf16 is moved as half the bytes, rounded before the first move by a loop of its own if
it lies as f32, and a product rounds only what it reads as f32:

    B[J, K] = AllGather_X B[J_X, K]     4·J·K·(X-1)/X / W_X, and so 2·J·K·(X-1)/X / W_X, and rounded before
    C[I, K] = A[I, J] · B[J, K]         reads 4·I·J and 2·J·K

Wire bytes stay those of the text, whatever a compiler makes of it; `verify` says which are sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from shardc.cost import formulas
from shardc.cost.alone import Amount
from shardc.cost.copied import copy_cost
from shardc.cost.model import CostModel
from shardc.ir.collectives import Move
from shardc.ir.digits import Reshape
from shardc.ir.plan import Apply, Einsum, Loop, Step, StepCost, ValueNumber
from shardc.ir.sharding import Array
from shardc.lowering.rounded import NARROW
from shardc.lowering.scatters import block_of

_SAME = 1e-9  # of a time, less than which is none
_LITTLE = 0.02  # of a product's, less than which is not worth a longer formula


@dataclass(frozen=True, slots=True)
class Rounded:
    """What is around a step: the values of its block as the text has them, those kept as bf16, of digits what they are
    of, and the program's dims."""

    values: Sequence[Array]
    kept: Collection[ValueNumber]
    seen_from: Mapping[ValueNumber, ValueNumber]
    model: CostModel
    dims: Collection[str]

    def cost(self, step: Step, written: StepCost) -> StepCost:
        """Of a step that costs so much by the types of the text."""
        match step.op:
            case Loop() | Apply() | Reshape():
                return written
            case Einsum():
                return self._multiplied(step, written)
            case move:
                assert move.facts.is_move, move
                return self._moved(step, move, written)

    def lies(self, value: ValueNumber) -> Array:
        """A value as it lies in memory, under the dims of the program."""
        array = self._whole(self.values[value])
        return replace(array, dtype=NARROW) if value in self.kept else array

    def _moved(self, step: Step, move: Move, cost: StepCost) -> StepCost:
        """Of a move, and of what it copies because of others; before it the operand is rounded, if it is not yet."""
        if not cost.time_s or step.result not in self.kept:
            return cost
        lies = self.values[step.operands[0]]
        before, after = (self._whole(self.values[value]) for value in (*step.operands, step.result))
        narrow = replace(before, dtype=NARROW)
        copied = cost.time_s - self._sent(move, lies)
        sent = partial(self.model.formula, move, narrow)
        found = replace(cost, time_s=self._sent(move, replace(lies, dtype=NARROW)), spelled=sent)
        if copied > _SAME * cost.time_s:
            found = formulas.one_after_another(found, copy_cost(replace(after, dtype=NARROW), self.model))
        is_rounded = (
            self.seen_from.get(step.operands[0], step.operands[0]) in self.kept or not move.facts.communicates
        )  # what a Slice takes it rounds
        return found if is_rounded else formulas.one_after_another(found, self._rounding(before, narrow))

    def _sent(self, move: Move, before: Array) -> float:
        emitted = self.model.emitted(move, block_of(before, self.model.mesh), before.sharding)
        return emitted.seconds(before.local_bytes(self.model.mesh))

    def _rounding(self, wide: Array, narrow: Array) -> StepCost:
        """Of a loop that reads f32 and writes bf16, by an instruction of its own."""
        alone, (read, written) = self.model.alone, (each.local_bytes(self.model.mesh) for each in (wide, narrow))
        amount = Amount(0, read, written, wide.dtype, bare=written, leaves=NARROW)
        formula = partial(alone.memory_formula, [wide], [narrow], amount)
        return StepCost(time_s=alone.product_s(amount), spelled=formula)

    def _multiplied(self, step: Step, cost: StepCost) -> StepCost:
        """Of a product, as much less or more as it takes to read what is kept."""
        written = [self.values[value] for value in step.operands]
        if not cost.flops or not any(value in self.kept for value in step.operands):
            return cost
        lie = [
            replace(array, dtype=NARROW) if value in self.kept else array
            for value, array in zip(step.operands, written, strict=True)
        ]
        result = self.values[step.result]
        times = self._product_s(lie, result, cost.flops) / self._product_s(written, result, cost.flops)
        if abs(times - 1) < _LITTLE:
            return cost
        return replace(cost, time_s=cost.time_s * times, spelled=partial(_times, cost, times))

    def _product_s(self, read: Sequence[Array], written: Array, flops: int) -> float:
        sizes = [array.local_bytes(self.model.mesh) for array in read]
        wide = [array.dtype for array in read if array.dtype != NARROW]
        amount = Amount(
            flops, sum(sizes), written.local_bytes(self.model.mesh), (*wide, NARROW)[0], leaves=written.dtype
        )
        return self.model.alone.product_s(amount._replace(smallest=min(sizes), rounds=len(wide)))

    def _whole(self, array: Array) -> Array:
        """An array under the dims of the program, whose digits no formula names."""
        every = (each.dims for each in self.values if each.name == array.name and {*each.dims} <= {*self.dims})
        return replace(array, dims=next(every, array.dims))


def _times(cost: StepCost, times: float) -> str:
    return formulas.longer(cost.formula, times)
