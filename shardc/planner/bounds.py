"""Bytes that no method gets below."""

from __future__ import annotations

import math

from shardc.ir.exchange import needed, received_to_add
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Schedule
from shardc.ir.program import Named, Product, Use
from shardc.ir.sharding import Array, Sharding
from shardc.planner.cuts import by_products, sent
from shardc.planner.degrees import Matmul, Operand, received


def lower_bound(schedule: Schedule) -> int:
    """The wire bytes that every plan of the program needs; 0 where none is known.

    For a program that only reshards: of each output, the most bytes that a device must hold and does not
    (the largest over outputs, since one device need not be the busiest for all). For one product of two arrays
    whose shardings and whose result's are given, what `degrees` and `cuts` count.
    """
    matmul = _matmul(schedule)
    if matmul is not None:
        return max(received(matmul), sent(matmul), by_products(matmul)) * _least_itemsize(schedule)
    if not all(isinstance(s.expr, Use | Named) for s in schedule.program.statements):
        return 0
    by_name = {schedule.values[number].name: schedule.values[number] for number in schedule.inputs}
    sources = _origins(schedule)
    bounds = [
        reshard_bound(by_name[sources[number]], schedule.values[number].sharding, schedule.mesh)
        for number in schedule.outputs
    ]
    return max(bounds, default=0)


def _matmul(schedule: Schedule) -> Matmul | None:
    """The product that the program is; None if it is anything else, or leaves something open."""
    program = schedule.program
    if len(program.statements) != 1:
        return None
    statement = program.statements[0]
    match statement.expr, statement.pattern.exact:
        case Product(operands=(Use(), Use())) as product, Sharding() as wanted:
            pass
        case _:
            return None
    given = [array.pattern.exact for array in program.inputs]
    below = [operand.dims for operand in product.operands]
    alone = set(below[0]) ^ set(below[1])
    if None in given or len(given) != 2 or wanted.unreduced or not alone <= set(product.dims):
        return None  # one array twice; or a dim that one alone has is summed; or the result stays in parts
    left, right = (Operand(dims, sharding) for dims, sharding in zip(below, given, strict=True) if sharding is not None)
    return Matmul(schedule.mesh, dict(program.sizes), left, right, Operand(statement.dims, wanted))


def _least_itemsize(schedule: Schedule) -> int:
    """Of operands and result: what is sent may be of either."""
    statement = schedule.program.statements[0]
    dtypes = [statement.dtype, statement.expr.dtype, *(array.dtype for array in schedule.program.inputs)]
    return min(dtype.bytes for dtype in dtypes)


def _origins(schedule: Schedule) -> dict[int, str]:
    """For each value the input that it is a resharding of."""
    names = {number: schedule.values[number].name for number in schedule.inputs}
    for step in schedule.steps:
        names[step.result] = names[step.operands[0]]
    return names


def reshard_bound(before: Array, after: Sharding, mesh: Mesh) -> int:
    """The most bytes that some device needs and does not hold; or what devices receive at least to add partial sums."""
    total = math.prod(before.shape) * before.dtype.bytes
    block, kept = needed(before.sharding, after, mesh)
    missing = total // block - (total // kept if kept else 0)
    summed = mesh.product(tuple(before.sharding.unreduced))
    if summed == 1 or after.unreduced:
        return missing
    return max(missing, received_to_add(total, summed, block, mesh.devices))
