"""The cost of a block that is laid anew, where a slice is named."""

from __future__ import annotations

from functools import partial

from shardc.cost.model import CostModel
from shardc.ir.plan import StepCost
from shardc.ir.sharding import Array
from shardc.lowering.tpu import on_chip


def copy_cost(array: Array, model: CostModel) -> StepCost:
    """Of laying a block anew; nothing where it is not known what that takes."""
    if model.alone.measured is None:
        return StepCost()
    size, room = array.local_bytes(model.mesh), on_chip(model.target)
    return StepCost(0, 0, model.alone.copy_s(size, room), partial(model.alone.copy_formula, array, size, room))
