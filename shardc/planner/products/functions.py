"""What a function leaves of operands that lie so, and its price: that of going through a dim, as measured, and of the
AllReduces of a reduction."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardc.cost.alone import Amount
from shardc.cost.rate import picoseconds
from shardc.ir.collectives import AllReduce
from shardc.ir.expressions import Call
from shardc.ir.functions import FUNCTIONS
from shardc.ir.sharding import Axes, Sharding
from shardc.lowering.streams import Loops, Streams
from shardc.planner.paths.search import Search
from shardc.rules.functions import applied, reduced_across


def function_of(
    expr: Call, operands: Sequence[Search], lie: Sequence[Sharding], loops: Loops
) -> tuple[Sharding, int] | None:
    """The sharding of the result, and the price; None if the operands, of these searches, may not lie so."""
    below, operand = [each.dims for each in expr.operands], operands[0]
    own = applied(expr.function, expr.over, below, expr.dims, lie, expr.numbers)
    if own is not None and loops.streams is not None:
        return own, operand.objective.price(picoseconds(_elements_s(expr, operands, lie, own, loops.streams)), 0)
    alone = operand.objective.price(picoseconds(_alone_s(loops, operand, lie)), 0)
    if own is not None:
        return own, alone
    found = reduced_across(expr.function, expr.over, below[0], expr.dims, lie[0], operand.graph.mesh)
    if found is None:
        return None
    sharding, axes = found
    return sharding, alone + _all_reduces(expr, below[0], operand, lie[0], axes)


def of_none(expr: Call, result: Search, lies: Sharding, loops: Loops) -> int:
    """The price of what has no operands, positions or one number everywhere: each device makes its own block."""
    if loops.streams is None:
        return result.objective.price(0, 0)
    written = result.total_bytes // math.prod(lies.blocks(result.graph.mesh))
    seconds = result.model.alone.product_s(Amount.of(loops.streams, 0, [], written, expr.dtype))
    return result.objective.price(picoseconds(seconds), 0)


def _elements_s(
    expr: Call, operands: Sequence[Search], lie: Sequence[Sharding], left: Sharding, streams: Streams
) -> float:
    """What each device does of a function of elements by itself."""
    mesh, alone = operands[0].graph.mesh, operands[0].model.alone
    named = zip(expr.operands, operands, strict=True)
    sizes = {dim: size for each, one in named for dim, size in zip(each.dims, one.shape, strict=True)}
    whole = math.prod(sizes[dim] for dim in expr.dims) * expr.dtype.bytes
    read = [one.total_bytes // math.prod(own.blocks(mesh)) for one, own in zip(operands, lie, strict=True)]
    return alone.product_s(Amount.of(streams, 0, read, whole // math.prod(left.blocks(mesh)), expr.dtype))


def _alone_s(loops: Loops, operand: Search, lie: Sequence[Sharding]) -> float:
    """What each device does by itself."""
    parts = math.prod(lie[0].blocks(operand.graph.mesh)) if any(loops.passes) else 1
    return operand.model.alone.function_s(loops.passes, operand.total_bytes // parts, operand.dtype, loops.lies)


def _all_reduces(expr: Call, dims: tuple[str, ...], search: Search, lies: Sharding, axes: Axes) -> int:
    """The price of the AllReduces of what is left of an operand when the dims that the function runs over are gone."""
    pairs = zip(dims, search.shape, lies.blocks(search.graph.mesh), strict=True)
    size = math.prod(size // parts for dim, size, parts in pairs if dim not in expr.over) * expr.dtype.bytes
    move = AllReduce(axes)
    wire = move.wire_bytes(lies, search.graph.mesh, size)
    return FUNCTIONS[expr.function].across * search.objective.price(search.model.rate(move).time_ps(size), wire)
