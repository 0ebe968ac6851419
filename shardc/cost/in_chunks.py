"""What a step takes that is done for one chunk of a dim after another, in each trip.

h[B, F] = x[B, D] · W[D, F]         eight chunks of B: an eighth of the time, but W is read in each, for an eighth of
                                    the operations
p[T, S] = softmax_S(s[T, S])        what lies on the chip between two steps is not waited for as memory is
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shardc.cost.alone import Amount
from shardc.cost.formulas import longer, one_after_another
from shardc.cost.model import CostModel
from shardc.ir.plan import StepCost
from shardc.ir.sharding import Array
from shardc.lowering.timed import waits_near


def part_of(
    cost: StepCost, cut: Sequence[Array], whole: Sequence[Array], left: Array, trips: int, model: CostModel, near: bool
) -> StepCost:
    """Of a step that costs so much for all of `cut` and `left`, and reads `whole` anew in each trip; `near`: what it
    reads and leaves lies on the chip."""
    part = replace(
        cost,
        flops=cost.flops // trips,
        time_s=cost.time_s / trips,
        spelled=partial(_part, cost, trips, 1.0),
        as_written=None,
    )
    waits = cost.by_memory or not cost.flops
    if near and waits:
        times = waits_near(model.target)
        return replace(part, time_s=part.time_s * times, spelled=partial(_part, cost, trips, times))
    if not whole or not cost.flops:
        return part
    alone, mesh = model.alone, model.mesh
    again = Amount(0, sum(array.local_bytes(mesh) for array in whole), 0, whole[0].dtype)
    read, written = again.read + sum(array.local_bytes(mesh) for array in cut), left.local_bytes(mesh)
    all_at_once = Amount(cost.flops, read, written, left.dtype)
    in_a_trip = Amount(part.flops, again.read + (read - again.read) // trips, written // trips, left.dtype)
    reading = alone.product_s(again)
    more = reading if waits else max(0.0, alone.product_s(in_a_trip) - alone.product_s(all_at_once) / trips)
    if not more:
        return part
    spelled = partial(_again, whole, again, more / reading, model)
    return one_after_another(part, StepCost(time_s=more, spelled=spelled))


def _part(cost: StepCost, trips: int, times: float) -> str:
    """The formula of a part of a time."""
    formula = cost.formula
    part = f"({formula})/{trips}" if " + " in formula or " - " in formula else f"{formula}/{trips}"
    return part if times == 1.0 else longer(part, times)


def _again(whole: Sequence[Array], amount: Amount, times: float, model: CostModel) -> str:
    found = model.alone.memory_formula(whole, [], amount)
    return found if times == 1.0 else longer(found, times)
