"""What no plan of a product costs less than, worked out without a search: the least over its local products.

Before a local product each operand must come to lie as that needs, and its result as is asked for after it:

    A[I_X, J] · B[J, K_X] → C[I, K_X], by C[I_X0, K_X1]     A must come to A[I_X0, J], B to B[J, K_X1], C to C[I, K_X]

Each of the three takes at least the bytes that a device needs and does not hold, at the rate of the fastest move.
Partial sums take more: of n that are added and then held by c devices, n-1 and c-1 times the array are sent in all.
"""

from __future__ import annotations

import math

from shardc.cost.model import CostModel, picoseconds
from shardc.ir.exchange import needed
from shardc.ir.mesh import Mesh
from shardc.ir.program import Product, Program, Use
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.objective import Objective
from shardc.planner.work import Work
from shardc.rules.products import LocalProduct, local_products

_NONE: frozenset[str] = frozenset()


def floor(program: Program, model: CostModel, objective: Objective, pool: Axes) -> int:
    """Picoseconds or bytes below which no plan gets; 0 for what is not one product of two arrays as given."""
    statement, *others = program.statements
    given = {array.name: array.pattern.exact for array in program.inputs}
    match statement.expr, statement.pattern.exact:
        case Product(operands=(Use() as left, Use() as right)) as expr, Sharding() as wanted if not others:
            held = given.get(left.name), given.get(right.name)
        case _:
            return 0
    if held[0] is None or held[1] is None or wanted.unreduced or left.name == right.name:
        return 0
    mesh, work = program.mesh, Work.of(program, expr)
    sizes = [math.prod(program.shape(array.dims)) * array.dtype.bytes for array in (left, right, expr)]
    moves = [_Ends(size, mesh, model, objective, pool) for size in sizes]

    def price(way: LocalProduct) -> int:
        first, second = way.operands
        total = moves[0](held[0], first) + moves[1](held[1], second) + moves[2](way.result, wanted)
        if objective is Objective.BYTES:
            return total
        blocks = sum(
            size // mesh.product(s.sharded) for size, s in zip(sizes, (first, second, way.result), strict=True)
        )
        return total + picoseconds(model.local_s(work.flops(way.operands, mesh), blocks, work.dtype))

    return min(price(way) for way in local_products((left.dims, right.dims), expr.dims, pool, (_NONE, _NONE)))


class _Ends:
    """What bringing one array from a sharding to another costs at least, by the shardings."""

    def __init__(self, size: int, mesh: Mesh, model: CostModel, objective: Objective, pool: Axes) -> None:
        self._size = size
        self._mesh = mesh
        self._rate = model.fastest(pool) if objective is Objective.TIME else None
        self._known: dict[tuple[Sharding, Sharding], int] = {}

    def __call__(self, before: Sharding, after: Sharding) -> int:
        key = before, after
        found = self._known.get(key)
        if found is None:
            wire = self._bytes(before, after)
            found = self._known[key] = wire if self._rate is None or not wire else self._rate.time_ps(wire)
        return found

    def _bytes(self, before: Sharding, after: Sharding) -> int:
        block, kept = needed(before, after, self._mesh)
        least = self._size // block - (self._size // kept if kept else 0)
        partial = self._mesh.product(tuple(before.unreduced))
        if partial == 1:
            return least
        copies = self._mesh.devices // block
        return max(least, self._size * (partial + copies - 2) // self._mesh.devices)
