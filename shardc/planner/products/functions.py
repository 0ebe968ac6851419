"""What a function leaves of operands that lie so, and its price: that of going through a dim, as measured, and of the
AllReduces of a reduction."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardc.cost.model import picoseconds
from shardc.ir.collectives import AllReduce
from shardc.ir.expressions import Call
from shardc.ir.functions import FUNCTIONS
from shardc.ir.sharding import Axes, Sharding
from shardc.lowering.over_dims import Passes
from shardc.planner.paths.search import Search
from shardc.rules.functions import applied, reduced_across


def function_of(
    expr: Call, below: Sequence[tuple[str, ...]], operand: Search, lie: Sequence[Sharding], passes: Passes
) -> tuple[Sharding, int] | None:
    """The sharding of the result, and the price; None if the operands may not lie so.

    `below` are the operands' dims, `operand` is the first of them, `passes` how often it is gone through.
    """
    own = applied(expr.function, expr.over, below, expr.dims, lie, expr.numbers)
    alone = operand.objective.price(picoseconds(_alone_s(passes, operand, lie)), 0)
    if own is not None:
        return own, alone
    found = reduced_across(expr.function, expr.over, below[0], expr.dims, lie[0], operand.graph.mesh)
    if found is None:
        return None
    sharding, axes = found
    return sharding, alone + _all_reduces(expr, below[0], operand, lie[0], axes)


def _alone_s(passes: Passes, operand: Search, lie: Sequence[Sharding]) -> float:
    """What each device does by itself."""
    parts = math.prod(lie[0].blocks(operand.graph.mesh)) if any(passes) else 1
    return operand.model.alone.function_s(passes, operand.total_bytes // parts, operand.dtype)


def _all_reduces(expr: Call, dims: tuple[str, ...], search: Search, lies: Sharding, axes: Axes) -> int:
    """The price of the AllReduces of what is left of an operand when the dims that the function runs over are gone."""
    pairs = zip(dims, search.shape, lies.blocks(search.graph.mesh), strict=True)
    size = math.prod(size // parts for dim, size, parts in pairs if dim not in expr.over) * expr.dtype.bytes
    move = AllReduce(axes)
    wire = move.wire_bytes(lies, search.graph.mesh, size)
    return FUNCTIONS[expr.function].across * search.objective.price(search.model.rate(move).time_ps(size), wire)
