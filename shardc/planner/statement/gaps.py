"""How far from the cheapest plan a statement may be whose search ended with its budget."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.cost.model import picoseconds
from shardc.ir.chains import Chain, chain_of
from shardc.ir.program import Expr, Product, Statement, Use, operands
from shardc.planner.products.work import Work
from shardc.planner.statement.nodes import Planner


@dataclass(frozen=True, slots=True)
class Gap:
    """A statement's name, its price and what no plan that the search may find is below: picoseconds, or bytes."""

    name: str
    price: int
    bound: int

    @property
    def ratio(self) -> float | None:
        """None where no bound is known."""
        if not self.bound:
            return None if self.price else 1.0
        return self.price / self.bound

    def __str__(self) -> str:
        if self.ratio is None:
            return f"`{self.name}`: the search ended with its budget; gap unknown, since no bound is proved"
        return f"`{self.name}`: the search ended with its budget; gap {self.ratio:.2f}, its price over the proved bound"


def bound_of(planner: Planner, statement: Statement) -> int:
    """What every plan of a statement costs at least: its products shared by all devices, or the bytes to come."""
    expr, exact = statement.expr, statement.pattern.exact
    if isinstance(expr, Use) and exact is not None:
        table = planner.table(expr)
        return table.bound(table.search.graph.number(exact))
    return planner.objective.price(_in_best_order(planner, expr), 0, steps=0)


def arithmetic(planner: Planner, expr: Expr) -> int:
    """Picoseconds of an expression's products at least, in the order as written."""
    below = sum(arithmetic(planner, operand) for operand in operands(expr))
    return below + alone(planner, expr) if isinstance(expr, Product) else below


def alone(planner: Planner, product: Product) -> int:
    """Of one product, shared by all devices."""
    work, devices = Work.of(planner.program, product), planner.mesh.product(planner.pool)
    return picoseconds(planner.model.local_s(work.total // devices, 0, work.dtype))


def _in_best_order(planner: Planner, expr: Expr) -> int:
    """The same in the order that takes the bound."""
    if isinstance(expr, Product) and len(expr.operands) > 1:
        return _of_chain(planner, chain_of(expr))
    return sum(_in_best_order(planner, operand) for operand in operands(expr))


def _of_chain(planner: Planner, chain: Chain) -> int:
    bound = {1 << place: _in_best_order(planner, operand) for place, operand in enumerate(chain.operands)}
    made = {1 << place: operand for place, operand in enumerate(chain.operands)}
    for pair in chain.pairs():
        if pair.left not in bound or pair.right not in bound:
            continue
        product = chain.multiply(pair, made[pair.left], made[pair.right])
        total = bound[pair.left] + bound[pair.right] + alone(planner, product)
        made.setdefault(pair.whole, product)
        bound[pair.whole] = min(total, bound.get(pair.whole, total))
    return bound[chain.whole]
