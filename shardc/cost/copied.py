"""The cost of a block that is laid anew, where a slice is named."""

from __future__ import annotations

from functools import partial

from shardc.cost import formulas
from shardc.cost.model import CostModel
from shardc.ir.plan import StepCost
from shardc.ir.sharding import Array
from shardc.lowering.forms import Laid
from shardc.lowering.tpu import on_chip


def lanes_cost(array: Array, model: CostModel) -> StepCost:
    """Of laying pieces of a block anew along its last dim, in memory."""
    far, _ = model.alone.laid_s_per_byte(Laid.LANES)
    spelled = partial("{} / W_lanes".format, formulas.local_bytes(array))
    return StepCost(0, 0, array.local_bytes(model.mesh) * far, spelled)


def copy_cost(array: Array, model: CostModel, beside: int | None = None) -> StepCost:
    """Of laying a block anew that lies on the chip, if there is room, beside so many bytes, or else as many as it has;
    nothing where it is not known what that takes."""
    if model.alone.measured is None:
        return StepCost()
    size = array.local_bytes(model.mesh)
    room = max(0, on_chip(model.target) - (size if beside is None else beside))
    return StepCost(0, 0, model.alone.copy_s(size, room), partial(model.alone.copy_formula, array, size, room))
