"""The backward program of a program: the gradients of its inputs from those of its outputs, written in the notation.

    Tmp[B_X, F] = In[B_X, D] ·_D Win[D, F]
    Out[B_X, D] = relu(Tmp) ·_F Wout[F, D]

becomes, statement by statement from the last to the first,

    dTmp[B_X, F] = where(Tmp[B_X, F] > 0, dOut[B_X, D] ·_D Wout[F, D], 0)
    dWout[F, D] = relu(Tmp) ·_B dOut
    dIn[B_X, D] = dTmp ·_F Win[D, F]
    dWin[D, F] = In[B_X, D] ·_B dTmp

The gradient of a product is a product, that of a use is added to those of the other uses. What moves an array has the
gradient as it is: where it lies is for the brackets to say, and how it comes there for the planner. So the gradient of
an AllGather is a ReduceScatter, without anybody saying so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
    printed,
    product,
    sign,
    spread,
    summed,
    use,
)
from shardc.errors import ShardcError, nearest
from shardc.ir.calls import arguments
from shardc.ir.dtypes import DType, Kind
from shardc.ir.functions import FUNCTIONS
from shardc.ir.program import Call, Expr, For, Input, Named, Pattern, Product, Program, Statement, Use, straight, uses
from shardc.ir.scalars import Scalar
from shardc.notation import parse, print_number


def grad(program: Program, wrt: Sequence[str] | None = None, *, whole: bool = False, remat: bool = False) -> Program:
    """The program that leaves `dW` of each of `wrt` (every float input), in W's sharding, from each output's `dOut`.

    It takes `dOut`, the inputs and the named arrays of the forward program that it needs; with `remat` no array
    between, but makes these again from the inputs. `whole` is forward and backward as one: it takes the inputs and
    `dOut`, and leaves the outputs and the gradients. Raises ShardcError: SHC217 for a name that is no input, SHC225
    for one whose gradient does not exist.
    """
    _check_straight(program)
    wanted = _wanted(program, wrt)
    walk = _Walk.of(program, wanted)
    for statement in reversed(straight(program)):
        walk.through(statement)
    walk.finish(wanted)
    return _assembled(program, walk, wanted, whole, remat)


def _check_straight(program: Program) -> None:
    loop = next((each for each in program.statements if isinstance(each, For)), None)
    if loop is not None:
        raise ShardcError(
            "SHC225",
            f"the gradient of a loop, along `{loop.dim}`, is not written as a program",
            span=loop.span,
            help="take jax.grad of the compiled program, which goes through the loop",
        )


def _wanted(program: Program, wrt: Sequence[str] | None) -> tuple[Input, ...]:
    floats = {array.name: array for array in program.inputs if array.dtype.kind is Kind.FLOAT}
    if wrt is None:
        return tuple(floats.values())
    for name in wrt:
        if name not in floats:
            near = nearest(name, floats)
            what = "an input of integers" if name in {array.name for array in program.inputs} else "no input"
            help = f"did you mean `{near}`?" if near else f"inputs of floats are {', '.join(floats) or 'none'}"
            raise ShardcError("SHC217", f"`{name}` is {what}, and has no gradient", help=help)
    return tuple(floats[name] for name in dict.fromkeys(wrt))


@dataclass(frozen=True, slots=True)
class _Line:
    """A statement of the backward program, its text with marks for the arrays."""

    name: str
    dims: Dims
    pattern: Pattern
    text: str
    dtype: DType | None = None  # to be cast to, if it comes out as another


@dataclass(slots=True)
class _Walk:
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
    lines: list[_Line] = field(default_factory=list)

    @classmethod
    def of(cls, program: Program, wanted: Iterable[Input]) -> _Walk:
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
        self.lines.append(_Line(name, dims, pattern, bare(spread(summed(term, dims), dims)), dtype))

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


def _assembled(program: Program, walk: _Walk, wanted: Sequence[Input], whole: bool, remat: bool) -> Program:
    """The text of the lines, parsed; what comes out in another type than its array's is cast, and parsed again."""
    lines = walk.lines
    first = _parsed(program, walk, lines, wanted, whole, remat)
    found = {statement.name: statement.dtype for statement in straight(first)}
    cast = [
        replace(line, text=f"{line.dtype}({line.text})")
        if line.dtype is not None and found[line.name] != line.dtype
        else line
        for line in lines
    ]
    return first if cast == lines else _parsed(program, walk, cast, wanted, whole, remat)


def _parsed(
    program: Program, walk: _Walk, lines: Sequence[_Line], wanted: Sequence[Input], whole: bool, remat: bool
) -> Program:
    forward = [statement.text for statement in straight(program)] if whole or remat else []
    known = set(walk.own) if forward else set()
    spell = _Speller(program, walk, known).spell
    backward = [
        f"{line.name}{line.pattern.spell(line.dims)} = {printed(line.text, spell)}"
        for line in _in_use(lines, walk, wanted)
    ]
    gradients = [walk.of_name[array.name] for array in wanted]
    outputs = [program.results[number].name for number in program.outputs] if whole else []
    text = "\n".join([*_declared(program), *forward, *backward, "return " + ", ".join([*outputs, *gradients])])
    return parse(text, name="<gradient>")


def _in_use(lines: Sequence[_Line], walk: _Walk, wanted: Sequence[Input]) -> list[_Line]:
    """The lines that some gradient asked for needs."""
    needed = {walk.of_name[array.name] for array in wanted}
    kept = []
    for line in reversed(lines):
        if line.name in needed:
            kept.append(line)
            needed |= {part for number, part in enumerate(line.text.split("\0")) if number % 3 == 1}
    return kept[::-1]


class _Speller:
    """Arrays as the notation writes them: the first use of one that comes in shows how it lies, and its type."""

    def __init__(self, program: Program, walk: _Walk, known: set[str]) -> None:
        self.dtype = program.dtype
        self.walk = walk
        self.given = {given: name for name, given in walk.given.items()}
        self.known = (known | {line.name for line in walk.lines}).difference(self.given)
        self.bound = {line.name: line.dims for line in walk.lines}

    def spell(self, name: str, dims: Dims) -> str:
        array = self.given.get(name, name)
        own = self.walk.own[array] if array in self.walk.own else self.bound[array]
        brackets = "" if dims == own else Pattern.free(len(dims)).spell(dims)
        if name in self.known:
            return name + brackets
        self.known.add(name)
        dtype = self.walk.types[array]
        typed = "" if dtype == self.dtype else f": {dtype}"
        return f"{name}{typed}{self.walk.patterns[array].spell(dims)}"


def _declared(program: Program) -> Iterator[str]:
    if program.mesh.axes:
        yield f"mesh {program.mesh}"
    if program.sizes:
        yield "dims " + ", ".join(f"{dim}={size}" for dim, size in program.sizes)
    yield f"dtype {program.dtype}"
    if program.chip:
        yield f"chip {program.chip}"
    if program.topology:
        yield f"topology {program.topology}"
