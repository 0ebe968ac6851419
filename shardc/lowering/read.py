"""What of a program's text is rounded to bf16 where it is read, as far as the text says it (`lowering.rounded`).

    H[I, K] = A[I, J] · B[J, K]; C[I, L] = relu(H) · V[K, L]      A, B and V are read by products alone, and so is A · B
    x = x + H · V                                                 x is not, nor is what it becomes

A search goes by it, before it is known which steps there are and which of them share what they move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from shardc.ir.collectives import COLLECTIVE_NAMES
from shardc.ir.expressions import Call, Expr, Named, Product, Use, operands
from shardc.ir.plan import Apply
from shardc.ir.program import Input, Program, every_statement
from shardc.lowering import rounds
from shardc.lowering.readers import Met, met


@dataclass(frozen=True, slots=True)
class Read:
    """The names of arrays that a product reads, whoever else does, and the results that something else reads."""

    by_products: frozenset[str]
    by_others: frozenset[Met]

    def is_rounded(self, expr: Expr | Input) -> bool:
        """Of what is made between the products of a chain products are the only readers."""
        if isinstance(expr, Use | Input):
            return expr.name in self.by_products
        return met(expr) not in self.by_others


@lru_cache(maxsize=64)
def read_of(program: Program) -> Read:
    statements = list(every_statement(program))
    made = {each.name: each.expr for each in statements}
    ends = {program.results[place].name for place in program.outputs}
    by_products, by_others, read = set[str](), set[Met](), dict[str, bool]()
    for each in reversed(statements):
        waiting: list[tuple[Expr, bool]] = [(each.expr, each.name not in ends and read.get(each.name, False))]
        while waiting:
            expr, rounds_it = waiting.pop()
            if isinstance(expr, Use):
                read[expr.name] = read.get(expr.name, True) and rounds_it
                by_products |= {expr.name} if rounds_it else set()
            elif not rounds_it:
                by_others.add(met(expr))
            waiting += zip(operands(expr), _read_by(expr, rounds_it, made), strict=True)
    return Read(frozenset(by_products), frozenset(by_others))


def _read_by(expr: Expr, is_rounded: bool, made: Mapping[str, Expr]) -> Iterator[bool]:
    """Of each operand of an expression whether it is rounded, if the result is or is not."""
    passes = is_rounded and _passes(expr)
    if isinstance(expr, Product) and len(expr.operands) > 1:
        one, other = (set(below.dims) for below in expr.operands)
        multiplies = one | other > {*expr.dims} and one - other and other - one
        passes = bool(multiplies) and not any(_are_shares(below, made) for below in expr.operands)
    elif isinstance(expr, Call) and expr.function == "cast":
        passes = expr.dtype.name == "bf16"
    return (passes for _ in operands(expr))


def _passes(expr: Expr) -> bool:
    """Whether an expression leaves the numbers that it is given."""
    match expr:
        case Named(collective=name):
            return rounds.rounds_before(COLLECTIVE_NAMES[name].facts)
        case Call(function=function):
            return rounds.leaves_what_it_is_given(function)
        case Product(operands=below, dims=dims):
            return {*below[0].dims} == {*dims}
        case Use():
            return True


def _are_shares(expr: Expr, made: Mapping[str, Expr]) -> bool:
    whole = made.get(expr.name, expr) if isinstance(expr, Use) else expr
    return isinstance(whole, Call) and rounds.is_one_kernel(Apply(whole.function))
