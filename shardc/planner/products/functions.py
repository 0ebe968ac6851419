"""What a function leaves of operands that lie so, and its price: that of going through a dim, as measured, and of the
AllReduces of a reduction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from shardc.cost.alone import Amount
from shardc.cost.model import CostModel
from shardc.cost.rate import picoseconds
from shardc.ir.collectives import AllReduce
from shardc.ir.expressions import Call, Use
from shardc.ir.functions import FUNCTIONS
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding
from shardc.lowering.streams import Loops, Streams
from shardc.planner.options import Objective
from shardc.planner.paths.search import Search
from shardc.rules.functions import applied, reduced_across


def function_of(expr: Call, operands: Sequence[Search], loops: Loops) -> PricedFunction:
    """A function of arrays of these searches; the same for arrays of other names."""
    bare = tuple(Use("", each.dims, None, each.dtype) for each in expr.operands)
    shapes, first = tuple(each.shape for each in operands), operands[0]
    return _function(replace(expr, operands=bare), shapes, first.graph.mesh, first.model, first.objective, loops)


@lru_cache(maxsize=512)
def _function(
    expr: Call, shapes: tuple[tuple[int, ...], ...], mesh: Mesh, model: CostModel, objective: Objective, loops: Loops
) -> PricedFunction:
    return PricedFunction(expr, shapes, mesh, model, objective, loops)


@dataclass(frozen=True, slots=True)
class PricedFunction:
    """What a function leaves of operands of these shapes, and its price, for each way in which they lie."""

    expr: Call
    shapes: tuple[tuple[int, ...], ...]
    mesh: Mesh
    model: CostModel
    objective: Objective
    loops: Loops
    _known: dict[tuple[Sharding, ...], tuple[Sharding, int] | None] = field(default_factory=dict, init=False)

    def of(self, lie: tuple[Sharding, ...]) -> tuple[Sharding, int] | None:
        """The sharding of the result, and the price; None if the operands may not lie so."""
        if lie not in self._known:
            self._known[lie] = self._found(lie)
        return self._known[lie]

    def _found(self, lie: tuple[Sharding, ...]) -> tuple[Sharding, int] | None:
        expr, price = self.expr, self.objective.price
        below = [each.dims for each in expr.operands]
        own = applied(expr.function, expr.over, below, expr.dims, lie, expr.numbers)
        if own is not None and self.loops.streams is not None:
            return own, price(picoseconds(self._elements_s(lie, own, self.loops.streams)), 0)
        alone = price(picoseconds(self._alone_s(lie[0])), 0)
        if own is not None:
            return own, alone
        found = reduced_across(expr.function, expr.over, below[0], expr.dims, lie[0], self.mesh)
        if found is None:
            return None
        sharding, axes = found
        return sharding, alone + self._all_reduces(lie[0], axes)

    def _elements_s(self, lie: Sequence[Sharding], left: Sharding, streams: Streams) -> float:
        """What each device does of a function of elements by itself."""
        expr, named = self.expr, zip(self.expr.operands, self.shapes, strict=True)
        sizes = {dim: size for each, shape in named for dim, size in zip(each.dims, shape, strict=True)}
        whole = math.prod(sizes[dim] for dim in expr.dims) * expr.dtype.bytes
        read = [self._bytes(place) // math.prod(own.blocks(self.mesh)) for place, own in enumerate(lie)]
        written = whole // math.prod(left.blocks(self.mesh))
        return self.model.alone.product_s(Amount.of(streams, 0, read, written, expr.dtype))

    def _alone_s(self, lies: Sharding) -> float:
        """What each device does by itself."""
        passes, operand = self.loops.passes, self.expr.operands[0]
        parts = math.prod(lies.blocks(self.mesh)) if any(passes) else 1
        return self.model.alone.function_s(passes, self._bytes(0) // parts, operand.dtype, self.loops.lies)

    def _all_reduces(self, lies: Sharding, axes: Axes) -> int:
        """The price of the AllReduces of what is left of an operand when the dims that the function runs over are
        gone."""
        expr, dims = self.expr, self.expr.operands[0].dims
        pairs = zip(dims, self.shapes[0], lies.blocks(self.mesh), strict=True)
        size = math.prod(size // parts for dim, size, parts in pairs if dim not in expr.over) * expr.dtype.bytes
        move = AllReduce(axes)
        wire = move.wire_bytes(lies, self.mesh, size)
        return FUNCTIONS[expr.function].across * self.objective.price(self.model.rate(move).time_ps(size), wire)

    def _bytes(self, place: int) -> int:
        """Of an operand, whole."""
        return math.prod(self.shapes[place]) * self.expr.operands[place].dtype.bytes


def of_none(expr: Call, result: Search, lies: Sharding, loops: Loops) -> int:
    """The price of what has no operands, positions or one number everywhere: each device makes its own block."""
    if loops.streams is None:
        return result.objective.price(0, 0)
    written = result.total_bytes // math.prod(lies.blocks(result.graph.mesh))
    seconds = result.model.alone.product_s(Amount.of(loops.streams, 0, [], written, expr.dtype))
    return result.objective.price(picoseconds(seconds), 0)
