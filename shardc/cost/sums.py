"""The cost of a block: the sum over its steps, a loop's as often as it is done, less what the compiler does at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from shardc.cost.memory import peak_of
from shardc.cost.model import CostModel
from shardc.ir.collectives import Move
from shardc.ir.plan import Cost, Loop, Schedule, StepCost, single_steps
from shardc.ir.sharding import Array
from shardc.lowering.scatters import block_of


def cost_of(schedule: Schedule, model: CostModel) -> Cost:
    """Per device, of the whole program, each step by itself."""
    wire = flops = 0
    compute = communication = 0.0
    for done in single_steps(schedule.block):
        cost, times = done.step.cost, done.times
        wire, flops = wire + times * cost.wire_bytes, flops + times * cost.flops
        if done.step.is_collective:
            communication += times * cost.time_s
        else:
            compute += times * cost.time_s
    prefetched = _prefetched_s(schedule, model) if model.target.names_slice else 0.0
    time = compute + communication - prefetched
    return Cost(wire, flops, compute, communication, time, partial(peak_of, schedule), prefetched)


def _prefetched_s(schedule: Schedule, model: CostModel) -> float:
    from shardc.cost.prefetch import prefetched_s  # with what prices rings, which a plan for no slice needs not

    return prefetched_s(schedule, model)


def move_cost(move: Move, before: Array, model: CostModel, named: Array | None = None) -> StepCost:
    """Of a move of an array, which its formula names so."""
    size = before.local_bytes(model.mesh)
    wire = move.wire_bytes(before.sharding, model.mesh, size)
    time = model.emitted(move, block_of(before, model.mesh), before.sharding).seconds(size)
    return StepCost(wire, 0, time, partial(model.formula, move, before if named is None else named))


def loop_cost(loop: Loop) -> StepCost:
    """What all trips cost: `L·(2·D·F/X / W + T_hop)`."""
    trips, costs = loop.trips, [step.cost for step in loop.body.steps]
    return StepCost(
        trips * sum(cost.wire_bytes for cost in costs),
        trips * sum(cost.flops for cost in costs),
        trips * sum(cost.time_s for cost in costs),
        partial(_of_all_trips, loop.counted, costs),
    )


def _of_all_trips(trips: str, costs: Sequence[StepCost]) -> str:
    terms = [cost.formula for cost in costs if cost.time_s]
    return f"{trips}·({' + '.join(terms)})" if terms else "0"
