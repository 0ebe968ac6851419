"""The gradient of a softmax that a product reads, by what the product left.

    p = softmax_S(s);  o[T, E] = p · v[S, E]

    dp[T, S] = do · v;  ds = p ⊙ (dp - sum_S(dp ⊙ p))
    dp[T, S] = do · v;  ds = p ⊙ (dp - do ·_E o)        since sum_S(do ·_E v ⊙ p) = do ·_E (p ·_S v)

The second reads an array of [T, E] where the first sums one of [T, S], which has to lie in memory for it; and where S
is sharded it is a sum less over devices. Source: FlashAttention (Dao et al. 2022), section B.2. It is asked for where
what is summed is the fewer numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from shardc.backward.keys import Keyed, Keys, Looped
from shardc.ir.expressions import Call, Expr, Use
from shardc.ir.sharding import Dims

_SOFTMAX = "softmax"


@dataclass(frozen=True, slots=True)
class Shares:
    """Of arrays that a softmax left, by key, their dims and those along which they are shares."""

    bound: Mapping[str, tuple[Dims, Dims]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, keys: Keys) -> Shares:
        return cls(dict(_bound(keys.body)), dict(keys.program.sizes))

    def along(self, expr: Expr, left: Dims) -> Dims:
        """The dims along which an operand is shares, if the product that left these dims tells the mean, by fewer
        numbers."""
        over = self._along(expr)
        rows = [dim for dim in expr.dims if dim not in over]
        if not over or not set(rows) <= set(left) or not {*over, *left} <= set(self.sizes):
            return ()
        added = [dim for dim in left if dim not in rows]
        return over if self._size(added) < self._size(over) else ()

    def _along(self, expr: Expr) -> Dims:
        match expr:
            case Call(function=name, over=over) if name == _SOFTMAX:
                return over
            case Use(name, dims) if name in self.bound and self.bound[name][0] == dims:
                return self.bound[name][1]
            case _:
                return ()

    def _size(self, dims: Iterable[str]) -> int:
        return math.prod(self.sizes[dim] for dim in dims)


def _bound(body: Iterable[Keyed]) -> Iterator[tuple[str, tuple[Dims, Dims]]]:
    for each in body:
        if isinstance(each, Looped):
            yield from _bound(each.body)
        elif isinstance(each.expr, Call) and each.expr.function == _SOFTMAX:
            yield each.name, (each.dims, each.expr.over)
