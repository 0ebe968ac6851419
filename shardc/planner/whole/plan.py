"""The plan of a program whose free shardings are chosen together."""

from __future__ import annotations

from shardc.cost.model import CostModel, picoseconds
from shardc.errors import ShardcError
from shardc.ir.collectives import AllReduce
from shardc.ir.program import Expr, Product, Program, operands, straight
from shardc.planner.meshes.idle import axes_to_search
from shardc.planner.options import Options
from shardc.planner.planned import PlannedProgram, Planning
from shardc.planner.problem import Problem
from shardc.planner.products.work import Work
from shardc.planner.whole.choices import computed
from shardc.planner.whole.eliminate import Solved, solve
from shardc.planner.whole.factor_graph import FactorGraph, TooWide
from shardc.planner.whole.prices import Scale
from shardc.planner.whole.realise import as_written, exact

MOST_OPERATIONS = 400


def plan_whole(program: Program, model: CostModel, planning: Planning) -> PlannedProgram | None:
    """The plan, or None where the program is too much for tables."""
    if computed(program) > MOST_OPERATIONS:
        return None
    pool, _ = axes_to_search(program, with_idle=True)
    problem = Problem(program, model, planning.objective, pool)
    try:
        graph, solved = solved_graph(problem)
    except (TooWide, KeyError, ShardcError):
        return None
    asked = exact(program, graph.given, graph.lines, solved.states)
    found = planning.attempt(asked.program, model, Options(idle=False))
    return None if found is None else as_written(program, found, asked, planning.objective)


def solved_graph(problem: Problem) -> tuple[FactorGraph, Solved]:
    scale = _scale(problem)
    if scale is None:
        raise TooWide
    graph = FactorGraph.of(problem, scale)
    return graph, solve(graph.sizes, graph.factors)


def _scale(problem: Problem) -> Scale | None:
    """Room for a plan that does everything everywhere, and moves every array whole, there and back, at each use."""
    program, model = problem.program, problem.model
    everywhere = AllReduce(tuple(axis for axis in program.mesh.names if program.mesh.size(axis) > 1))
    time = wire = 0
    for statement in straight(program):
        waiting: list[Expr] = [statement.expr]
        while waiting:
            expr = waiting.pop()
            waiting += operands(expr)
            size = _bytes(program, expr)
            wire += 4 * size
            time += 4 * (model.rate(everywhere).time_ps(size) if everywhere.axes else 0)
            if isinstance(expr, Product):
                work = Work.of(program, expr)
                moved = size + sum(_bytes(program, operand) for operand in expr.operands)
                time += picoseconds(model.local_s(work.total, moved, work.dtype))
    return Scale.of(problem.objective, time + 1, wire + 1)


def _bytes(program: Program, expr: Expr) -> int:
    size = expr.dtype.bytes
    for extent in program.shape(expr.dims):
        size *= extent
    return size
