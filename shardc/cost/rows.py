"""What a loop takes to get at rows and to lay them, where a slice is named (`lowering.timed`), as part of each trip.

A[I_X] of A[M, I_X]                     cut out of the whole, where a collective reads it
C[M, I_X] of C[I_X]                     copied to its place, where a collective leaves it, however small
for -M { C[M, I_X] = … }                C is filled before, each row as it is written once more
for M { C[M, I_X] = x; x[I_X] = … }     no step leaves x as it was: it is read, and written to its place
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from shardc.cost import formulas
from shardc.cost.alone import Amount
from shardc.cost.copied import far_cost, farther
from shardc.cost.model import CostModel
from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Loop, Step, StepCost, ValueNumber
from shardc.ir.sharding import Array
from shardc.lowering.timed import fills_before

# Others copy what they take and leave anyway (`lowering.copies`).
_READS_WHOLE, _LEAVES_WHOLE = (Kind.GATHER, Kind.SUM), (Kind.SCATTER, Kind.SUM)


@dataclass(frozen=True, slots=True)
class Rows:
    """Of a loop's body the values that are rows of what is scanned, and of what is stacked; nothing outside loops."""

    values: Sequence[Array]
    model: CostModel
    scanned: Collection[ValueNumber] = ()
    stacked: Collection[ValueNumber] = ()
    filled: bool = False
    passed: Mapping[ValueNumber, Sequence[ValueNumber]] = field(default_factory=dict)  # by what is left beside them

    @classmethod
    def of(cls, loop: Loop, model: CostModel) -> Rows:
        body, filled = loop.body, fills_before(loop.down, model.target)
        scanned, stacked = body.inputs[loop.fixed + loop.carried :], body.outputs[loop.carried :]
        return cls(body.values, model, scanned, stacked, filled, _passed_beside(body, stacked))

    def cost(self, step: Step, cost: StepCost) -> StepCost:
        """Of a step that costs so much but for rows."""
        for more in self._more(step):
            cost = formulas.one_after_another(cost, more)
        return cost

    def _more(self, step: Step) -> Iterator[StepCost]:
        kind = step.op.facts.kind
        if self.model.alone.measured is not None:
            yield from (self._passed(self.values[value]) for value in self.passed.get(step.results[0], ()))
        if kind in _READS_WHOLE and step.operands[0] in self.scanned:
            yield self._written(self.values[step.operands[0]])
        for value in step.results:
            if kind in _LEAVES_WHOLE and value in self.stacked:
                yield far_cost(self.values[value], self.model)  # laid where all of them lie: too large for the chip
            elif value in self.stacked and self.model.leaves_output_apart(step.op, len(self.values[value].dims)):
                yield from farther(self.values[value], self.model, 0)  # all rows are too large for the chip
            if self.filled and value in self.stacked:
                yield self._written(self.values[value], alone=True)

    def _passed(self, row: Array) -> StepCost:
        """Of a row that no step of a trip leaves: what is carried, or lies there before, is read and written."""
        size, own = row.local_bytes(self.model.mesh), self.model.alone
        amount = Amount(0, size, size, row.dtype)
        return StepCost(time_s=own.product_s(amount), spelled=partial(own.memory_formula, [row], [row], amount))

    def _written(self, row: Array, alone: bool = False) -> StepCost:
        """Of a row that is written, by an instruction alone if so."""
        size, own = row.local_bytes(self.model.mesh), self.model.alone
        amount = Amount(0, 0, size, row.dtype, bare=size if alone else 0)
        return StepCost(time_s=own.product_s(amount), spelled=partial(own.memory_formula, [], [row], amount))


def _passed_beside(body: Block, stacked: Iterable[ValueNumber]) -> dict[ValueNumber, list[ValueNumber]]:
    """The rows that no step of a body leaves, by the result of the first step that reads them, or else of the first."""
    single = [step for step in body.steps if not isinstance(step.op, Loop)]
    found = dict[ValueNumber, list[ValueNumber]]()
    for value in stacked if single else ():
        if value in body.inputs:
            beside = next((step for step in single if value in step.operands), single[0])
            found.setdefault(beside.results[0], []).append(value)
    return found
