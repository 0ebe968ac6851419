"""The root of a statement's tree: which shardings its result may have, and which is cheapest."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from shardc.errors import ShardcError
from shardc.ir.program import Named, Product, Program, Statement, uses
from shardc.ir.sharding import Axes, spell
from shardc.planner.nodes import Planner
from shardc.planner.tables import Table

Root: TypeAlias = Callable[[Planner, Statement], tuple[Table, int]]


def cheapest_root(planner: Planner, statement: Statement) -> tuple[Table, int]:
    """The table of a statement's expression, and the cheapest sharding that its result may have."""
    table = root_table(planner, statement)
    return table, cheapest(table, statement)


def root_table(planner: Planner, statement: Statement) -> Table:
    """The table of a statement's expression; one that the user fixed is not moved on."""
    table = planner.table(statement.expr)
    return fixed_if_asked(table)


def fixed_if_asked(table: Table) -> Table:
    expr = table.expr
    if isinstance(expr, Named) or (isinstance(expr, Product) and expr.local):
        table.fixed = True
    return table


def cheapest(root: Table, statement: Statement) -> int:
    """The number of the cheapest sharding that the statement's result may have; SHC220 if there is none."""
    exact = statement.pattern.exact
    around = root.search.space
    if exact is not None:
        goal = around.number(exact)
        if root.search.divides(goal) and goal in root.paths(goal).price:
            return goal
        raise unreachable(root, statement)
    prices = root.paths().price
    fitting = [number for number in prices if statement.pattern.matches(around.shardings[number])]
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


def mentioned(program: Program, statement: Statement | None = None) -> Axes:
    """The mesh axes that the program, or one statement, writes, in the order of the mesh."""
    chosen = program.statements if statement is None else (statement,)
    names: set[str] = set()
    for each in chosen:
        patterns = [each.pattern, *(use.pattern for use in uses(each.expr) if use.pattern is not None)]
        for pattern in patterns:
            names |= pattern.unreduced.union(*(axes or () for axes in pattern.dims))
    return program.mesh.ordered(names)
