"""Lays lines out as `ruff format` leaves them: 88 columns, brackets split from the outside in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from shardc.emit.allowed import CARRIED, ROWS, TRIP, TURN
from shardc.emit.exprs import (
    Attr,
    BinOp,
    Call,
    Code,
    Each,
    Expr,
    Index,
    Items,
    Keyword,
    Line,
    Loop,
    Scan,
    bracketed,
    flat,
    for_each,
)

WIDTH = 88


def written(code: Code, indent: int = 4) -> list[str]:
    match code:
        case Line(target, expr, comment):
            return lay_out(expr, indent, f"{target} = ", f"  # {comment}" if comment else "")
        case Loop(count, repeated):
            inside = [text for line in repeated for text in written(line, indent + 4)]
            return [" " * indent + f"for {TURN} in range({count}):", *inside]
        case Scan(lines, leaves, called):
            return [
                "",
                " " * indent + f"def {TRIP}({CARRIED}, {ROWS}):",
                *block(lines, indent + 4),
                *lay_out(leaves, indent + 4, "return ", ""),
                "",
                *lay_out(called, indent, f"{CARRIED}, {ROWS} = ", ""),
            ]
        case _:
            assert_never(code)


def block(code: Sequence[Code], indent: int = 4) -> list[str]:
    """The lines below a `def`, which no empty line begins."""
    lines = [text for each in code for text in written(each, indent)]
    return lines[1:] if lines and not lines[0] else lines


def lay_out(expr: Expr, indent: int, lead: str, tail: str) -> list[str]:
    """`lead expr tail` on one line if it fits; else its outermost brackets are split.

    A = jax.lax.ppermute(
        A, ("X", "Y"), perm=…
    )  # A[I_YX]
    """
    single = " " * indent + lead + flat(expr) + tail
    if len(single) <= WIDTH:
        return [single]
    base, methods = _chain(expr)
    if not lead and len(methods) > 1:
        called = [" " * indent + "." + method for method in methods]
        return [*lay_out(base, indent, "", ""), *called[:-1], called[-1] + tail]
    match expr:
        case Keyword(name, value):
            return lay_out(value, indent, f"{lead}{name}=", tail)
        case Call(Attr(Call(function, args), method), after) if len(_opening(expr, indent, lead)) > WIDTH:
            closing = f").{method}({', '.join(map(flat, after))}){tail}"
            return arguments(args, indent, f"{lead}{flat(function)}(", closing)
        case Call(function, args) if args:
            return arguments(args, indent, f"{lead}{flat(function)}(", f"){tail}")
        case Index(Call(_, args) as whole, int(index)) if args:
            return _indexed(whole, index, indent, lead, tail)
        case Items(items, brackets) if items:
            return exploded(items, indent, lead + brackets[0], brackets[1] + tail)
        case BinOp(left, operator, Call(function, args)) if args and _ends_with(expr, function, indent, lead):
            return arguments(args, indent, f"{lead}{flat(left)} {operator} {flat(function)}(", f"){tail}")
        case BinOp() if _is_bound(lead):
            return [" " * indent + lead + "(", *lay_out(expr, indent + 4, "", ""), " " * indent + ")" + tail]
        case BinOp():
            first, *others = _terms(expr)
            lines = [text for operator, term in others for text in _term(operator, term, indent)]
            return [*lay_out(first[1], indent, lead, ""), *lines[:-1], lines[-1] + tail]
        case Attr() | Index() | _:
            return [single]


def _indexed(called: Call, index: int, indent: int, lead: str, tail: str) -> list[str]:
    """`A = f(B)[0]`: in its last brackets, where all before them fits on a line, as where a comment is too long."""
    opening = " " * indent + f"{lead}{flat(called)}["
    if len(opening) <= WIDTH:
        return [opening, " " * (indent + 4) + str(index), " " * indent + "]" + tail]
    return arguments(called.args, indent, f"{lead}{flat(called.function)}(", f")[{index}]{tail}")


def _is_bound(lead: str) -> bool:
    """Whether an expression stands by itself, where a line that begins with an operator would be another statement."""
    return lead.endswith(" = ") or lead == "return "


def _ends_with(expr: BinOp, function: Expr, indent: int, lead: str) -> bool:
    """`A = a * 8 + jnp.arange(`: of two terms the last is a call, whose brackets alone are split if the rest fits."""
    opening = f"{lead}{flat(expr.left)} {expr.operator} {flat(function)}("
    return _is_bound(lead) and len(_terms(expr)) == 2 and indent + len(opening) <= WIDTH


def _opening(expr: Call, indent: int, lead: str) -> str:
    """`A = jnp.einsum(…).astype(`, the line that a call begins with where only its own arguments are split off."""
    return " " * indent + lead + flat(expr.function) + "("


def _terms(expr: Expr) -> list[tuple[str, Expr]]:
    """`a + b - c` → a, + b, - c: the operators that bind as loosely as the last one."""
    if not isinstance(expr, BinOp):
        return [("", expr)]
    loose = expr.operator in "+-"
    left = expr.left
    same = isinstance(left, BinOp) and (left.operator in "+-") == loose
    return [*(_terms(left) if same else [("", left)]), (expr.operator, expr.right)]


def _term(operator: str, term: Expr, indent: int) -> list[str]:
    single = " " * indent + f"{operator} {bracketed(term)}"
    if len(single) <= WIDTH or not isinstance(term, BinOp):
        return [single]
    return [" " * indent + f"{operator} (", *lay_out(term, indent + 4, "", ""), " " * indent + ")"]


def _chain(expr: Expr) -> tuple[Expr, list[str]]:
    """`np.arange(8).reshape(2, 4).ravel()` → `np.arange(8)` and `reshape(2, 4)`, `ravel()`."""
    methods: list[str] = []
    while isinstance(expr, Call) and isinstance(expr.function, Attr):
        methods.append(f"{expr.function.name}({', '.join(map(flat, expr.args))})")
        expr = expr.function.value
    return expr, methods[::-1]


def arguments(args: tuple[Expr, ...], indent: int, opening: str, closing: str) -> list[str]:
    """All arguments on one line of their own if they fit, else one each, with a comma after the last; of what is done
    for each of several, in two lines without one."""
    together = " " * (indent + 4) + ", ".join(map(flat, args))
    if len(together) > WIDTH and isinstance(args[0], Each):
        value, names, every = args[0].value, args[0].names, args[0].every
        inside = [*lay_out(value, indent + 4, "", ""), *lay_out(every, indent + 4, for_each(names), "")]
        return [" " * indent + opening, *inside, " " * indent + closing]
    if len(together) > WIDTH:
        return exploded(args, indent, opening, closing)
    return [" " * indent + opening, together, " " * indent + closing]


def exploded(items: tuple[Expr, ...], indent: int, opening: str, closing: str) -> list[str]:
    inside = [text for item in items for text in lay_out(item, indent + 4, "", ",")]
    return [" " * indent + opening, *inside, " " * indent + closing]
