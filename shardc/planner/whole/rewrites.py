"""The same meaning in other products: chains in each order, across the statements that a program is written in.

    T = A[I, J] · B[J, K];  C[I, L] = T · D[K, L]        T is used once and lies as the planner likes,
    C[I, L] = A · (B · D)                                so that B · D may be multiplied first, and T never made

A statement that only binds what one later product uses is told as one with nothing to do, if another order is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from shardc.ir.chains import Chain, chain_of, orders, summed, turned
from shardc.ir.expressions import Expr, Named, Product, Use, operands, parts_of, uses
from shardc.ir.plan import StatementNumber
from shardc.ir.program import For, Program, Statement, bindings_of, read_by, same_array
from shardc.planner.statement.orders import MAX_ORDERS
from shardc.planner.whole.arrays import is_free


@dataclass(frozen=True, slots=True)
class Told:
    """The number of the statement as written by which another is told; of a loop also those of its body."""

    number: StatementNumber
    inside: tuple[Told, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A program, and of each of its statements the one as written."""

    program: Program
    told: tuple[Told, ...]

    @classmethod
    def of(cls, program: Program) -> Rewritten:
        """Without statements that lead to no output: they are not done, and have no price. A product that only a sum
        uses does that sum."""
        needed, told = _needed(program), as_they_are(program.statements)
        live = replace(program, statements=tuple(program.statements[number] for number in needed))
        found = cls(live, tuple(told[number] for number in needed))
        for path in every_path(program.statements):
            found = _summed(found, path)
        return found

    def at(self, path: StatementPath) -> int | None:
        """The place of a statement as written; None if it is made in another."""
        return next((at for at, told in enumerate(self.told) if told.number == path[0]), None)

    def within(self, number: int) -> Rewritten:
        """The body of a loop."""
        loop = self.program.statements[number]
        assert isinstance(loop, For)
        return Rewritten(self.program.inside(loop), self.told[number].inside)

    def with_body(self, number: int, body: Rewritten) -> Rewritten:
        """With another body of a loop."""
        statements, told = list(self.program.statements), list(self.told)
        loop = statements[number]
        assert isinstance(loop, For)
        statements[number] = replace(loop, body=body.program.statements)
        told[number] = replace(told[number], inside=body.told)
        return Rewritten(replace(self.program, statements=tuple(statements)), tuple(told))


def _needed(program: Program) -> list[int]:
    """The numbers of the statements that lead to an output, and of all that read an input that these do not."""
    ends = {number for number, _ in program.leaving}
    read = {name for number in _leading(program, ends) for name in read_by(program.statements[number])}
    placed = {array.name for array in program.inputs} - read  # by these alone
    others = {number for number, each in enumerate(program.statements) if not placed.isdisjoint(read_by(each))}
    return sorted(_leading(program, ends | others))


def _leading(program: Program, to: Collection[int]) -> set[int]:
    """These statements, and those that lead to them."""
    found, wanted = set[int](), set[str]()
    for number, each in reversed([*enumerate(program.statements)]):
        bound = {made.name for made in bindings_of(each)}
        if number in to or not wanted.isdisjoint(bound):
            found.add(number)
            wanted = wanted - bound | set(read_by(each))
    return found


def as_they_are(statements: tuple[Statement | For, ...]) -> tuple[Told, ...]:
    return tuple(
        Told(StatementNumber(number), as_they_are(each.body) if isinstance(each, For) else ())
        for number, each in enumerate(statements)
    )


StatementPath: TypeAlias = tuple[
    int, ...
]  # to a statement as written: its number, in a loop that of the loop before it


def every_path(statements: tuple[Statement | For, ...], before: StatementPath = ()) -> Iterator[StatementPath]:
    """To each statement that binds a name, those in loops too, the last one first: it holds what it alone uses."""
    for number, each in reversed([*enumerate(statements)]):
        if isinstance(each, For):
            yield from every_path(each.body, (*before, number))
        else:
            yield (*before, number)


def joined(program: Program, with_short: bool) -> Rewritten | None:
    """Each product made in the statement that alone uses it, if any is in another product there: chains in one.

    Unless short ones are asked for as well, only in chains of so many orders that `in_other_orders` leaves some out.
    """
    found = Rewritten.of(program)
    for path in every_path(program.statements):
        found = _joined(found, path, with_short)
    return found if found.program != program else None


def _joined(found: Rewritten, path: StatementPath, with_short: bool) -> Rewritten:
    at = found.at(path)
    if at is None:
        return found
    if len(path) > 1:
        return found.with_body(at, _joined(found.within(at), path[1:], with_short))
    expr = _straight(found.program.statements[at]).expr
    made = _inlinable(found.program, at)
    whole = with_arrays(expr, made)
    is_worth_it = any(with_short or _few_orders(chain_of(each)) is None for each in _chains(whole))
    return _with(found, at, whole, set(made)) if made and is_worth_it else found


def _summed(found: Rewritten, path: StatementPath) -> Rewritten:
    """With the sums of one statement done by the products that it alone uses: of `T = x ·_T dy; S = sum_B(T)` one."""
    at = found.at(path)
    if at is None:
        return found
    if len(path) > 1:
        return found.with_body(at, _summed(found.within(at), path[1:]))
    expr = _straight(found.program.statements[at]).expr
    sums = list(_sums_of_arrays(expr))
    made = _inlinable(found.program, at) if sums else {}
    for each, name in sums:
        whole = replace(each, operands=(made.get(name, each.operands[0]),))
        if (other := summed(whole)) is not whole:
            return _summed(_with(found, at, _replaced(expr, each, other), {name}), path)
    return found


def _sums_of_arrays(expr: Expr) -> Iterator[tuple[Product, str]]:
    """Each sum over dims of an array, and its name."""
    for found in parts_of(expr):
        match found:
            case Product(operands=(Use(name=name),)):
                yield found, name
            case _:
                pass


def in_other_orders(found: Rewritten, path: StatementPath) -> Iterator[Rewritten]:
    """With a chain of one statement in each order, a long one in those that turn one pair of products; the products
    that it alone uses are made in it."""
    at = found.at(path)
    if at is None:
        return
    if len(path) > 1:
        yield from (found.with_body(at, other) for other in in_other_orders(found.within(at), path[1:]))
        return
    statements = found.program.statements
    made = _inlinable(found.program, at)
    expr = with_arrays(_straight(statements[at]).expr, made)
    widest = max(_width(each.expr) for each in statements if isinstance(each, Statement))
    for product in _chains(expr):
        for other in _orders(chain_of(product)):
            if (made or other != product) and _width(other) <= widest:
                yield _with(found, at, _replaced(expr, product, other), set(made))


def _orders(chain: Chain) -> Iterator[Product]:
    """Each order, of a chain that has few; else as written, and what is one turn from it."""
    few = _few_orders(chain)
    return turned(chain) if few is None else iter(few)


def _few_orders(chain: Chain) -> list[Product] | None:
    """Every order; None of a chain that has many."""
    few = list(islice(orders(chain), MAX_ORDERS))
    return few if len(few) < MAX_ORDERS else None


def _straight(statement: Statement | For) -> Statement:
    assert isinstance(statement, Statement)
    return statement


def _width(expr: Expr) -> int:
    """The most dims that meet in one product: of an order in which more meet than as written, no table is made."""
    meeting = len({dim for operand in operands(expr) for dim in operand.dims}) if isinstance(expr, Product) else 0
    return max([meeting, *map(_width, operands(expr))])


def _with(found: Rewritten, at: int, expr: Expr, gone: set[str]) -> Rewritten:
    """With another expression of one statement, and without some statements."""
    program = found.program
    statements: list[Statement | For] = list(program.statements)
    statements[at] = replace(_straight(statements[at]), expr=expr)
    kept = [
        (made, told)
        for made, told in zip(statements, found.told, strict=True)
        if isinstance(made, For) or made.name not in gone
    ]
    made, told = zip(*kept, strict=True)
    return Rewritten(replace(program, statements=made), told)


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
    """The products that this statement alone uses, once, and that lie as the planner likes; but not `T = x · W` where x
    is bound to another array before T is used."""
    statements = program.statements
    counts = Counter(name for each in statements for name in read_by(each))
    bound = Counter(made.name for each in statements for made in bindings_of(each))
    inputs = {array.name for array in program.inputs}
    outputs = {program.results[at].name for at in program.outputs}
    found: dict[str, Product] = {}
    wanted = [_straight(statements[number]).expr]
    anew = set[str]()
    for statement in reversed(statements[:number]):
        anew |= bound_to_others(statement)
        if isinstance(statement, For) or not anew.isdisjoint(read_by(statement)):
            continue
        name, expr = statement.name, statement.expr
        once = counts[name] == 1 and bound[name] == 1 and name not in inputs and name not in outputs
        if not once or not is_free(statement.pattern) or not isinstance(expr, Product) or expr.local:
            continue
        if any(_asks_nothing(use, statement.dims) for each in wanted for use in uses(each) if use.name == name):
            found[name] = expr
            wanted.append(expr)
    return found


def bound_to_others(statement: Statement | For) -> set[str]:
    """The names that from here on are other arrays."""
    is_move = isinstance(statement, Statement) and same_array(statement)
    return set() if is_move else {made.name for made in bindings_of(statement)}


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
    """The products of three operands or more, each with all that it multiplies, and those inside it."""
    if isinstance(expr, Product) and len(expr.operands) == 2 and len(chain_of(expr).operands) > 2:
        yield expr
    for operand in operands(expr):
        yield from _chains(operand)
