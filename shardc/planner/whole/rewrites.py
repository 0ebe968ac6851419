"""The same meaning in other products: chains in each order, across the statements that a program is written in.

    T = A[I, J] · B[J, K];  C[I, L] = T · D[K, L]        T is used once and lies as the planner likes,
    C[I, L] = A · (B · D)                                so that B · D may be multiplied first, and T never made

A statement that only binds what one later product uses is told as one with nothing to do, if another order is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from shardc.ir.chains import chain_of, orders
from shardc.ir.program import Expr, Named, Product, Program, Use, operands, straight, uses
from shardc.planner.statement.orders import MAX_ORDERS
from shardc.planner.whole.arrays import is_free


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A program, and of each of its statements the one as written."""

    program: Program
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, program: Program) -> Rewritten:
        return cls(program, tuple(range(len(program.statements))))


def in_other_orders(found: Rewritten, number: int) -> Iterator[Rewritten]:
    """With a chain of one statement in each order; the products that it alone uses are made in it."""
    statements = straight(found.program)
    made = _inlinable(found.program, number)
    expr = with_arrays(statements[number].expr, made)
    widest = max(map(_width, (statement.expr for statement in statements)))
    for product in _chains(expr):
        for other in islice(orders(chain_of(product)), MAX_ORDERS):
            if (made or other != product) and _width(other) <= widest:
                yield _with(found, number, _replaced(expr, product, other), set(made))


def _width(expr: Expr) -> int:
    """The most dims that meet in one product: of an order in which more meet than as written, no table is made."""
    meeting = len({dim for operand in operands(expr) for dim in operand.dims}) if isinstance(expr, Product) else 0
    return max([meeting, *map(_width, operands(expr))])


def _with(found: Rewritten, number: int, expr: Expr, gone: set[str]) -> Rewritten:
    """With another expression of one statement, and without some statements."""
    program = found.program
    changed = (replace(made, expr=expr) if at == number else made for at, made in enumerate(straight(program)))
    kept = [(made, at) for made, at in zip(changed, found.numbers, strict=True) if made.name not in gone]
    statements, numbers = zip(*kept, strict=True)
    return Rewritten(replace(program, statements=statements), numbers)


def _replaced(expr: Expr, old: Expr, new: Expr) -> Expr:
    if expr is old:
        return new
    match expr:
        case Use():
            return expr
        case Named(operand=operand):
            return replace(expr, operand=_replaced(operand, old, new))
        case _:
            return replace(expr, operands=tuple(_replaced(operand, old, new) for operand in expr.operands))


def _inlinable(program: Program, number: int) -> dict[str, Product]:
    """The products that this statement alone uses, once, and that lie as the planner likes."""
    counts = Counter(use.name for statement in straight(program) for use in uses(statement.expr))
    bound = Counter(statement.name for statement in straight(program))
    inputs = {array.name for array in program.inputs}
    outputs = {program.results[at].name for at in program.outputs}
    found: dict[str, Product] = {}
    wanted = [straight(program)[number].expr]
    for statement in reversed(straight(program)[:number]):
        name, expr = statement.name, statement.expr
        once = counts[name] == 1 and bound[name] == 1 and name not in inputs and name not in outputs
        if not once or not is_free(statement.pattern) or not isinstance(expr, Product) or expr.local:
            continue
        if any(_asks_nothing(use, statement.dims) for each in wanted for use in uses(each) if use.name == name):
            found[name] = expr
            wanted.append(expr)
    return found


def _asks_nothing(use: Use, dims: tuple[str, ...]) -> bool:
    return use.dims == dims and (use.pattern is None or is_free(use.pattern))


def with_arrays(expr: Expr, made: Mapping[str, Expr]) -> Expr:
    """An expression with others in the place of some arrays, and in those others as well."""
    match expr:
        case Use(name=name):
            return with_arrays(made[name], made) if name in made else expr
        case Named(operand=operand):
            return replace(expr, operand=with_arrays(operand, made))
        case _:
            return replace(expr, operands=tuple(with_arrays(operand, made) for operand in expr.operands))


def _chains(expr: Expr) -> Iterator[Product]:
    """The products of three operands or more, each with all that it multiplies."""
    if isinstance(expr, Product) and len(expr.operands) == 2:
        chain = chain_of(expr)
        if len(chain.operands) > 2:
            yield expr
        for operand in chain.operands:
            yield from _chains(operand)
    else:
        for operand in operands(expr):
            yield from _chains(operand)
