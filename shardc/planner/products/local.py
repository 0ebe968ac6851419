"""Local products: the ways to do one, over shardings by their numbers, and its arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from shardc.ir.dtypes import DType, multiplied
from shardc.ir.expressions import Product
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.ir.sharding import Sharding
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


@dataclass(frozen=True, slots=True)
class Work:
    """The arithmetic of a product: the dims it runs over, and whether it multiplies and adds (2) or one of them (1)."""

    dims: tuple[str, ...]
    operand_dims: tuple[tuple[str, ...], ...]
    total: int
    contracts: bool
    dtype: DType

    @classmethod
    def of(cls, program: Program, expr: Product) -> Work:
        below = tuple(operand.dims for operand in expr.operands)
        dims = tuple(dict.fromkeys(dim for names in below for dim in names))
        contracts = len(below) > 1 and any(dim not in expr.dims for dim in dims)
        sums = len(below) > 1 or len(dims) > len(expr.dims)  # a transposition does no arithmetic
        total = math.prod(program.shape(dims)) * (2 if contracts else int(sums))
        return cls(dims, below, total, contracts, multiplied(operand.dtype for operand in expr.operands))

    def parts(self, shardings: Iterable[Sharding], mesh: Mesh) -> int:
        """Into how many it is shared, for operands in these shardings."""
        return mesh.product({axis for sharding in shardings for axis in sharding.sharded})

    def flops(self, shardings: Iterable[Sharding], mesh: Mesh) -> int:
        """Per device, for operands in these shardings."""
        return self.total // self.parts(shardings, mesh)
