"""The functions of `ir.functions` on symbols: their NumPy meaning, with this in the place of NumPy.

What a row of that table says in sums, products and quotients is read as it stands; every other function that it calls
(`tanh`, `exp`, `less`, …) is an uninterpreted symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import inf, prod
from typing import Any

from shardc.ir.calls import arguments
from shardc.ir.dtypes import DTYPES, DType, Kind
from shardc.ir.functions import FUNCTIONS
from shardc.proving.field import PRIME, element, named, symbol
from shardc.proving.tensors import Tensor, broadcast, shaped, total, transposed

_INVERSE, _ORDER = named("reciprocal"), named("order")


class _Argument(Tensor):
    """A tensor that Python's operators take, as they take NumPy's arrays."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # `!=` gives a tensor

    def __add__(self, other: Any) -> _Argument:
        return _each(lambda x, y: (x + y) % PRIME, self, other)

    def __sub__(self, other: Any) -> _Argument:
        return _each(lambda x, y: (x - y) % PRIME, self, other)

    def __mul__(self, other: Any) -> _Argument:
        return _each(lambda x, y: x * y % PRIME, self, other)

    def __truediv__(self, other: Any) -> _Argument:
        return _each(lambda x, y: x * symbol(_INVERSE, y) % PRIME, self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __rtruediv__(self, other: Any) -> _Argument:
        return _of(other) / self

    def __pow__(self, power: int) -> _Argument:
        return _each(lambda x: pow(x, power, PRIME), self)

    def __ne__(self, other: object) -> _Argument:  # type: ignore[override]  # a tensor, as of NumPy, and no truth
        return _each(partial(symbol, named("not_equal")), self, other)

    def astype(self, kind: object) -> _Argument:
        return self


class _Numbers:
    """What the table asks of NumPy."""

    int64 = None

    def __getattr__(self, name: str) -> Callable[..., _Argument]:
        return partial(_unknown, partial(symbol, named(name)))

    def add(self, x: Any, y: Any) -> _Argument:
        return _of(x).__add__(y)

    def subtract(self, x: Any, y: Any) -> _Argument:
        return _of(x).__sub__(y)

    def multiply(self, x: Any, y: Any) -> _Argument:
        return _of(x).__mul__(y)

    def true_divide(self, x: Any, y: Any) -> _Argument:
        return _of(x).__truediv__(y)

    def negative(self, x: Any) -> _Argument:
        return _each(lambda x: -x % PRIME, x)

    def square(self, x: Any) -> _Argument:
        return _each(lambda x: x * x % PRIME, x)

    def maximum(self, x: Any, y: Any) -> _Argument:
        return _each(larger, x, y)

    def minimum(self, x: Any, y: Any) -> _Argument:
        return _each(smaller, x, y)

    def where(self, condition: Any, x: Any, y: Any) -> _Argument:
        return _each(lambda c, x, y: (c * x + (1 - c) * y) % PRIME, condition, x, y)

    def isfinite(self, x: _Argument) -> _Argument:
        return _Argument(x.shape, (1,) * len(x.items))

    def max(self, x: _Argument, axis: tuple[int, ...], keepdims: bool = False) -> _Argument:
        return _over(partial(reduce, larger), x, axis, keepdims)

    def min(self, x: _Argument, axis: tuple[int, ...], keepdims: bool = False) -> _Argument:
        return _over(partial(reduce, smaller), x, axis, keepdims)

    def sum(self, x: _Argument, axis: tuple[int, ...], keepdims: bool = False) -> _Argument:
        return _kept(total(x, axis), x, axis, keepdims)

    def squeeze(self, x: _Argument, axis: tuple[int, ...]) -> _Argument:
        return _Argument(tuple(size for place, size in enumerate(x.shape) if place not in axis), x.items)


_NUMBERS = _Numbers()


def larger(x: int, y: int) -> int:
    """By an order of which only that is known."""
    return max(x, y, key=lambda item: (symbol(_ORDER, item), item))


def smaller(x: int, y: int) -> int:
    """Minus the larger of both negated."""
    return -larger(-x % PRIME, -y % PRIME) % PRIME


def applied(
    name: str,
    operands: Sequence[Tensor],
    numbers: Sequence[Any] = (),
    axis: tuple[int, ...] = (),
    lowest: float = -inf,
) -> Tensor:
    """A function of operands that have all dims, of size 1 where they are copied; over dims of the one that it has.

    `lowest` is the lowest finite number of their type: every item stands for a finite one, so that the larger of it and
    an item is the item. The order that is drawn knows nothing of this.
    """
    row = FUNCTIONS[name]
    if name == "maximum" and any(number is not None and number <= lowest for number in numbers):
        return operands[0]
    if name == "minimum" and any(number is not None and number >= -lowest for number in numbers):
        return operands[0]
    given = [_Argument(each.shape, each.items) for each in operands]
    if row.over_dims:
        found = row.numpy(_NUMBERS, *given, axis=axis)
    else:
        found = row.numpy(_NUMBERS, *arguments(given, numbers))
    assert isinstance(found, Tensor)
    return found


def converted(given: Tensor, before: DType, after: DType) -> Tensor:
    """A cast. What it rounds is not asked here; floats as integers, and anything as true or false, are symbols."""
    is_exact = before.kind in (Kind.INT, Kind.BOOL) and after.kind is Kind.INT
    if is_exact or after.kind in (Kind.FLOAT, Kind.COMPLEX) or before == after:
        return given
    name = named(f"cast {after.name if after.kind is Kind.INT else DTYPES['bool'].name}")
    return _each(partial(symbol, name), _Argument(given.shape, given.items))


def _of(given: Any) -> _Argument:
    if isinstance(given, Tensor):
        return given if isinstance(given, _Argument) else _Argument(given.shape, given.items)
    return _Argument((), (element(given),))


def _each(function: Callable[..., int], *given: Any) -> _Argument:
    """Element by element, copied along dims of size 1."""
    operands = [_of(each) for each in given]
    shape = tuple(map(max, zip(*(_rank(each, operands) for each in operands), strict=True)))
    return _Argument(shape, tuple(map(function, *(broadcast(each, shape).items for each in operands))))


def _unknown(function: Callable[..., int], *given: Any, axis: tuple[int, ...] | None = None) -> _Argument:
    """A function of which nothing is known: of each element; over dims, of all their elements in order."""
    if axis is None:
        return _each(function, *given)
    return _over(lambda items: function(*items), _of(given[0]), axis, keepdims=False)


def _rank(given: Tensor, beside: Sequence[Tensor]) -> tuple[int, ...]:
    return (1,) * (max(len(each.shape) for each in beside) - len(given.shape)) + given.shape


def _over(choose: Callable[[Sequence[int]], int], x: Tensor, axis: tuple[int, ...], keepdims: bool) -> _Argument:
    kept = [place for place in range(len(x.shape)) if place not in axis]
    items, count = transposed(x, [*kept, *axis]).items, prod(x.shape[place] for place in axis)
    chosen = tuple(choose(items[n : n + count]) for n in range(0, len(items), count))
    return _kept(Tensor(tuple(x.shape[place] for place in kept), chosen), x, axis, keepdims)


def _kept(found: Tensor, x: Tensor, axis: tuple[int, ...], keepdims: bool) -> _Argument:
    shape = tuple(1 if place in axis else size for place, size in enumerate(x.shape)) if keepdims else found.shape
    found = shaped(found, shape)
    return _Argument(found.shape, found.items)
