"""The orders of a statement's products: the one that a plan takes, and the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product

from shardc.ir.chains import chain_of, is_chain, orders
from shardc.ir.expressions import Call, Expr, Named, Product, operands
from shardc.ir.program import Program, every_statement
from shardc.ir.sharding import ShardingNumber
from shardc.planner.paths.tables import Applied, Moved, Multiplied, Table

MAX_ORDERS = 16


def taken(table: Table, number: ShardingNumber) -> Expr:
    """The expression of a table, its products in the order in which this sharding is made."""
    expr = table.expr
    seed, _ = table.paths(number).moves_to(number)
    match table.origins[seed]:
        case Multiplied(tables, at) | Applied(tables, at):
            assert isinstance(expr, Product | Call)
            return replace(expr, operands=tuple(taken(t, n) for t, n in zip(tables, at, strict=True)))
        case Moved(below, at):
            assert isinstance(expr, Named)
            return replace(expr, operand=taken(below, at))
        case _:
            return expr


def all_orders(expr: Expr) -> Iterator[Expr]:
    """An expression with its products in each order, as written first; at most MAX_ORDERS of each part of it."""
    if isinstance(expr, Product) and len(expr.operands) > 1:
        chain = chain_of(expr)
        for below in _each(chain.operands):
            yield from orders(chain, {1 << place: operand for place, operand in enumerate(below)})
        return
    for below in _each(operands(expr)):
        yield replace(expr, operand=below[0]) if isinstance(expr, Named) else replace_operands(expr, below)


def replace_operands(expr: Expr, below: tuple[Expr, ...]) -> Expr:
    return replace(expr, operands=below) if isinstance(expr, Product | Call) else expr


def _each(exprs: tuple[Expr, ...]) -> Iterator[tuple[Expr, ...]]:
    return product(*(list(islice(all_orders(expr), MAX_ORDERS)) for expr in exprs))


def order_notes(program: Program) -> tuple[str, ...]:
    """Of each statement with a chain that is too long to search, in which orders its arrays are multiplied."""
    longest = {statement.name: _longest(statement.expr) for statement in every_statement(program)}
    return tuple(
        f"`{name}`: of {count} arrays there are too many orders to try all: as written, or with pairs turned"
        for name, count in longest.items()
        if count
    )


def _longest(expr: Expr) -> int:
    """How many operands the longest chain has that is too long to search; 0 if none is."""
    longest, waiting = 0, [expr]
    while waiting:
        found = waiting.pop()
        if is_chain(found):
            chain = chain_of(found)
            longest = max(longest, len(chain.operands) if chain.is_long else 0)
            waiting += chain.operands
        else:
            waiting += operands(found)
    return longest
