"""What a step takes that is done for one chunk of a dim after another, in each trip.

h[B, F] = x[B, D] · W[D, F]         eight chunks of B: an eighth of the time, but W is read in each, for an eighth of
                                    the operations
p[T, S] = softmax_S(s[T, S])        what lies on the chip between two steps is not waited for as memory is
dW[D, F] = x[B, D] · dh[B, F]       what is summed is read and written in each trip, in part beside the product
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from shardc.cost.alone import Amount
from shardc.cost.formulas import longer, one_after_another
from shardc.cost.model import CostModel
from shardc.ir.dtypes import multiplied
from shardc.ir.plan import StepCost
from shardc.ir.sharding import Array
from shardc.lowering.timed import product_waits_near, waits_near

# Of what reading and writing a sum takes: replayed on v5e, all of it in eight trips, and 0.4 of it in sixteen.
_APART = 0.5


class Taken(NamedTuple):
    """What a step reads and leaves: arrays cut in trips, arrays that each trip reads whole, and what it leaves, and if
    that is a sum over the trips the array in which they add it up; `far` are those read whole that have no room on the
    chip."""

    cut: Sequence[Array]
    whole: Sequence[Array]
    left: Array
    sum: Array | None = None
    far: Sequence[Array] = ()


def part_of(cost: StepCost, taken: Taken, trips: int, model: CostModel, *, near: bool) -> StepCost:
    """Of a step that costs so much as a whole, in one of so many trips, in each of which it starts; `near`: what it
    reads and leaves lies on the chip."""
    part = _part_of(cost, taken, trips, model, near=near)
    if not cost.time_s:
        return part
    return model.alone.product_started(part) if cost.flops else model.alone.function_started(part)


def _part_of(cost: StepCost, taken: Taken, trips: int, model: CostModel, *, near: bool) -> StepCost:
    """The same but for its start."""
    part = replace(
        cost,
        flops=cost.flops // trips,
        time_s=cost.time_s / trips,
        spelled=partial(_part, cost, trips, 1.0),
        as_written=None,
    )
    waits = cost.by_memory or not (cost.flops or cost.in_loop)
    if near and waits:
        times = _near(cost, taken, model)
        part = replace(part, time_s=part.time_s * times, spelled=partial(_part, cost, trips, times))
        return one_after_another(part, _read(taken.far, model)) if taken.far else part
    sums = [] if taken.sum is None else [taken.sum]
    if not sums and (not taken.whole or not cost.flops):
        return part
    alone, mesh = model.alone, model.mesh
    size = sum(array.local_bytes(mesh) for array in sums)
    again = Amount(
        0, sum(array.local_bytes(mesh) for array in taken.whole) + size, size, (*taken.whole, *sums)[0].dtype
    )
    cut, written = sum(array.local_bytes(mesh) for array in taken.cut), taken.left.local_bytes(mesh)
    kind = multiplied(array.dtype for array in (*taken.cut, *taken.whole))
    all_at_once = Amount(cost.flops, again.read - size + cut, written, kind, leaves=taken.left.dtype)
    leaves = (*sums, taken.left)[0]
    in_a_trip = Amount(part.flops, again.read + cut // trips, size or written // trips, kind, leaves=leaves.dtype)
    reading = alone.product_s(again)
    more = reading if waits else max(0.0, alone.product_s(in_a_trip) - alone.product_s(all_at_once) / trips)
    more = max(more, _APART * alone.product_s(Amount(0, size, size, again.dtype))) if sums else more
    if not more:
        return part
    spelled = partial(_again, taken.whole, sums, again, more / reading, model)
    return one_after_another(part, StepCost(time_s=more, spelled=spelled))


def _near(cost: StepCost, taken: Taken, model: CostModel) -> float:
    """How much of its time a step takes on the chip."""
    if not cost.flops:
        return waits_near(model.target)
    less = taken.left.local_bytes(model.mesh) < sum(array.local_bytes(model.mesh) for array in taken.cut)
    kind = multiplied(array.dtype for array in (*taken.cut, *taken.whole))
    return product_waits_near(model.alone.product_s(Amount(cost.flops, 0, 0, kind)) / cost.time_s, less, model.target)


def _read(arrays: Sequence[Array], model: CostModel) -> StepCost:
    """Of arrays in memory that each trip reads whole."""
    amount = Amount(0, sum(array.local_bytes(model.mesh) for array in arrays), 0, arrays[0].dtype)
    return StepCost(time_s=model.alone.product_s(amount), spelled=partial(_again, arrays, [], amount, 1.0, model))


def retyped(before: Array, after: Array, model: CostModel) -> StepCost:
    """Of an array that is read, and written in another type."""
    read, written = (array.local_bytes(model.mesh) for array in (before, after))
    amount = Amount(0, read, written, before.dtype, leaves=after.dtype)
    spelled = partial(model.alone.memory_formula, [before], [after], amount)
    return StepCost(time_s=model.alone.product_s(amount), spelled=spelled)


def _part(cost: StepCost, trips: int, times: float) -> str:
    """The formula of a part of a time."""
    formula = cost.formula
    part = f"({formula})/{trips}" if " + " in formula or " - " in formula else f"{formula}/{trips}"
    return part if times == 1.0 else longer(part, times)


def _again(whole: Sequence[Array], sums: Sequence[Array], amount: Amount, times: float, model: CostModel) -> str:
    found = model.alone.memory_formula([*whole, *sums], sums, amount)
    return found if times == 1.0 else longer(found, times)
