"""How far from the cheapest plan a statement may be whose search ended with its budget."""

from __future__ import annotations

from shardc.cost.rate import picoseconds
from shardc.ir.chains import Chain, chain_of
from shardc.ir.expressions import Expr, Product, Use, operands
from shardc.ir.program import Statement
from shardc.planner.paths.tables import Table
from shardc.planner.problem import Problem
from shardc.planner.products.ways import Work


def bound_of(problem: Problem, statement: Statement, own: Table) -> int:
    """What every plan of a statement costs at least: its products shared by all devices, or the bytes to come.

    `own` is the table of its expression.
    """
    expr, exact = statement.expr, statement.pattern.exact
    if isinstance(expr, Use) and exact is not None:
        return own.bound(own.search.graph.number(exact))
    return problem.objective.price(_in_best_order(problem, expr), 0, steps=0)


def arithmetic(problem: Problem, expr: Expr) -> int:
    """Picoseconds of an expression's products at least, in the order as written."""
    below = sum(arithmetic(problem, operand) for operand in operands(expr))
    return below + alone(problem, expr) if isinstance(expr, Product) else below


def alone(problem: Problem, product: Product) -> int:
    """Of one product, shared by all devices."""
    work, devices = Work.of(problem.program, product), problem.mesh.product(problem.pool)
    return picoseconds(problem.model.alone.seconds(work.total // devices, 0, 0, work.dtype))


def _in_best_order(problem: Problem, expr: Expr) -> int:
    """The same in the order that takes the bound."""
    if isinstance(expr, Product) and len(expr.operands) > 1:
        return _of_chain(problem, chain_of(expr))
    return sum(_in_best_order(problem, operand) for operand in operands(expr))


def _of_chain(problem: Problem, chain: Chain) -> int:
    bound = {1 << place: _in_best_order(problem, operand) for place, operand in enumerate(chain.operands)}
    made = {1 << place: operand for place, operand in enumerate(chain.operands)}
    for pair in chain.pairs():
        if pair.left not in bound or pair.right not in bound:
            continue
        product = chain.multiply(pair, made[pair.left], made[pair.right])
        total = bound[pair.left] + bound[pair.right] + alone(problem, product)
        made.setdefault(pair.whole, product)
        bound[pair.whole] = min(total, bound.get(pair.whole, total))
    return bound[chain.whole]
