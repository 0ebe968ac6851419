"""The arithmetic of a product."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from shardc.ir.dtypes import DType, multiplied
from shardc.ir.expressions import Product
from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.ir.sharding import Sharding


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
