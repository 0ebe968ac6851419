"""What is written several times is read in one order of its dims, so that it is computed once.

Which dims of a product come first is nobody's but the reader's: in `y[E, K] = sum_K(gelu(V · W)) ⊙ gelu(V · W)` one
`gelu(V · W)` would be [K, E], as V comes first, the other [E, K], as the sum beside it. So would `W · V`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TypeAlias

from shardc.ir.alike import computed
from shardc.ir.expressions import Call, Expr, Product, operands, parts_of, says_steps
from shardc.notation.calls import together

Read: TypeAlias = dict[Hashable, tuple[int, Expr]]  # by what is computed: its number, and as it was read first


def in_one_order(expr: Expr, dims: tuple[str, ...], read: Read) -> Expr:
    """The expression with every part as it was `read` first, which gets what is new; its own dims in this order.

    `a[K, E] = V · W` and then `b[E, K] = exp(V · W)` is the exponential of the first, transposed.
    """
    if says_steps(expr):
        return expr
    waiting: list[tuple[int, Expr]] = []
    for part in reversed([*parts_of(expr)]):  # what is below a part before it, the right of it before the left
        below = [waiting.pop() for _ in operands(part)]
        made = _with_operands(part, tuple(each for _, each in below))
        waiting.append(read.setdefault(computed(part, tuple(number for number, _ in below)), (len(read), made)))
    (_, found) = waiting.pop()
    if found.dims == dims:
        return found
    return Product((found,), dims, found.dtype, span=expr.span)


def _with_operands(part: Expr, below: tuple[Expr, ...]) -> Expr:
    """With these operands; where some have their dims in another order than before, a function's are in theirs."""
    if not isinstance(part, Product | Call):
        return part
    made = replace(part, operands=below)
    as_before = all(now.dims == before.dims for now, before in zip(below, part.operands, strict=True))
    if as_before or not isinstance(part, Call):
        return made
    kept = frozenset(part.dims)
    return replace(made, dims=tuple(dim for dim in together(below) if dim in kept))
