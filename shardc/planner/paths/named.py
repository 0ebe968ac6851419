"""The moves that a collective's name allows."""

from __future__ import annotations

from collections.abc import Iterator

from shardc.ir.collectives import COLLECTIVE_NAMES
from shardc.ir.expressions import Named
from shardc.ir.sharding import ShardingNumber
from shardc.planner.paths.graph import Edge
from shardc.planner.paths.search import Search


def named_edges(expr: Named, number: ShardingNumber, search: Search) -> Iterator[Edge]:
    """From a sharding."""
    dim = None if expr.dim is None else expr.dims.index(expr.dim)
    for edge in search.graph.named_edges(number, COLLECTIVE_NAMES[expr.collective], expr.axes):
        axes, on = edge.move.axes, edge.move.on
        axes_fit = expr.axes is None or axes == expr.axes or (len(on) != 1 and set(axes) == set(expr.axes))
        if axes_fit and (dim is None or on == (dim,)) and search.divides(edge.target):
            yield edge


def named_moves(expr: Named, number: ShardingNumber, search: Search) -> Iterator[tuple[ShardingNumber, int]]:
    """The same: where to, and the price of the move."""
    return ((edge.target, search.price(number, edge)) for edge in named_edges(expr, number, search))
