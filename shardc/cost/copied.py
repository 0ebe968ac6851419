"""The cost of a block that is laid anew, where a slice is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar, assert_never

from shardc.cost import formulas
from shardc.cost.alone import Alone, Amount
from shardc.cost.model import CostModel
from shardc.ir.plan import StepCost
from shardc.ir.sharding import Array, in_order
from shardc.lowering.forms import Laid
from shardc.lowering.tiles import LANES, ROWS, up
from shardc.lowering.tpu import on_chip

Elements = TypeVar("Elements", float, Any)  # of one share, or an array of those of several

_AS_WIDE = 2  # bytes of an element, by which copies were measured


def laid_cost(laid: Laid, array: Array, model: CostModel, beside: int) -> StepCost:
    """Of a block that lies on the chip beside so many bytes, if there is room; of one that comes to lie in other tiles;
    of a share, in whole tiles or ragged; or of pieces laid along its last dim."""
    match laid:
        case Laid.WHOLE:
            return copy_cost(array, model, beside)
        case Laid.TILES:
            return _tiles_cost(array, model)
        case Laid.SHARE:
            return _share_cost(array, model)
        case Laid.PIECES:
            return _ragged_cost(array, model)
        case Laid.LANES:
            return _lanes_cost(array, model)
        case _:
            assert_never(laid)


def _tiles_cost(array: Array, model: CostModel) -> StepCost:
    """Of laying what a product left in an output's tiles; of fewer rows than a tile has whole ones are written."""
    *_, rows, _ = (size for size in array.local_shape(model.mesh) if size > 1)
    times = (1 + max(1.0, ROWS / rows)) / 2 * _AS_WIDE / array.dtype.bytes
    return _in_memory(array, times, model)


def _lanes_cost(array: Array, model: CostModel) -> StepCost:
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


def far_cost(array: Array, model: CostModel) -> StepCost:
    """Of laying a block anew in memory."""
    return _in_memory(array, 1, model)


def farther(array: Array, model: CostModel, beside: int) -> Iterator[StepCost]:
    """What it takes more where a block has no room on the chip whose copy is priced as if it might, beside so many
    bytes."""
    near, far = copy_cost(array, model, beside).time_s, far_cost(array, model).time_s
    if far > near:
        yield StepCost(time_s=far - near, spelled=partial(_farther, array))


def _farther(array: Array) -> str:
    return f"{formulas.local_bytes(array)}·(1 / W_copy - 1 / W_hbm)"


def _share_cost(array: Array, model: CostModel) -> StepCost:
    """Of cutting out a share, which takes as long for each element of whatever type (`lowering.timed`)."""
    size, wide = array.local_bytes(model.mesh), array.dtype.bytes
    spelled = partial("{} / W_near".format, formulas.local_bytes(array))
    cut_out = StepCost(0, 0, _cut_out_s(size / wide, model.alone), partial(_longer, spelled, _AS_WIDE / wide))
    return model.alone.function_started(cut_out)


def share_s(elements: Elements, alone: Alone) -> Elements:
    """Seconds of cutting out a share of so many elements, of each of several shares."""
    found: Elements = _cut_out_s(elements, alone) + alone.function_start_s
    return found


def _cut_out_s(elements: Elements, alone: Alone) -> Elements:
    """The same but for its start."""
    near, _ = alone.laid_s_per_byte(Laid.SHARE)
    return elements * _AS_WIDE * near


def _ragged_cost(array: Array, model: CostModel) -> StepCost:
    """Of cutting out a share of part of a tile, which is written as a whole one."""
    if model.alone.measured is None:
        return StepCost()
    lanes = array.local_shape(model.mesh)[-1]
    return _in_memory(array, up(lanes, LANES) / lanes * _AS_WIDE / array.dtype.bytes, model)


def _in_memory(array: Array, times: float, model: CostModel) -> StepCost:
    """Of a copy in memory of so many times an array's bytes."""
    size = round(array.local_bytes(model.mesh) * times)
    spelled = partial(model.alone.copy_formula, array, size, 0)
    return StepCost(0, 0, model.alone.copy_s(size, 0), partial(_longer, spelled, times))


def _longer(spelled: Callable[[], str], times: float) -> str:
    return spelled() if times == 1 else formulas.longer(spelled(), times)


def with_first(dims: tuple[str, ...], place: int) -> tuple[str, ...]:
    """The dims in the order in which a loop reads rows along the one at this place."""
    return (dims[place], *dims[:place], *dims[place + 1 :])


def turned(before: Array, dims: tuple[str, ...], model: CostModel) -> tuple[Array, StepCost]:
    """An array with its dims in this order, and what that costs."""
    after = in_order(before, dims)
    size = before.local_bytes(model.mesh)
    amount = Amount(0, size, size, before.dtype)
    spelled = partial(model.alone.memory_formula, [before], [after], amount)
    return after, StepCost(0, 0, model.alone.product_s(amount), spelled)
