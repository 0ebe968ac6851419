"""Every legal strategy of a statement, priced.

A strategy says in which shardings each product takes its operands: gather A; or slice B and reduce; or
exchange A and gather the result. Its reshards are the cheapest. A chain of products is taken in the plan's order;
of each other order the cheapest strategy is listed. Strategies move only the axes that the
statement writes, as one would on paper; the search for the plan itself runs over all axes of the mesh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from shardc.cost.rate import PICO, picoseconds
from shardc.ir.expressions import Call
from shardc.ir.operations import Kind
from shardc.ir.plan import StatementNumber, Step, StepCost, Strategy
from shardc.ir.program import Statement
from shardc.ir.sharding import Array
from shardc.planner.budget import STEP, STRATEGY, Spent
from shardc.planner.problem import Problem
from shardc.planner.statement.build import Builder, Candidate, costs_of


def strategies(
    problem: Problem,
    statement: Statement,
    number: StatementNumber,
    values: tuple[Array, ...],
    taken: set[str],
    found: Iterator[Candidate],
) -> Iterator[Strategy]:
    """Every candidate with its steps, the cheapest first, the plan's own before them; as many as the budget allows.

    Those that scatter over several dims at once follow once more as the book writes them, one dim after another.
    """
    if isinstance(statement.expr, Call) and not statement.expr.operands:
        found = islice(found, 1)  # made where it is wanted: each other moves what could have been made there
    listed: set[object] = set()
    apart: list[Strategy] = []
    for candidate in _within_budget(found):
        for joint in (True, False):
            builder = Builder(
                problem,
                list(values),
                [],
                number,
                statement.name,
                set(taken),
                in_digits=candidate.in_digits,
                joint=joint,
            )
            try:
                builder.build_result(candidate.root, candidate.goal)
            except Spent:  # of moves that no search knew before
                return
            strategy = _strategy(builder)
            problem.meter.pay(STRATEGY + STEP * len(strategy.steps))
            if (signature := _signature(strategy)) not in listed:
                listed.add(signature)
                if joint:
                    yield strategy
                else:
                    apart.append(strategy)
            if not any(step.op.facts.kind is Kind.SCATTER and len(step.op.on) > 1 for step in strategy.steps):
                break
    yield from apart


def _within_budget(found: Iterator[Candidate]) -> Iterator[Candidate]:
    """All that are found before the budget ends."""
    while True:
        try:
            candidate = next(found, None)
        except Spent:
            return
        if candidate is None:
            return
        yield candidate


def _strategy(builder: Builder) -> Strategy:
    steps = [_told(step, cost) for step, cost in zip(builder.steps, costs_of(builder.steps), strict=True)]
    wire = sum(step.cost.wire_bytes for step in steps)
    time = sum(picoseconds(step.cost.time_s) for step in steps) / PICO  # as the search adds it, whatever the order
    return Strategy(tuple(builder.values), tuple(steps), wire, time)


def _told(step: Step, cost: StepCost) -> Step:
    """A step at a cost that others of its strategy tell, which remembers its own."""
    if cost is step.cost:
        return step
    return replace(step, cost=replace(cost, as_written=step.cost.as_written or step.cost))


def _signature(strategy: Strategy) -> object:
    """Two strategies with the same steps on the same shardings are one."""
    return tuple(
        (step.name, *(str(strategy.values[v]) for v in step.operands), str(strategy.values[step.result]))
        for step in strategy.steps
    )
