"""What each device takes for its own part of a function, as its steps are built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shardc.cost.alone import Amount
from shardc.cost.model import CostModel
from shardc.ir.dtypes import DType
from shardc.ir.plan import StepCost
from shardc.ir.sharding import Array
from shardc.lowering.streams import Loops, Passes, Streams


def of_elements(model: CostModel, read: Sequence[Array], written: Array, streams: Streams) -> StepCost:
    """Of what a function of elements reads and writes; with what it is where a collective is between it and the product
    whose tiles it is done with."""
    found = replace(_streamed(model, read, written, streams), in_tiles=streams.in_tiles)
    left = streams.to_lie()
    if left is not None:
        found = replace(found, to_lie=_streamed(model, read, written, left))
    return replace(found, if_sent=_streamed(model, read, written, streams.if_sent())) if streams.in_place else found


def _streamed(model: CostModel, read: Sequence[Array], written: Array, streams: Streams) -> StepCost:
    sizes = [array.local_bytes(model.mesh) for array in read]
    amount = Amount.of(streams, 0, sizes, written.local_bytes(model.mesh), written.dtype)
    if amount.is_nothing:
        return StepCost()
    formula = partial(model.alone.memory_formula, *streams.in_memory(read, written), amount)
    return model.alone.function_started(StepCost(0, 0, model.alone.product_s(amount), formula), amount.starts)


def of_function(model: CostModel, loops: Loops, operand: Array) -> StepCost:
    """Of a function over dims of this array; with what it is where a collective leaves that array, or where it is a
    share that is cut as it is read, and what it takes besides to lie there for a collective."""
    found, sent = _of_passes(model, loops.passes, loops.lies, operand), loops.if_sent()
    if loops.passes.largest:
        found = replace(found, if_cut=_of_passes(model, loops.passes.if_cut(), loops.lies, operand))
    if sent is not None:
        found = replace(found, if_sent=_of_passes(model, sent.passes, sent.lies, operand), in_tiles=loops.in_tiles)
    return replace(found, to_lie=_of_passes(model, loops.left, None, operand)) if any(loops.left) else found


def _of_passes(model: CostModel, passes: Passes, lies: DType | None, operand: Array) -> StepCost:
    seconds = model.alone.function_s(passes, operand.local_bytes(model.mesh), operand.dtype, lies)
    formula = partial(model.alone.function_formula, passes, operand, lies)
    if not seconds:
        return StepCost()
    by_memory, in_loop = passes.multiplied > 0, passes.largest + passes.computed > 0
    cost = StepCost(0, 0, seconds, formula, by_memory=by_memory, in_loop=in_loop and not by_memory)
    return model.alone.function_started(cost, sum(passes))
