"""The walk through a program's statements, from the last to the first, that collects the gradients of what they use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, assert_never

from shardc.backward.asked import Gradients
from shardc.backward.derivatives import BY_VALUE, DERIVATIVES, fitted, through_shares
from shardc.backward.keys import Keys, depending, is_active
from shardc.backward.shares import Shares
from shardc.backward.terms import (
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
    zero,
)
from shardc.backward.written import Line, Written
from shardc.ir.calls import arguments
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use, uses
from shardc.ir.functions import FUNCTIONS
from shardc.ir.program import Input, Program, Statement
from shardc.ir.scalars import Scalar
from shardc.ir.sharding import Dims
from shardc.notation import print_number

# What is made again: nothing, all that lies between, or of loops all but products with weights.
Remat: TypeAlias = bool | Literal["selective"]
REMATS: tuple[Remat, ...] = (False, "selective", True)  # each computes more than the one before, and keeps less


@dataclass(slots=True)
class Walk:
    """The gradients so far. `active` are the keys of what depends on what is asked for; arrays are known by their keys,
    gradients by their names."""

    program: Program
    keys: Keys
    active: frozenset[str]
    taken: set[str]
    remat: Remat = False
    shares: Shares = field(default_factory=Shares)
    of_name: dict[str, str] = field(default_factory=dict)  # the name of each gradient
    given: dict[str, str] = field(default_factory=dict)  # of those of outputs, which come in
    parts: dict[str, list[Term]] = field(default_factory=dict)  # of each array, the gradients of its uses
    lines: list[Written] = field(default_factory=list)
    means: dict[str, list[Term]] = field(default_factory=dict)  # of shares, those of the gradients of products of them
    sums: dict[str, str] = field(default_factory=dict)  # gradients that a loop left, each with its array before it
    rows: set[str] = field(default_factory=set)  # those of them that lie as they are to
    lies: dict[str, Pattern] = field(default_factory=dict)  # of inputs, how their gradients do if not as they

    @classmethod
    def of(cls, program: Program, wanted: Gradients, remat: Remat) -> Walk:
        keys = Keys.of(program)
        taken = {array.name for array in keys.held.values()} | set(program.dims)
        active = depending(keys, [array.name for array in wanted.inputs])
        walk = cls(program, keys, active, taken, remat, Shares.of(keys), lies=dict(wanted.lies))
        names = [program.results[number].name for number in program.outputs]
        outputs = {keys.last[name]: name for name in names if keys.last[name] in walk.active}
        walk.given = {key: walk.fresh(f"d{name}") for key, name in outputs.items()}
        walk.of_name = dict(walk.given)
        walk.parts = {key: [use(name, keys.held[key].dims)] for key, name in walk.given.items()}
        for array in wanted.inputs:
            walk.name_of(array.name)
        return walk

    def fresh(self, name: str) -> str:
        while name in self.taken:
            name += "'"
        self.taken.add(name)
        return name

    def name_of(self, key: str) -> str:
        """The name of an array's gradient."""
        if key not in self.of_name:
            self.of_name[key] = self.fresh(f"d{self.keys.held[key].name}")
        return self.of_name[key]

    def total(self, key: str) -> Term:
        """The sum of the gradients of an array's uses, as an array."""
        parts = self.parts.pop(key)
        array = self.keys.held[key]
        if len(parts) == 1 and parts[0].is_array and parts[0].dims == array.dims:
            return parts[0]
        gradient = self.fresh(self.given[key]) if key in self.given else self.name_of(key)
        self.bind(gradient, array.dims, self.pattern(key), added(parts), array.dtype)
        return use(gradient, array.dims)

    def bind(self, name: str, dims: Dims, pattern: Pattern, term: Term, dtype: DType | None = None) -> None:
        self.lines.append(self.line(name, dims, pattern, term, dtype))

    def line(
        self,
        name: str,
        dims: Dims,
        pattern: Pattern,
        term: Term,
        dtype: DType | None = None,
        *,
        rows: Dims | None = None,
        again: bool = False,
    ) -> Line:
        """A statement with the term in the order of its dims; or one of an array's `rows`."""
        text = bare(spread(summed(term, dims), dims))
        return Line(name, rows or dims, pattern, text, dtype, again)

    def named(self, term: Term, name: str) -> Term:
        """The term as an array of a name, so that it is written once."""
        if term.is_array or not term.dims:
            return term
        found = self.fresh(name)
        self.bind(found, term.dims, Pattern.free(len(term.dims)), term)
        return use(found, term.dims)

    def pattern(self, key: str) -> Pattern:
        """How an array's gradient lies: as told, else as the array, and whole of a partial sum."""
        return self.lies.get(key, self.keys.held[key].pattern.reduced)

    def finish(self, wanted: Gradients) -> None:
        """The gradients of the inputs: those that nothing leads to are zero."""
        for array in wanted.inputs:
            parts = self.parts.pop(array.name, [])
            name = self.name_for(array, parts)
            term = added(parts) if parts else zero(array.dims)
            if name not in self.rows or not term.is_array:
                self.bind(name, array.dims, wanted.pattern(array), term, array.dtype)

    def name_for(self, array: Input, parts: Sequence[Term]) -> str:
        """`dA`; where A goes out as well that name has come in, and is bound anew only if it is the same array."""
        came = next((name for key, name in self.given.items() if self.keys.held[key].name == array.name), None)
        name = self.of_name[array.name] if came is None else came
        if name in self.sums or name in self.given.values():
            own = self.sums.get(name) == array.name or self.given.get(array.name) == name
            only = [part.text for part in parts] == [use(name, array.dims).text]
            name = name if own and only else self.fresh(name)
        self.of_name[array.name] = name
        return name

    def needs(self, expr: Expr) -> bool:
        return is_active(expr, self.active)

    def back(self, expr: Expr, gradient: Term, value: Term | None = None, mean: Term | None = None) -> None:
        """Adds what an expression's gradient brings to the gradients of the arrays in it.

        `value` is the expression's own, where it has a name, and `mean` that of the gradient under the shares that the
        expression is, where it is known without them (`backward.shares`).
        """
        if not self.needs(expr):
            return
        match expr:
            case Use(name, dims):
                self.used(name, dims, gradient, mean)
            case Named(operand=operand):
                self.back(operand, gradient)
            case Product(operands=(only,)):
                self.back(only, gradient)
            case Product(operands=(left, right)):
                self.multiplied(expr, left, right, gradient, value)
            case Call():
                self.called(expr, gradient, mean)
            case Product():
                raise AssertionError("a product has one operand or two")
            case _:
                assert_never(expr)

    def multiplied(self, expr: Expr, left: Expr, right: Expr, gradient: Term, value: Term | None) -> None:
        pairs = [(one, other) for one, other in ((left, right), (right, left)) if self.needs(one)]
        along = [self.shares.along(one, expr.dims) for one, _ in pairs]
        if len(pairs) > 1 or any(along):
            gradient = self.named(gradient, "dP")
        for (one, other), over in zip(pairs, along, strict=True):
            mean = None
            if over:
                rows = tuple(dim for dim in one.dims if dim not in over)
                mean = product(gradient, self.term(expr) if value is None else value, rows)
            self.back(one, product(gradient, self.term(other), one.dims), mean=mean)

    def used(self, name: str, dims: Dims, gradient: Term, mean: Term | None) -> None:
        own = self.keys.held[name].dims
        if mean is not None:
            self.means.setdefault(name, []).append(mean)
        if dims != own:  # in other names of its dims: bound in these, and used in its own
            bound = self.fresh(f"d{self.keys.held[name].name}")
            self.bind(bound, dims, Pattern.free(len(dims)), gradient)
            if not self.program.trips.isdisjoint(own):  # a loop takes rows of it, by the name that it has for their dim
                named = self.fresh(bound)
                self.bind(named, own, Pattern.free(len(own)), use(bound, own))
                bound = named
            gradient = use(bound, own)
        self.parts.setdefault(name, []).append(gradient)

    def by_value(self, statement: Statement) -> bool:
        """Whether a function's derivative is one of the value that a statement gives a name."""
        expr = statement.expr
        if not isinstance(expr, Call) or expr.function not in BY_VALUE or not self.needs(expr):
            return False
        means = self.means.pop(statement.name, [])
        are_all_products = len(means) == len(self.parts[statement.name])
        gradient, value = self.named(self.total(statement.name), "dP"), use(statement.name, statement.dims)
        found = BY_VALUE[expr.function](gradient, value, expr.over)[0]
        if are_all_products:
            found = through_shares(gradient, value, added(means))
        assert found is not None
        self.back(expr.operands[0], found)
        return True

    def called(self, expr: Call, gradient: Term, mean: Term | None = None) -> None:
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
        if mean is not None:
            found = (through_shares(gradient, call(expr.function, given[0], over=expr.over), mean),)
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
        if expr.function == "full":
            return Term(given[0].text, expr.dims)
        if expr.function in ("cast", "widen"):
            return Term(f"{expr.dtype}({bare(given[0])})", expr.dims)
        if expr.function == "neg":
            return negative(given[0])
        if row.sign:
            return sign(given[0], row.sign, given[1])
        return call(expr.function, *given, over=expr.over, keeps=row.keeps_dims)


_LINEAR = frozenset({"neg", "cast", "widen", "narrow", "add", "sub"})  # whose gradients name no argument
_GRADIENT_TWICE = frozenset({"softmax", "maximum", "minimum"})


def _is_work(expr: Expr) -> bool:
    """Whether an argument is worth a name: more than an array."""
    return not isinstance(expr, Use) and any(True for _ in uses(expr))


def _number(scalar: Scalar | None) -> Term | None:
    return None if scalar is None else number(print_number(scalar))
