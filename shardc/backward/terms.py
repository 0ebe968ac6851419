"""Expressions of a backward program in the making: text of the notation, with the dims of its value.

Arrays stand in it as marks, since the first use of an input shows its sharding, and only the whole program knows which
use is the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shardc.ir.functions import COMPARISONS
from shardc.ir.sharding import Dims

ZERO = "0"
_MARK = re.compile("\0([^\0]*)\0([^\0]*)\0")


@dataclass(frozen=True, slots=True)
class Term:
    """`text` as an operand: an array, a call, or anything in brackets. `is_array` is a use, and nothing to compute."""

    text: str
    dims: Dims
    is_array: bool = False


def use(name: str, dims: Dims) -> Term:
    return Term(f"\0{name}\0{','.join(dims)}\0", dims, is_array=True)


def uses(text: str) -> Iterable[tuple[str, Dims]]:
    """The arrays that a text names, in order, each with the dims that it is used with."""
    return ((name, tuple(dims.split(",")) if dims else ()) for name, dims in _MARK.findall(text))


def printed(text: str, spell: Callable[[str, Dims], str]) -> str:
    """The text with each mark as it is to be spelled."""
    return _MARK.sub(lambda found: spell(found[1], tuple(found[2].split(",")) if found[2] else ()), text)


def number(text: str) -> Term:
    return Term(text, ())


def zero(dims: Dims) -> Term:
    """All that a statement binds: `dA[I, J] = 0`."""
    return Term(ZERO, dims)


def call(name: str, *arguments: Term, over: Dims = (), keeps: bool = True) -> Term:
    """A function by its name, along dims if it runs along any; without `keeps` it leaves none of these. The notation
    meets its arguments each with each: `and(index_T >= index_S, M[B, S])`."""
    dims = joined(*arguments)
    left = dims if keeps else tuple(dim for dim in dims if dim not in over)
    return Term(f"{name}{below(over)}({', '.join(_bare(argument) for argument in arguments)})", left)


def sign(left: Term, operator: str, right: Term) -> Term:
    """An operator between two operands. Where each lacks dims of the other the left one is spread along them, but where
    the notation meets each with each: `index_T >= index_S`, `index_T - index_S`."""
    is_nested = set(left.dims) <= set(right.dims) or set(right.dims) <= set(left.dims)
    are_positions = not any(uses(left.text + right.text))
    if not (is_nested or are_positions or operator in COMPARISONS):
        left = spread(left, right.dims)
    return Term(f"({left.text} {operator} {right.text})", joined(left, right))


def negative(term: Term) -> Term:
    return Term(f"(-{term.text})", term.dims)


def times(left: Term, right: Term) -> Term:
    return sign(left, "⊙", right)


def over(left: Term, right: Term) -> Term:
    return sign(left, "/", right)


def added(terms: Iterable[Term]) -> Term:
    first, *others = terms
    for other in others:
        first = sign(first, "+", other)
    return first


def product(left: Term, right: Term, dims: Dims) -> Term:
    """The product of two, summed over every dim that is not among `dims`."""
    left, right = (_only(one, {*dims, *other.dims}) for one, other in ((left, right), (right, left)))
    gone = tuple(dim for dim in left.dims if dim in right.dims and dim not in dims)
    if not gone:
        return times(left, right)
    return Term(f"({left.text} ·{below(gone)} {right.text})", tuple(d for d in joined(left, right) if d not in gone))


def summed(term: Term, dims: Dims) -> Term:
    """The sum over every dim that is not among `dims`."""
    return _only(term, set(dims))


def spread(term: Term, dims: Dims) -> Term:
    """The same values along dims that it lacks: the product with ones along them."""
    for dim in dims:
        if dim not in term.dims:
            term = Term(f"({term.text} · (1 + 0 ⊙ index_{dim}))", (*term.dims, dim))
    return term


def joined(*terms: Term) -> Dims:
    """Every dim of several, in order of first use."""
    return tuple(dict.fromkeys(dim for term in terms for dim in term.dims))


def below(dims: Dims) -> str:
    """`_J`, `_{J,K}`; nothing for none."""
    if not dims:
        return ""
    return "_" + dims[0] if len(dims) == 1 else "_{" + ",".join(dims) + "}"


def _only(term: Term, dims: set[str]) -> Term:
    gone = tuple(dim for dim in term.dims if dim not in dims)
    return call("sum", term, over=gone, keeps=False) if gone else term


def _bare(term: Term) -> str:
    """Without the brackets around all of it, which a call's own make superfluous."""
    text = term.text
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]


bare = _bare
