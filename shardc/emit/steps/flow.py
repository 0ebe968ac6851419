"""Along which axes JAX must be told that a value is equal.

JAX's types inside shard_map: `f32[8]{V:X}` may differ along X, `f32[8]` is equal there. An AllGather leaves its result
varying, unless it is told `to="invarying"`; that is needed where the result is required to be equal on all devices, and
elsewhere the plain form has the better gradient (a reduce-scatter). So the demand for equal values is followed from the
outputs back to the gathers. Partial sums are varying values too, those that arrive so included (`partial_sums`).
"""

from __future__ import annotations

from typing import assert_never

from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    JointExchange,
    JointGather,
    JointScatter,
    ReduceScatter,
    Slice,
)
from shardc.ir.digits import Reshape
from shardc.ir.plan import Apply, Einsum, Schedule, Step

AxisSet = frozenset[str]


def equal_along(schedule: Schedule) -> tuple[AxisSet, ...]:
    """Per value the axes along which it must be equal."""
    every = frozenset(schedule.mesh.names)
    demand: dict[int, AxisSet] = dict.fromkeys(range(len(schedule.values)), frozenset())
    for output in schedule.outputs:
        demand[output] |= every - schedule.values[output].sharding.used
    for step in reversed(schedule.steps):
        for operand in step.operands:
            demand[operand] |= _demand_below(step, demand[step.result])
    return tuple(demand[value] for value in range(len(schedule.values)))


def _demand_below(step: Step, demand: AxisSet) -> AxisSet:
    """What the operands must satisfy so that the result does."""
    match step.op:
        case AllGather(axes) | AllReduce(axes) | ReduceScatter(axes) | Slice(axes):
            return demand - set(axes)
        case JointGather() | JointScatter():
            return demand - set(step.op.axes)
        case AllToAll() | JointExchange() | CollectivePermute() | DirectExchange() | Reshape() | Einsum() | Apply():
            return demand
        case _:
            assert_never(step.op)
