"""The time of a schedule with steps done as one: of each such group the longer of computing and communicating.

max(product, collectives) + one hop        where the steps one after another take the sum
"""

from __future__ import annotations

from shardc.ir.plan import Einsum, Schedule, Step

HOP_S = 1e-6  # of a group's first piece, before there is anything to compute beside


def time_together(schedule: Schedule) -> float:
    """Seconds of all steps."""
    grouped = {place for group in schedule.together for place in range(group.first, group.last + 1)}
    alone = sum(step.cost.time_s for place, step in enumerate(schedule.steps) if place not in grouped)
    return alone + sum(_as_one(schedule.steps[group.first : group.last + 1]) for group in schedule.together)


def _as_one(steps: tuple[Step, ...]) -> float:
    computing = sum(step.cost.time_s for step in steps if isinstance(step.op, Einsum))
    return max(computing, sum(step.cost.time_s for step in steps) - computing) + HOP_S
