"""The ways to do a product locally, over shardings by their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from shardc.planner.paths.graph import Graph
from shardc.rules.products import Dims, local_products


@dataclass(frozen=True, slots=True)
class Way:
    """A local product: the numbers of the operands' shardings and of the result's, and into how many it is shared."""

    at: tuple[int, ...]
    result: int
    parts: int


@lru_cache(maxsize=256)
def every_way(
    dims: tuple[Dims, ...],
    result: Dims,
    graphs: tuple[Graph, ...],
    graph: Graph,
    unreduced: tuple[frozenset[str], ...],
) -> tuple[Way, ...]:
    """Every local product over the axes of the graphs, as `rules.products.local_products` lists them."""
    found = []
    for way in local_products(dims, result, graph.coarse_pool, unreduced):
        lie = [graph.refined(sharding) for sharding in way.operands]
        at = tuple(own.number(sharding) for own, sharding in zip(graphs, lie, strict=True))
        axes = graph.mesh.ordered({axis for sharding in lie for axis in sharding.sharded})
        found.append(Way(at, graph.number(graph.refined(way.result)), graph.mesh.product(axes)))
    return tuple(found)
