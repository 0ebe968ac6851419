"""The time of a ring over several axes at once, by the ways of its blocks.

    max(partial products + what they wait for the first turn, turns + a partial product) + what gathers a sum for all

A ring of 16 has 16 partial products, so that what they leave counts: where they add up, the whole result is read and
written in f32 with each of them; where sums go round, each is added to what came.
"""

from __future__ import annotations

from typing import NamedTuple

from shardc.cost.model import CostModel
from shardc.ir.operations import Kind
from shardc.ir.plan import Einsum, Schedule, Step
from shardc.lowering.pairs import pairs_along
from shardc.lowering.rings import Ring

EFFICIENCY = 0.76  # of a product's speed, that its partial products reach
_F32 = 4


class Beside(NamedTuple):
    """Seconds of a group: before anything is hidden, of the products, of what goes on beside them, and what is left."""

    before: float
    computing: float
    hidden: float
    left: float


def around(schedule: Schedule, steps: tuple[Step, ...], ring: Ring, model: CostModel) -> Beside | None:
    """None where the ways of the blocks are not known."""
    product, moved = sorted(steps, key=lambda step: not isinstance(step.op, Einsum))
    block = schedule.values[(moved.operands[0] if ring.gathers else moved.result)]
    size = block.local_bytes(model.mesh) // (ring.size if ring.gathered_after else 1)
    turns = _turns(ring, size, model)
    if not turns:
        return None
    computing = max(product.cost.time_s / EFFICIENCY, _adding_up(schedule, product, ring, model))
    if not ring.gathers:
        computing += (ring.size - 1) * model.alone.moving_s(2 * size, size, schedule.values[moved.result].dtype)
    after = moved.cost.time_s / 2 if moved.op.facts.kind is Kind.SUM else 0.0
    part = computing / ring.size
    return Beside(0.0, computing + max(0.0, turns[0] - part), sum(turns) + part, after)


def _turns(ring: Ring, size: int, model: CostModel) -> list[float]:
    """Seconds of each: a block to both neighbours, and of an even number the last to one of them alone. What goes one
    way waits for what goes the other where they share a link. None are told where the ways are not known."""
    right, left = (model.sent(pairs_along(ring.axes, ring.pairs(step), model.mesh)) for step in (1, -1))
    if right is None or left is None:
        return []
    both = right.s_per_byte + left.s_per_byte if right.links & left.links else max(right.s_per_byte, left.s_per_byte)
    rates = [both] * ((ring.size - 1) // 2) + [right.s_per_byte] * (ring.size % 2 == 0)
    return [max(model.chip.hop_latency, rate * size) for rate in rates]


def _adding_up(schedule: Schedule, product: Step, ring: Ring, model: CostModel) -> float:
    """Seconds in which the device's memory takes the sum, as often as there are parts of it."""
    result = schedule.values[product.result]
    if not ring.gathers or ring.dim in result.dims:
        return 0.0
    elements = result.local_bytes(model.mesh) // result.dtype.bytes
    return 2 * _F32 * elements * ring.size / model.chip.hbm_bandwidth
