"""Bytes that no method gets below."""

from __future__ import annotations

import math

from shardc.ir.exchange import needed
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.ir.program import Named, Use
from shardc.ir.sharding import Array, Sharding


def lower_bound(schedule: Schedule) -> int:
    """The wire bytes that every plan of the program needs; 0 where none is known.

    For a program that only reshards: of each output, the most bytes that a device must hold and does not
    (the largest over outputs, since one device need not be the busiest for all).
    """
    if not all(isinstance(s.expr, Use | Named) for s in schedule.program.statements):
        return 0
    by_name = {schedule.values[number].name: schedule.values[number] for number in schedule.inputs}
    sources = _origins(schedule)
    bounds = [
        reshard_bound(by_name[sources[number]], schedule.values[number].sharding, schedule.mesh)
        for number in schedule.outputs
    ]
    return max(bounds, default=0)


def _origins(schedule: Schedule) -> dict[int, str]:
    """For each value the input that it is a resharding of."""
    names = {number: schedule.values[number].name for number in schedule.inputs}
    for step in schedule.steps:
        names[step.result] = names[step.operands[0]]
    return names


def reshard_bound(before: Array, after: Sharding, mesh: Mesh) -> int:
    """The most bytes that some device needs and does not hold."""
    total = math.prod(before.shape) * before.dtype.bytes
    block, kept = needed(before.sharding, after, mesh)
    return total // block - (total // kept if kept else 0)
