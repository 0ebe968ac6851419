"""What has no operands is made where it is wanted, and is not moved there.

h[B_X, D] = 0; … h[B, D] …     h[B, D] = 0: each device fills what it is to have, and none sends it
G[D, F] = 0; … G[D, F]{U_X}    G[D, F]{U_X} = 0: zeros are partial sums of zeros, and none has to be masked
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shardc.cost.alone import Amount
from shardc.cost.model import CostModel
from shardc.ir.calls import fills_zeros
from shardc.ir.collectives import Move
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Step, StepCost, ValueNumber
from shardc.ir.sharding import Array
from shardc.lowering.streams import Streams


def made_there(steps: Sequence[Step], value: ValueNumber, move: Move, left: Array, model: CostModel) -> Step | None:
    """The step that makes a value, as it makes what a move leaves of it; None if it cannot."""
    made = next((step for step in reversed(steps) if value in step.results), None)
    if made is None or made.operands or not isinstance(made.op, Apply):
        return None
    if move.facts.kind is Kind.MASK and not fills_zeros(made.op.function, made.op.numbers):
        return None
    return replace(made, cost=_cost(left, model)) if made.cost.time_s else made


def _cost(left: Array, model: CostModel) -> StepCost:
    """Of writing an array that is not computed as it is read."""
    written, size = Streams((), bare=True), left.local_bytes(model.mesh)
    amount = Amount.of(written, 0, [], size, left.dtype)
    formula = partial(model.alone.memory_formula, *written.in_memory([], left), amount)
    return StepCost(0, 0, model.alone.product_s(amount), formula)
