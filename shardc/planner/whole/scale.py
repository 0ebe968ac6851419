"""How large the prices of a program may be."""

from __future__ import annotations

from shardc.cost.rate import picoseconds
from shardc.ir.collectives import AllReduce
from shardc.ir.expressions import Expr, Product, operands
from shardc.ir.program import Program, repeated_statements
from shardc.planner.problem import Problem
from shardc.planner.products.ways import Work
from shardc.planner.whole.prices import Scale


def scale_of(problem: Problem) -> Scale | None:
    """Room for a plan that does everything everywhere, and moves every array whole, there and back, at each use."""
    program, model = problem.program, problem.model
    everywhere = AllReduce(tuple(axis for axis in program.mesh.names if program.mesh.size(axis) > 1))
    time = wire = 0
    for statement, times in repeated_statements(program):
        waiting: list[Expr] = [statement.expr]
        while waiting:
            expr = waiting.pop()
            waiting += operands(expr)
            size = _bytes(program, expr)
            wire += 4 * size * times
            time += 4 * (model.rate(everywhere).time_ps(size) if everywhere.axes else 0) * times
            time += picoseconds(12 * size * model.alone.copy_s_per_byte) * times
            if isinstance(expr, Product):
                work = Work.of(program, expr)
                read = [_bytes(program, operand) for operand in expr.operands]
                time += picoseconds(model.alone.product_s(work.amount(work.total, read, size))) * times
    return Scale.of(problem.objective, time + 1, wire + 1)


def _bytes(program: Program, expr: Expr) -> int:
    size = expr.dtype.bytes
    for extent in program.shape(expr.dims):
        size *= extent
    return size
