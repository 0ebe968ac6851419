"""Lays lines out as `ruff format` leaves them: 88 columns, brackets split from the outside in."""

from __future__ import annotations

from shardc.backend.exprs import Attr, BinOp, Call, Each, Expr, Index, Items, Keyword, Line, Star, bracketed, flat

WIDTH = 88


def assignment(line: Line, indent: int = 4) -> list[str]:
    comment = f"  # {line.comment}" if line.comment else ""
    return lay_out(line.expr, indent, f"{line.target} = ", comment)


def lay_out(expr: Expr, indent: int, lead: str, tail: str) -> list[str]:
    """`lead expr tail` on one line if it fits; else its outermost brackets are split.

    A = jax.lax.ppermute(
        A, ("X", "Y"), perm=…
    )  # A[I_YX]
    """
    single = " " * indent + lead + flat(expr) + tail
    if len(single) <= WIDTH:
        return [single]
    match expr:
        case Keyword(name, value):
            return lay_out(value, indent, f"{lead}{name}=", tail)
        case Star(value):
            return lay_out(value, indent, f"{lead}*", tail)
        case Call(function, args) if args:
            return arguments(args, indent, f"{lead}{flat(function)}(", f"){tail}")
        case Items(items, brackets) if items:
            return exploded(items, indent, lead + brackets[0], brackets[1] + tail)
        case BinOp(left, operator, right):
            return [
                *lay_out(left, indent, lead, ""),
                " " * indent + f"{operator} {bracketed(right)}{tail}",
            ]
        case Each(body, turn, over):
            inside = lay_out(body, indent + 4, "", "")
            return [
                " " * indent + lead + "[",
                *inside,
                " " * (indent + 4) + f"for {turn} in {flat(over)}",
                " " * indent + "]" + tail,
            ]
        case Attr() | Index() | _:
            return [single]


def arguments(args: tuple[Expr, ...], indent: int, opening: str, closing: str) -> list[str]:
    """All arguments on one line of their own if they fit, else one each, with a comma after the last."""
    together = " " * (indent + 4) + ", ".join(map(flat, args))
    if len(together) > WIDTH:
        return exploded(args, indent, opening, closing)
    return [" " * indent + opening, together, " " * indent + closing]


def exploded(items: tuple[Expr, ...], indent: int, opening: str, closing: str) -> list[str]:
    inside = [text for item in items for text in lay_out(item, indent + 4, "", ",")]
    return [" " * indent + opening, *inside, " " * indent + closing]
