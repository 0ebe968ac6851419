"""The root of a statement's tree: which shardings its result may have, and which is cheapest."""

from __future__ import annotations

from shardc.errors import ShardcError
from shardc.ir.expressions import Named, Product
from shardc.ir.program import Statement
from shardc.ir.sharding import spell
from shardc.planner.paths.few import fitted
from shardc.planner.paths.tables import Table


def fixed_if_asked(table: Table) -> Table:
    expr = table.expr
    if isinstance(expr, Named) or (isinstance(expr, Product) and expr.local):
        table.fixed = True
    return table


def cheapest(root: Table, statement: Statement, limit: int | None = None) -> int:
    """The number of the cheapest sharding that the statement's result may have; SHC220 if there is none.

    None as well where the sharding is given, and costs more than the limit.
    """
    exact = statement.pattern.exact
    graph = root.search.graph
    if exact is not None:
        goal = graph.number(exact)
        if root.search.divides(goal) and root.price(goal, limit) is not None:
            return goal
        raise unreachable(root, statement)
    prices = root.paths().price
    fitting = [number for number in prices if statement.pattern.matches(graph.shardings[number])]
    if not root.search.options.searches and not root.fixed and not fitting:
        near = (fitted(statement.pattern, root.sharding(number)) for number in prices)
        asked = dict.fromkeys(number for number in map(graph.number, near) if root.search.divides(number))
        prices = {number: price for number in asked if (price := root.price(number, None)) is not None}
        fitting = [*prices]
    if not fitting:
        raise unreachable(root, statement)
    return min(fitting, key=prices.__getitem__)


def unreachable(root: Table, statement: Statement) -> ShardcError:
    wanted = statement.pattern.spell(statement.dims)
    left = sorted(statement.name + spell(statement.dims, root.sharding(number)) for number in root.seeds)
    if isinstance(statement.expr, Named):
        return ShardcError(
            "SHC219",
            f"`{statement.expr.collective}` does not give `{statement.name}{wanted}`",
            span=statement.span,
            help="it gives " + " or ".join(f"`{text}`" for text in left[:4]),
        )
    if isinstance(statement.expr, Product) and statement.expr.local:
        return ShardcError(
            "SHC211",
            f"a local product does not leave `{statement.name}{wanted}`",
            span=statement.span,
            help="it leaves " + " or ".join(f"`{text}`" for text in left[:4]),
        )
    missing = statement.pattern.unreduced
    reason = " over ".join(["nothing makes the value unreduced", ", ".join(sorted(missing))]) if missing else ""
    return ShardcError(
        "SHC220",
        f"no sequence of moves leads to `{statement.name}{wanted}`",
        span=statement.span,
        note=reason,
        help="drop the `{U_…}`, or contract a dim that this axis shards" if missing else "choose another sharding",
    )
