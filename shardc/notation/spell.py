"""Program → text. A program that was parsed has its statements' texts; one that was made gets them here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from shardc.ir.calls import arguments
from shardc.ir.dtypes import Kind
from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use, operands
from shardc.ir.functions import COMPARISONS, FUNCTIONS
from shardc.ir.program import Input, Program, Statement
from shardc.ir.scalars import Folded, Literal, Scalar, Size
from shardc.ir.sharding import spell_axes
from shardc.notation import tree
from shardc.notation.printer import print_expr, print_statement


def print_number(number: Scalar) -> str:
    """A number as it is written: `2`, `|D|`, `sqrt(|D|)`; one that is computed in brackets."""
    text = print_expr(_scalar(number))
    return text if isinstance(number, Literal | Size) else f"({text})"


def print_program(program: Program) -> str:
    """The canonical text, declarations first. Parsed again it gives an equal program."""
    return f"{spelled(program)}\n"


def spelled(program: Program) -> Program:
    """The program with a text for every statement that has none, as a program made by a derivation has."""
    if all(statement.text for statement in program.statements):
        return program
    known: set[str] = set()
    own = {array.name: array.dims for array in program.inputs}
    statements = []
    for statement in program.statements:
        assert isinstance(statement, Statement), "a loop has its text"
        text = statement.text or _text(statement, program, known, own)
        statements.append(replace(statement, text=text))
        known |= {use.name for use in _uses(statement.expr)} | {statement.name}
        own[statement.name] = statement.dims
    return replace(program, statements=tuple(statements))


def _text(statement: Statement, program: Program, known: set[str], own: dict[str, tuple[str, ...]]) -> str:
    speller = _Speller(program, set(known), own)
    expr = speller.expr(statement.expr, frozenset(statement.dims))
    summed = any(isinstance(part, Product) and part.dtype.kind is Kind.INT for part in _parts(statement.expr))
    typed = summed or _natural(statement.expr) != statement.dtype
    dtype = f": {statement.dtype}" if typed else ""
    result = f"{statement.name}{dtype}{statement.pattern.spell(statement.dims)}"
    holder = tree.Array(result, None)
    return print_statement(tree.Statement(holder, expr, result_first=True), lambda array: array.name)


def _natural(expr: Expr) -> object:
    return expr.operands[0].dtype if isinstance(expr, Product) else expr.dtype


class _Speller:
    """Expressions → trees whose arrays are named by their whole spelling."""

    def __init__(self, program: Program, known: set[str], own: dict[str, tuple[str, ...]]) -> None:
        self.inputs: dict[str, Input] = {array.name: array for array in program.inputs}
        self.dtype = program.dtype
        self.known = known
        self.own = own

    def expr(self, expr: Expr, outside: frozenset[str]) -> tree.Expr:
        match expr:
            case Use():
                return self._use(expr)
            case Product(operands=(only,), dims=dims):
                below = self.expr(only, outside | frozenset(only.dims))
                over = tuple(dim for dim in only.dims if dim not in dims)
                return tree.Call("sum", over, (below,)) if over else below
            case Product():
                return self._product(expr, outside)
            case Call():
                return self._call(expr, outside)
            case Named(name, axes, dim, operand):
                below_name = ((spell_axes(axes),) if all(len(a) == 1 for a in axes) else axes) if axes else ()
                return tree.Named(name, (*below_name, dim) if dim else below_name, self.expr(operand, outside))
            case _:
                assert_never(expr)

    def _use(self, use: Use) -> tree.Array:
        """A first use shows the input's sharding and its type."""
        first = use.name not in self.known and use.name in self.inputs
        self.known.add(use.name)
        pattern = use.pattern or (self.inputs[use.name].pattern if first else None)
        if pattern is None and self.own.get(use.name, use.dims) != use.dims:
            pattern = Pattern.free(len(use.dims))
        brackets = pattern.spell(use.dims) if isinstance(pattern, Pattern) else ""
        dtype = f": {use.dtype}" if first and use.dtype != self.dtype else ""
        return tree.Array(f"{use.name}{dtype}{brackets}", None)

    def _product(self, product: Product, outside: frozenset[str]) -> tree.Expr:
        """A left spine of products is one chain, each `·` with the dims that it contracts, as the books label it."""
        spine: list[Product] = [product]
        while isinstance(left := spine[-1].operands[0], Product) and len(left.operands) == 2:
            spine.append(left)
        spine.reverse()
        later: list[frozenset[str]] = [outside]
        for step in reversed(spine[1:]):
            later.append(later[-1] | frozenset(step.operands[1].dims))
        later.reverse()
        first = spine[0].operands[0]
        made = [self._operand(first, spine[0], later[0])]
        for step, after in zip(spine, later, strict=True):
            made.append(self._operand(step.operands[1], step, after))
        return tree.Chain(tuple(made), tuple(_sign(step) for step in spine))

    def _operand(self, operand: Expr, step: Product, after: frozenset[str]) -> tree.Expr:
        """An operand; summed at once over a dim that vanishes here though the outside has one of that name."""
        alone = sum(operand is one for one in step.operands) == 1
        others = frozenset(dim for one in step.operands if one is not operand for dim in one.dims)
        gone = tuple(dim for dim in operand.dims if alone and dim in after - others and dim not in step.dims)
        made = self.expr(operand, after | others | frozenset(operand.dims).intersection(gone))
        return tree.Call("sum", gone, (made,)) if gone else made

    def _call(self, call: Call, outside: frozenset[str]) -> tree.Expr:
        if call.function == "index":
            return tree.Index(call.dims[0])
        if call.function == "full" and (filling := call.numbers[0]) is not None:
            return _scalar(filling)
        if call.function in ("cast", "widen"):
            return tree.Call(str(call.dtype), (), (self.expr(call.operands[0], outside),))
        if call.function in _SIGNS and not call.numbers:
            return self._sum(call, outside)
        below = tuple(self.expr(operand, outside.union(call.over)) for operand in call.operands)
        numbers = tuple(None if scalar is None else _scalar(scalar) for scalar in call.numbers)
        return _spelled(call.function, tuple(arguments(below, numbers)), call.over)

    def _sum(self, top: Call, outside: frozenset[str]) -> tree.Expr:
        """A left spine of `+` and `-` is one sum."""
        spine: list[Call] = [top]
        while isinstance(left := spine[-1].operands[0], Call) and left.function in _SIGNS and not left.numbers:
            spine.append(left)
        spine.reverse()
        terms = [spine[0].operands[0], *(step.operands[1] for step in spine)]
        return tree.Sum(
            tuple(self.expr(term, outside) for term in terms), tuple(_SIGNS[step.function] for step in spine)
        )


_SIGNS = {"add": "+", "sub": "-"}


def _spelled(function: str, given: tuple[tree.Expr, ...], over: tuple[str, ...] = ()) -> tree.Expr:
    """A function as the notation writes it: by a sign, or by its name."""
    row = FUNCTIONS[function]
    match function:
        case "neg":
            return tree.Neg(given[0])
        case "add" | "sub":
            return tree.Sum(given, (row.sign,))
        case "mul" | "div":
            sign = tree.Operator(divides=True) if function == "div" else tree.Operator(elementwise=True)
            return tree.Chain(given, (sign,))
        case _ if row.sign in COMPARISONS:
            return tree.Comparison(given[0], row.sign, given[1])
        case _:
            return tree.Call(function, over, given)


def _scalar(scalar: Scalar) -> tree.Expr:
    match scalar:
        case Literal(text):
            return tree.Number(text)
        case Size(dim):
            return tree.Size(dim)
        case Folded(function, below):
            return _spelled(function, tuple(map(_scalar, below)))
        case _:
            assert_never(scalar)


def _sign(step: Product) -> tree.Operator:
    """`⊙` if nothing is summed, the label of what is contracted, or a plain `·`."""
    left, right = (frozenset(operand.dims) for operand in step.operands)
    if step.local:
        return tree.Operator(local=True)
    if left | right == frozenset(step.dims) and (left <= right or right <= left):
        return tree.Operator(elementwise=True)
    return tree.Operator(label=tuple(dim for dim in step.operands[0].dims if dim in right - frozenset(step.dims)))


def _parts(expr: Expr) -> Iterable[Expr]:
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += operands(part)


def _uses(expr: Expr) -> Iterable[Use]:
    return (part for part in _parts(expr) if isinstance(part, Use))
