"""What an expression computes, however it is written: in whatever order its dims, or a product's operands, come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from shardc.ir.expressions import Call, Expr, Named, Product, Use


def computed(part: Expr, below: tuple[int, ...]) -> Hashable:
    """What a part computes of the values of these numbers, whatever the order of its dims, and of the operands of a
    product; an array and a named collective are themselves.

    >>> from shardc.ir.dtypes import dtype
    >>> one, other = (Product((), dims, dtype("bf16")) for dims in (("I", "K"), ("K", "I")))
    >>> computed(one, (0, 1)) == computed(other, (1, 0))
    True
    """
    match part:
        case Use() | Named():
            return part
        case Product():
            return frozenset(Counter(below).items()), frozenset(part.dims), part.dtype, part.local
        case Call():
            return part.function, below, frozenset(part.dims), part.dtype, part.over, part.numbers
