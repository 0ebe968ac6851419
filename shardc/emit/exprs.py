"""The little language in which a step's JAX call is described, before it is printed or applied.

    expr = Name | Const | Items | Keyword | Call | Attr | Index | BinOp | Each
    line = target = expr        loop = for turn in range(count): lines
    scan = def trip(carried, rows): code; return leaves        carried, rows = jax.lax.scan(trip, …)

Nothing here imports JAX: a dotted function is only its name, a key of `allowed.NAMES`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never


@dataclass(frozen=True, slots=True)
class Name:
    """A local variable, or a dotted name of JAX: `A`, `jax.lax.psum`."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """A number, a string or None."""

    value: int | float | str | None


@dataclass(frozen=True, slots=True)
class Items:
    """`(a, b)`, `[a, b]` or `{a, b}`."""

    items: tuple[Expr, ...]
    brackets: str = "()"


@dataclass(frozen=True, slots=True)
class Keyword:
    """`axis=1`, as an argument."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Call:
    """`function(a, axis=1)`. The function is a dotted name or a method."""

    function: Expr
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Attr:
    """`A.shape`."""

    value: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """`shape[0]`, `table[turn]`."""

    value: Expr
    index: int | Name


@dataclass(frozen=True, slots=True)
class BinOp:
    """`left * right`, `left // right`, …; the right side is bracketed if it is a BinOp, the left side never."""

    left: Expr
    operator: str
    right: Expr


@dataclass(frozen=True, slots=True)
class Each:
    """`value for left, right in pairs`, the one argument of a call."""

    value: Expr
    names: tuple[str, ...]
    every: Expr


Expr: TypeAlias = Name | Const | Items | Keyword | Call | Attr | Index | BinOp | Each


@dataclass(frozen=True, slots=True)
class Line:
    """`target = expr  # comment`, written for that step of the schedule."""

    target: str
    expr: Expr
    comment: str
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """`for turn in range(count):` and its lines, written for that step of the schedule."""

    count: int
    lines: tuple[Line, ...]
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """A function of what is carried and of rows, and `carried, rows = call`, where the call is of that function.

    `leaves` is what a trip gives: a tuple of what it carries on, and a tuple of its rows.
    """

    code: tuple[Code, ...]
    leaves: Expr
    call: Expr
    step: int | None = None


Code: TypeAlias = Line | Loop | Scan


def call(function: str, *args: Expr, **keywords: Expr) -> Call:
    """A call of a dotted name."""
    return Call(Name(function), args + tuple(Keyword(name, value) for name, value in keywords.items()))


def method(value: Expr, name: str, *args: Expr) -> Call:
    return Call(Attr(value, name), args)


def size_of(value: Expr, dim: int) -> Expr:
    """`A.shape[1]`."""
    return Index(Attr(value, "shape"), dim)


def over(value: Expr, parts: int) -> Expr:
    """`size // 4`."""
    return BinOp(value, "//", Const(parts)) if parts > 1 else value


def times(parts: int, value: Expr) -> Expr:
    """`4 * size`."""
    return BinOp(Const(parts), "*", value) if parts > 1 else value


def axes_argument(axes: tuple[str, ...]) -> Expr:
    """`"X"` for one axis, `("X", "Y")` for several."""
    if len(axes) == 1:
        return Const(axes[0])
    return Items(tuple(Const(axis) for axis in axes))


def numbers(values: tuple[int, ...]) -> Expr:
    """`1` for one number, `(1, 2)` for several."""
    return Const(values[0]) if len(values) == 1 else Items(tuple(Const(value) for value in values))


def lines_of(code: Sequence[Code]) -> Iterator[Line]:
    """Every line, those of loops and scans included."""
    for each in code:
        match each:
            case Line():
                yield each
            case Loop(lines=lines):
                yield from lines
            case Scan(code=inside):
                yield from lines_of(inside)
            case _:
                assert_never(each)


def flat(expr: Expr) -> str:
    """The expression on one line."""
    match expr:
        case Name(name):
            return name
        case Const(value):
            return _constant(value)
        case Items(items, brackets):
            comma = "," if brackets == "()" and len(items) == 1 else ""
            return brackets[0] + ", ".join(map(flat, items)) + comma + brackets[1]
        case Keyword(name, value):
            return f"{name}={flat(value)}"
        case Call(function, args):
            return f"{flat(function)}({', '.join(map(flat, args))})"
        case Attr(value, name):
            return f"{flat(value)}.{name}"
        case Index(value, index):
            return f"{flat(value)}[{index if isinstance(index, int) else index.name}]"
        case BinOp(left, operator, right):
            return f"{flat(left)} {operator} {bracketed(right)}"
        case Each(value, names, every):
            return f"{flat(value)} {for_each(names)}{flat(every)}"
        case _:
            assert_never(expr)


def for_each(names: tuple[str, ...]) -> str:
    return f"for {', '.join(names)} in "


def _constant(value: int | float | str | None) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "jnp.inf" if value > 0 else "-jnp.inf"
    return f'"{value}"' if isinstance(value, str) else repr(value).replace("e+", "e")  # 1e38, as ruff writes it


def bracketed(expr: Expr) -> str:
    return f"({flat(expr)})" if isinstance(expr, BinOp) else flat(expr)


def names_in(expr: Expr) -> Iterator[str]:
    """Every Name of an expression."""
    match expr:
        case Name(name):
            yield name
        case Const():
            return
        case Items(items):
            for item in items:
                yield from names_in(item)
        case Keyword(_, value) | Attr(value):
            yield from names_in(value)
        case Index(value, index):
            yield from names_in(value)
            yield from () if isinstance(index, int) else (index.name,)
        case Call(function, args):
            yield from names_in(function)
            for arg in args:
                yield from names_in(arg)
        case BinOp(left, _, right):
            yield from names_in(left)
            yield from names_in(right)
        case Each(value, names, every):
            yield from names_in(every)
            yield from (name for name in names_in(value) if name not in names)
        case _:
            assert_never(expr)


def renamed(expr: Expr, old: str, new: str) -> Expr:
    """The expression with one Name for another."""
    match expr:
        case Name(name):
            return Name(new) if name == old else expr
        case Const():
            return expr
        case Items(items, brackets):
            return Items(tuple(renamed(item, old, new) for item in items), brackets)
        case Keyword(name, value):
            return Keyword(name, renamed(value, old, new))
        case Call(function, args):
            return Call(renamed(function, old, new), tuple(renamed(arg, old, new) for arg in args))
        case Attr(value, name):
            return Attr(renamed(value, old, new), name)
        case Index(value, index):
            return Index(renamed(value, old, new), index)
        case BinOp(left, operator, right):
            return BinOp(renamed(left, old, new), operator, renamed(right, old, new))
        case Each(value, names, every):
            inside = value if old in names else renamed(value, old, new)
            return Each(inside, names, renamed(every, old, new))
        case _:
            assert_never(expr)


def reading(code: Expr | Code, old: str, new: str) -> Expr | Code:
    """An expression, or the lines of a move, with one variable read in the place of another."""
    match code:
        case Line():
            return replace(code, expr=renamed(code.expr, old, new))
        case Loop(lines=lines):
            return replace(code, lines=tuple(replace(line, expr=renamed(line.expr, old, new)) for line in lines))
        case Scan():
            raise AssertionError("a loop of the program is no move")
        case _:
            return renamed(code, old, new)
