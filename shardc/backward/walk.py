"""The walk through a program's statements, from the last to the first, that collects the gradients of what they use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from shardc.backward.derivatives import DERIVATIVES, fitted
from shardc.backward.terms import (
    Dims,
    Term,
    added,
    bare,
    call,
    joined,
    negative,
    number,
    product,
    sign,
    spread,
    summed,
    use,
)
from shardc.ir.calls import arguments
from shardc.ir.dtypes import DType, Kind
from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use, uses
from shardc.ir.functions import FUNCTIONS
from shardc.ir.program import Input, Program, Statement, straight
from shardc.ir.scalars import Scalar
from shardc.notation import print_number


@dataclass(frozen=True, slots=True)
class Line:
    """A statement of the backward program, its text with marks for the arrays."""

    name: str
    dims: Dims
    pattern: Pattern
    text: str
    dtype: DType | None = None  # to be cast to, if it comes out as another


@dataclass(slots=True)
class Walk:
    """The gradients so far. `active` are the names that depend on what is asked for."""

    program: Program
    active: frozenset[str]
    patterns: dict[str, Pattern]  # how each name lies where it is bound first
    own: dict[str, Dims]
    types: dict[str, DType]
    taken: set[str]
    of_name: dict[str, str] = field(default_factory=dict)  # the name of each gradient
    given: dict[str, str] = field(default_factory=dict)  # of those of outputs, which come in
    parts: dict[str, list[Term]] = field(default_factory=dict)  # of each name, the gradients of its uses
    lines: list[Line] = field(default_factory=list)

    @classmethod
    def of(cls, program: Program, wanted: Iterable[Input]) -> Walk:
        bound: list[Input | Statement] = [*program.inputs, *straight(program)]
        patterns = {one.name: one.pattern for one in reversed(bound)}
        own = {one.name: one.dims for one in reversed(bound)}
        types = {one.name: one.dtype for one in reversed(bound)}
        active = {array.name for array in wanted}
        for statement in straight(program):
            if any(one.name in active for one in uses(statement.expr)) and statement.dtype.kind is Kind.FLOAT:
                active.add(statement.name)
        walk = cls(program, frozenset(active), patterns, own, types, set(own) | set(program.dims))
        walk.of_name = {name: walk.fresh(f"d{name}") for name in own if name in active}
        walk.given = {name: walk.of_name[name] for name in walk.outputs()}
        walk.parts = {name: [use(given, own[name])] for name, given in walk.given.items()}
        return walk

    def outputs(self) -> list[str]:
        """The outputs whose gradients come in."""
        names = [self.program.results[number].name for number in self.program.outputs]
        return [name for name in names if name in self.active]

    def fresh(self, name: str) -> str:
        while name in self.taken:
            name += "'"
        self.taken.add(name)
        return name

    def through(self, statement: Statement) -> None:
        """From the gradient of what a statement binds to those of what it uses."""
        if statement.name not in self.active or statement.name not in self.parts:
            return
        if any(one.name == statement.name for one in uses(statement.expr)):  # the same array, in another sharding
            return
        self.back(statement.expr, self.total(statement.name))

    def total(self, name: str) -> Term:
        """The sum of the gradients of a name's uses, as an array."""
        parts = self.parts.pop(name)
        dims = self.own[name]
        if len(parts) == 1 and parts[0].is_array and parts[0].dims == dims:
            return parts[0]
        gradient = self.fresh(self.given[name]) if name in self.given else self.of_name[name]
        self.bind(gradient, dims, _whole(self.patterns[name]), added(parts), self.types[name])
        return use(gradient, dims)

    def bind(self, name: str, dims: Dims, pattern: Pattern, term: Term, dtype: DType | None = None) -> None:
        self.lines.append(Line(name, dims, pattern, bare(spread(summed(term, dims), dims)), dtype))

    def named(self, term: Term, name: str) -> Term:
        """The term as an array of a name, so that it is written once."""
        if term.is_array or not term.dims:
            return term
        found = self.fresh(name)
        self.bind(found, term.dims, Pattern.free(len(term.dims)), term)
        return use(found, term.dims)

    def finish(self, wanted: Iterable[Input]) -> None:
        """The gradients of the inputs: those that nothing leads to are zero."""
        for array in wanted:
            parts = self.parts.pop(array.name, [])
            name = self.name_for(array, parts)
            term = added(parts) if parts else call("sum", number("0"))
            if not parts:
                term = Term(f"(0 ⊙ {use(array.name, array.dims).text})", array.dims)
            self.bind(name, array.dims, array.pattern, term, array.dtype)

    def name_for(self, array: Input, parts: Sequence[Term]) -> str:
        """`dA`; where A goes out as well that name has come in, and is bound anew only if it is the same array."""
        given = self.given.get(array.name)
        if given is not None and [part.text for part in parts] != [use(given, array.dims).text]:
            self.of_name[array.name] = self.fresh(given)
        return self.of_name[array.name]

    def needs(self, expr: Expr) -> bool:
        return any(one.name in self.active for one in uses(expr)) and expr.dtype.kind is Kind.FLOAT

    def back(self, expr: Expr, gradient: Term) -> None:
        """Adds what an expression's gradient brings to the gradients of the arrays in it."""
        if not self.needs(expr):
            return
        match expr:
            case Use(name, dims):
                self.used(name, dims, gradient)
            case Named(operand=operand):
                self.back(operand, gradient)
            case Product(operands=(only,)):
                self.back(only, gradient)
            case Product(operands=(left, right)):
                if self.needs(left) and self.needs(right):
                    gradient = self.named(gradient, "dP")
                for one, other in ((left, right), (right, left)):
                    if self.needs(one):
                        self.back(one, product(gradient, self.term(other), one.dims))
            case Call():
                self.called(expr, gradient)
            case Product():
                raise AssertionError("a product has one operand or two")
            case _:
                assert_never(expr)

    def used(self, name: str, dims: Dims, gradient: Term) -> None:
        own = self.own[name]
        if dims != own:  # in other names of its dims: bound in these, and used in its own
            bound = self.fresh(f"d{name}")
            self.bind(bound, dims, Pattern.free(len(dims)), gradient)
            gradient = use(bound, own)
        self.parts.setdefault(name, []).append(gradient)

    def called(self, expr: Call, gradient: Term) -> None:
        row = FUNCTIONS[expr.function]
        active = [operand for operand in expr.operands if self.needs(operand)]
        if len(active) > 1 or expr.function in _GRADIENT_TWICE:
            gradient = self.named(gradient, "dP")
        below = [self.term(operand) for operand in expr.operands]
        if expr.function not in _LINEAR:
            below = [
                self.named(one, "P") if _is_work(operand) else one
                for one, operand in zip(below, expr.operands, strict=True)
            ]
        given = tuple(arguments(below, [_number(scalar) for scalar in expr.numbers]))
        found = DERIVATIVES[expr.function](gradient, given, expr.over)
        places = [
            place
            for place in range(max(row.arity, len(given)))
            if place >= len(expr.numbers) or expr.numbers[place] is None
        ]
        for place, operand in zip(places, expr.operands, strict=True):
            of_operand = found[place]
            if of_operand is not None:
                self.back(operand, fitted(of_operand, operand.dims, joined(*below)))

    def term(self, expr: Expr) -> Term:
        """An expression of the forward program, as it stands there."""
        match expr:
            case Use(name, dims):
                return use(name, dims)
            case Named(operand=operand):
                return self.term(operand)
            case Product(operands=(only,), dims=dims):
                return summed(self.term(only), dims)
            case Product(operands=(left, right), dims=dims):
                return product(self.term(left), self.term(right), dims)
            case Call():
                return self.call_term(expr)
            case Product():
                raise AssertionError("a product has one operand or two")
            case _:
                assert_never(expr)

    def call_term(self, expr: Call) -> Term:
        row = FUNCTIONS[expr.function]
        below = [self.term(operand) for operand in expr.operands]
        given = list(arguments(below, [_number(scalar) for scalar in expr.numbers]))
        if expr.function == "index":
            return Term(f"index_{expr.dims[0]}", expr.dims)
        if expr.function in ("cast", "widen"):
            return Term(f"{expr.dtype}({bare(given[0])})", expr.dims)
        if expr.function == "neg":
            return negative(given[0])
        if row.sign:
            return sign(given[0], row.sign, given[1])
        return call(expr.function, *given, over=expr.over, keeps=row.keeps_dims)


_LINEAR = frozenset({"neg", "cast", "widen", "add", "sub"})  # whose gradients name no argument
_GRADIENT_TWICE = frozenset({"softmax", "maximum", "minimum"})


def _is_work(expr: Expr) -> bool:
    """Whether an argument is worth a name: more than an array."""
    return not isinstance(expr, Use) and any(True for _ in uses(expr))


def _number(scalar: Scalar | None) -> Term | None:
    return None if scalar is None else number(print_number(scalar))


def _whole(pattern: Pattern) -> Pattern:
    """A gradient is no partial sum, whatever its array is."""
    return Pattern(pattern.dims)
