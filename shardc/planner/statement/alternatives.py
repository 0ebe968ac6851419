"""Every legal strategy of a statement, priced.

A strategy says in which shardings each product takes its operands: gather A; or slice B and reduce; or
exchange A and gather the result. Its reshards are the cheapest. A chain of products is taken in the plan's order;
of each other order the cheapest strategy is listed. Strategies move only the axes that the
statement writes, as one would on paper; the search for the plan itself runs over all axes of the mesh.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from shardc.cost.model import PICO, picoseconds
from shardc.ir.collectives import JointScatter
from shardc.ir.plan import Strategy
from shardc.ir.program import Expr, Statement
from shardc.ir.sharding import Array, Axes
from shardc.planner.budget import STEP, STRATEGY, Spent
from shardc.planner.meshes.idle import mentioned
from shardc.planner.paths.tables import Table
from shardc.planner.statement.build import Builder
from shardc.planner.statement.nodes import Planner
from shardc.planner.statement.orders import MAX_ORDERS, all_orders, taken
from shardc.planner.statement.root import searched
from shardc.planner.statement.strategies import cheapest_first

MAX_STRATEGIES = 2048


def strategies(
    planner: Planner,
    statement: Statement,
    number: int,
    values: tuple[Array, ...],
    taken: set[str],
    own: tuple[Table, int] | None = None,
) -> Iterator[Strategy]:
    """Every strategy, the cheapest first; the plan's own is the first. At most MAX_STRATEGIES, the cheapest; and no
    more than the budget allows. `own` is the plan's, where that is known.

    Those that scatter over several dims at once follow once more as the book writes them, one dim after another.
    """
    seen: set[object] = set()
    apart: list[Strategy] = []
    for root, goal, digits in _within_budget(candidates(planner, statement, own)):
        for joint in (True, False):
            builder = Builder(planner, list(values), [], number, statement.name, set(taken), digits=digits, joint=joint)
            builder.build(root, goal, statement.name)
            strategy = _strategy(builder)
            planner.budget.pay(STRATEGY + STEP * len(strategy.steps))
            if (signature := _signature(strategy)) not in seen:
                seen.add(signature)
                if joint:
                    yield strategy
                else:
                    apart.append(strategy)
            if not any(isinstance(step.op, JointScatter) for step in strategy.steps):
                break
    yield from apart


def _within_budget(found: Iterator[tuple[Table, int, bool]]) -> Iterator[tuple[Table, int, bool]]:
    """All that are found before the budget ends."""
    try:
        yield from found
    except Spent:
        return


def candidates(
    planner: Planner, statement: Statement, own: tuple[Table, int] | None = None, over_others: bool = False
) -> Iterator[tuple[Table, int, bool]]:
    """The table and the sharding of its result, of each strategy: the plan's own, then all, the cheapest first.

    The plan's own may do its products in digits, as nobody would on paper; then it comes without them as well.
    With `over_others` those follow that nobody would list, but that may need less memory.
    """
    best, goal = own or searched(planner, statement)
    yield best, goal, True
    yield best, goal, False
    if planner.quick:
        return
    narrow = planner.over(mentioned(planner.program, statement) or planner.pool)
    order = taken(best, goal)
    others = (other for other in islice(all_orders(statement.expr), MAX_ORDERS) if other != order)
    found = cheapest_first(narrow, order, list(others), statement)
    for root, found_goal in islice(found, MAX_STRATEGIES):
        yield root, found_goal, False
    if over_others:
        yield from _others_over(planner, statement, order, best, known=narrow.pool)


def _others_over(
    planner: Planner, statement: Statement, order: Expr, best: Table, known: Axes
) -> Iterator[tuple[Table, int, bool]]:
    """Strategies over all axes of the planner, if those are not `known`; and a result left open, as it may lie."""
    if known != planner.pool:
        for root, goal in islice(cheapest_first(planner.over(planner.pool), order, [], statement), MAX_STRATEGIES):
            yield root, goal, False
    if statement.pattern.exact is None:
        prices, graph = best.paths().price, best.search.graph
        fitting = [number for number in prices if statement.pattern.matches(graph.shardings[number])]
        for goal in sorted(fitting, key=prices.__getitem__)[:MAX_STRATEGIES]:
            yield best, goal, False


def _strategy(builder: Builder) -> Strategy:
    steps = builder.steps
    wire = sum(step.cost.wire_bytes for step in steps)
    time = sum(picoseconds(step.cost.time_s) for step in steps) / PICO  # as the search adds it, whatever the order
    return Strategy(tuple(builder.values), tuple(steps), wire, time)


def _signature(strategy: Strategy) -> object:
    """Two strategies with the same steps on the same shardings are one."""
    return tuple(
        (step.name, *(str(strategy.values[v]) for v in step.operands), str(strategy.values[step.result]))
        for step in strategy.steps
    )
