"""The cheapest plan of one product of two arrays, if it is cheaper than one that is known: a search by bounds.

Before a local product each operand must come to lie as that needs, and its result as is asked for after it:

    A[I_X, J] · B[J, K_X] → C[I, K_X], by C[I_X0, K_X1]     A must come to A[I_X0, J], B to B[J, K_X1], C to C[I, K_X]

Each of the three takes at least the bytes that a device needs and does not hold, at the rate of the fastest move.
Partial sums take more: of n that are added and then held by c devices, n-1 and c-1 times the array are sent in all.
Reshards reach these bounds most often, so that few local products are worth a search of their paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardc.cost.model import picoseconds
from shardc.ir.exchange import needed
from shardc.ir.program import Product, Program, Statement, Use
from shardc.ir.sharding import Sharding
from shardc.planner.nodes import Planner
from shardc.planner.objective import Objective
from shardc.planner.tables import Multiplied, Table
from shardc.planner.work import Work
from shardc.rules.products import LocalProduct, local_products

_NONE: frozenset[str] = frozenset()


class NothingCheaper(Exception):
    """No plan of the product costs less than the limit."""


def is_bounded(program: Program) -> bool:
    """Whether a program is one product of two arrays, and says how they and the result lie, none unreduced."""
    statement, *others = program.statements
    given = {array.name: array.pattern.exact for array in program.inputs}
    match statement.expr, statement.pattern.exact:
        case Product(operands=(Use() as left, Use() as right), local=False), Sharding(unreduced=partial):
            lie = [given[use.name] for use in (left, right) if use.name in given]
            known = len(lie) == 2 and all(sharding is not None and not sharding.unreduced for sharding in lie)
            return known and not partial and not others and left.name != right.name
        case _:
            return False


def cheapest_product(planner: Planner, statement: Statement, limit: int) -> tuple[Table, int]:
    """The table of the cheapest local product alone, and the sharding of its result; see `is_bounded`.

    `limit` is of what the objective counts, picoseconds or bytes. NothingCheaper if no plan is below it.
    """
    expr, wanted, first = statement.expr, statement.pattern.exact, planner.objective.first
    assert isinstance(expr, Product) and wanted is not None
    tables = tuple(planner.table(operand) for operand in expr.operands)
    floors = _Floors(planner, expr, tables, wanted)
    goal, best = planner.search(expr.dims, expr.dtype).space.number(wanted), None
    for floor, way in sorted(floors.every(), key=lambda found: found[0]):
        if floor >= limit:
            break
        made = _table(planner, expr, tables, way, floors.local(way))
        if made is None or first(min(made.seeds.values())) + floors.after(way) >= limit:
            continue
        total = made.paths(goal).price.get(goal)
        if total is not None and first(total) < limit:
            limit, best = first(total), made
    if best is None:
        raise NothingCheaper
    return best, goal


def _table(planner: Planner, expr: Product, tables: tuple[Table, ...], way: LocalProduct, local: int) -> Table | None:
    """One local product, with the cheapest reshards of its operands."""
    search = planner.search(expr.dims, expr.dtype)
    seed, cost = search.space.number(way.result), planner.objective.price(local, 0)
    at = tuple(table.search.space.number(lies) for table, lies in zip(tables, way.operands, strict=True))
    if not search.divides(seed):
        return None
    for table, number in zip(tables, at, strict=True):
        found = table.paths(number).price.get(number) if table.search.divides(number) else None
        if found is None:
            return None
        cost += found
    return Table(expr, search, {seed: cost}, {seed: Multiplied(tables, at)})


class _Floors:
    """What each local product of a statement costs at least."""

    def __init__(self, planner: Planner, expr: Product, tables: tuple[Table, ...], wanted: Sharding) -> None:
        self._planner = planner
        self._expr = expr
        self._work = Work.of(planner.program, expr)
        self._held = [table.sharding(number) for table in tables for number in table.seeds]
        self._wanted = wanted
        arrays = (*expr.operands, expr)
        self._sizes = [math.prod(planner.program.shape(array.dims)) * array.dtype.bytes for array in arrays]
        self._known: dict[tuple[int, Sharding, Sharding], int] = {}

    def every(self) -> Iterator[tuple[int, LocalProduct]]:
        below = tuple(operand.dims for operand in self._expr.operands)
        for way in local_products(below, self._expr.dims, self._planner.pool, (_NONE, _NONE)):
            ends = zip(self._sizes, self._held, way.operands, strict=False)
            before = sum(self._reshard(size, old, new) for size, old, new in ends)
            by_time = self._planner.objective is Objective.TIME
            yield before + self.after(way) + (self.local(way) if by_time else 0), way

    def after(self, way: LocalProduct) -> int:
        return self._reshard(self._sizes[-1], way.result, self._wanted)

    def local(self, way: LocalProduct) -> int:
        """The picoseconds of the product itself."""
        mesh, lie = self._planner.mesh, (*way.operands, way.result)
        moved = sum(size // mesh.product(sharding.sharded) for size, sharding in zip(self._sizes, lie, strict=True))
        flops = self._work.flops(way.operands, mesh)
        return picoseconds(self._planner.model.local_s(flops, moved, self._work.dtype))

    def _reshard(self, size: int, before: Sharding, after: Sharding) -> int:
        key = size, before, after
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = reshard_floor(self._planner, size, before, after)
        return found


def reshard_floor(planner: Planner, size: int, before: Sharding, after: Sharding) -> int:
    """What bringing an array of so many bytes from one sharding to another costs at least, as the objective counts."""
    mesh = planner.mesh
    block, kept = needed(before, after, mesh)
    least = size // block - (size // kept if kept else 0)
    partial = mesh.product(tuple(before.unreduced))
    if partial > 1:
        copies = mesh.devices // block
        least = max(least, size * (partial + copies - 2) // mesh.devices)
    if planner.objective is Objective.BYTES or not least:
        return least
    return planner.model.fastest(planner.pool).time_ps(least)
