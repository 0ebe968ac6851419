"""The cost of a block: the sum over its steps, a loop's as often as it is done, without overlap."""

from __future__ import annotations

from shardc.cost.memory import peak_of
from shardc.ir.folds import single_steps
from shardc.ir.plan import Block, Cost, Schedule, StepCost


def cost_of(schedule: Schedule) -> Cost:
    """Per device, of the whole program."""
    done = list(single_steps(schedule.block))
    compute = sum(each.times * each.step.cost.time_s for each in done if not each.step.is_collective)
    communication = sum(each.times * each.step.cost.time_s for each in done if each.step.is_collective)
    return Cost(
        sum(each.times * each.step.cost.wire_bytes for each in done),
        sum(each.times * each.step.cost.flops for each in done),
        compute,
        communication,
        compute + communication,
        peak_of(schedule),
    )


def loop_cost(dim: str, trips: int, body: Block) -> StepCost:
    """What all trips cost: `L·(2·D·F/X / W + T_hop)`."""
    costs = [step.cost for step in body.steps]
    terms = [cost.formula for cost in costs if cost.time_s]
    return StepCost(
        trips * sum(cost.wire_bytes for cost in costs),
        trips * sum(cost.flops for cost in costs),
        trips * sum(cost.time_s for cost in costs),
        f"{dim}·({' + '.join(terms)})" if terms else "0",
    )
