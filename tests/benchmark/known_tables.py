"""What plans are chosen from, of programs in `best_known.json`: `tests/golden/known_tables.json`.

    python tests/benchmark/known_tables.py             # of which programs something differs from the table now
    python tests/benchmark/known_tables.py --write     # the same, and the table is written

Of each program, with a hash: the tables of its statements, every price in them, their first strategies; routes and
bounds between drawn shardings; the shardings that are looked at, the prices between the nodes of the whole program, and
what is left of them where they are pruned; which steps of its plan may go in chunks, or as one move; what it holds at
least. A plan has the cheapest of all that, so what is never the cheapest need not be seen there.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from asked import kept, told
from cache_keys import forget
from known_rules import sharding_of, spelled

import shardc
from shardc.errors import ShardcError
from shardc.interface.hardware import Hardware
from shardc.ir.plan import Schedule
from shardc.ir.program import Statement
from shardc.ir.sharding import Array
from shardc.planner.bounds.held import least_held, least_peak
from shardc.planner.options import Method, Objective, Options
from shardc.planner.paths.search import Search
from shardc.planner.problem import Environment, Problem
from shardc.planner.program.chunkable import groups, ordered
from shardc.planner.program.directly import chains
from shardc.planner.statement.strategies import candidates, root_table
from shardc.planner.whole.arrays import every_line, use_counts
from shardc.planner.whole.digits import DigitWays
from shardc.planner.whole.eliminate import Factor
from shardc.planner.whole.factor_graph import FactorGraph
from shardc.planner.whole.nodes import Known, TooWide
from shardc.planner.whole.plan import _scale
from shardc.planner.whole.prune import prune, solve_pruned
from shardc.planner.whole.spaces import spaces_of

GOLDEN = Path(__file__).parents[1] / "golden"
TABLE = GOLDEN / "known_tables.json"
MOST_CALLS = 100_000  # of a plan as it is counted: the others take longer
STRATEGIES, PAIRS, MOST = 12, 24, 24  # of a statement; of shardings; of shardings whose prices are told
Said = Iterator[Any]


def programs() -> dict[str, dict[str, Any]]:
    """By name and place."""
    every = json.loads((GOLDEN / "best_known.json").read_text("utf-8"))
    return {f"{case['name']} at {place}": case for place, case in enumerate(every) if _is_quick(case)}


def _is_quick(case: dict[str, Any]) -> bool:
    planned = "refused" not in case["found"] and not {"memory", "share", "dear", "front"} & set(case["options"])
    return planned and bool(case["options"].get("dims")) and case["found"]["work"]["calls"] < MOST_CALLS


def said(case: dict[str, Any]) -> list[str]:
    """Of each part a hash."""
    forget()
    options = {name: value for name, value in case["options"].items() if value is not None}
    plan = shardc.plan(case["text"], **options)
    program = (plan._found.whole or plan.schedule).program  # with all sizes
    model = Hardware().model(program)
    problem = Problem(program, model, Objective(options.get("objective", "time")), program.mesh.names)
    parts = {
        "statements": of_statements(problem),
        "pairs": between(problem, random.Random(case["text"])),
        "whole": of_all(problem),
        "plan": of_plan(plan.schedule),
    }
    return [f"{name} {_hash(lines)}" for name, lines in parts.items()]


def _hash(lines: Said) -> str:
    return hashlib.sha256("\n".join(map(spelled, lines)).encode()).hexdigest()[:12]


def of_statements(problem: Problem) -> Said:
    """Of those that read inputs alone: as these lie, and as they may."""
    program, inputs = problem.program, {array.name for array in problem.program.inputs}
    there = Environment()
    for array in program.inputs:
        if (lies := array.pattern.exact) is not None:
            there = there.with_value(Array(array.name, array.dims, program.shape(array.dims), lies, array.dtype))
    for each in (each for each in program.statements if isinstance(each, Statement)):
        for other in (problem, problem.given(there)):
            try:
                yield from _of_table(other, each)
            except (ShardcError, StopIteration, RuntimeError) as error:
                yield type(error).__name__, each.name in inputs


def _of_table(problem: Problem, statement: Statement) -> Said:
    root = root_table(problem, statement)
    graph = root.search.graph
    yield root.seeds
    for number in islice(range(len(graph.shardings)), MOST):
        yield number, root.bound(number), root.price(number, None)
    for found in islice(candidates(problem, statement), STRATEGIES):
        table = found.root
        seed = table.start(found.goal)[1]
        yield found.goal, table.price(found.goal, None), table.seeds, table.cases(found.goal), seed


def between(problem: Problem, draw: random.Random) -> Said:
    """From one sharding of an array to another."""
    program = problem.program
    for array in program.inputs[:2]:
        shape = program.shape(array.dims)
        for method in (Method.SEARCH, Method.ROUTES_IN_DIGITS):
            options = Options(method=method)
            search = Search(
                problem.graph(len(shape)), shape, array.dtype, problem.model, problem.objective, options, problem.meter
            )
            for _ in range(PAIRS):
                lie = [sharding_of(draw, program.mesh.names, len(shape), sums) for sums in (0.2, 0.1)]
                one, other = map(search.graph.number, lie)
                if search.divides(one) and search.divides(other):
                    told = search.bound(one, other), search.needed(one, other), search.route(one, other)
                    paths = search.paths({one: 3}, other)
                    yield told, search.closed(one, other), paths.price, paths.last.get(other)


def of_all(problem: Problem) -> Said:
    """The prices between the nodes of the whole program, and their best states."""
    program = problem.program
    spaces, scale = spaces_of(program, program.mesh.names), _scale(problem)
    yield spaces
    yield dict(use_counts(program))
    if spaces is None or scale is None:
        return
    try:
        graph = FactorGraph.of(problem, scale, spaces, Known())
        digits = FactorGraph.of(problem, scale, spaces, Known(), DigitWays(scale))
    except (TooWide, KeyError, ShardcError) as error:
        yield type(error).__name__
        return
    yield digits.nodes.sizes, [_table(factor) for factor in digits.nodes.factors]
    factors, sizes = graph.nodes.factors, graph.nodes.sizes
    yield sizes, [_table(factor) for factor in factors]
    yield [(line.number, line.statement.name, line.copy_of, line.is_open) for line in every_line(graph.lines)]
    left = prune(sizes, factors)
    if left is not None:
        yield [states.tolist() for states in left.kept], left.best, left.price, f"{left.bound:.6g}"
    best = solve_pruned(sizes, factors)
    yield best
    yield solve_pruned(sizes, factors, best.price), solve_pruned(sizes, factors, best.price - 1).price


def _table(factor: Factor) -> tuple[Any, ...]:
    digest = hashlib.sha256(np.ascontiguousarray(factor.table).tobytes()).hexdigest()
    return factor.nodes, factor.table.shape, digest


def of_plan(schedule: Schedule) -> Said:
    yield least_held(schedule.program), least_peak(schedule.program)
    for sums in (False, True):
        for group in groups(schedule.block, schedule.mesh, sums=sums):
            yield (
                group.steps,
                group.made,
                group.sums,
                group.size,
                group.is_sharded,
                group.places,
                ordered(group) is None,
            )
    yield [[step.result for step in chain] for chain in chains(schedule)]


def now() -> dict[str, list[str]]:
    return {name: said(case) for name, case in programs().items()}


def known() -> dict[str, list[str]]:
    return kept(TABLE)


if __name__ == "__main__":
    told(__doc__, TABLE, now)
