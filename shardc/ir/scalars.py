"""Numbers that a program names: `2`, `1e-6`, `inf`, `|D|`, and what is computed of them, exactly.

    number = Literal   as it is written
           | Size      |D|, which is known when dims have their sizes
           | Folded    a function of numbers: 1/3, sqrt(|D|)

They have no type of their own but take the array's that they meet, as JAX's do: bf16 + 1.0 is bf16. What is whole stays
whole under + - · and does not make a float of an integer; what `/` leaves is not whole. Fractions stay fractions, so
that (1/3)·3 is 1, and the nearest float is taken once, where an array meets the number.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import TypeAlias, assert_never

from shardc.errors import ShardcError
from shardc.ir.functions import FUNCTIONS


@dataclass(frozen=True, slots=True)
class Literal:
    """`2`, `0.5`, `1e-6`, `inf`, as written and without a sign."""

    text: str


@dataclass(frozen=True, slots=True)
class Size:
    """`|D|`."""

    dim: str


@dataclass(frozen=True, slots=True)
class Folded:
    """`sqrt(|D|)`: a function of `ir.functions` of numbers."""

    function: str
    arguments: tuple[Scalar, ...]


Scalar: TypeAlias = Literal | Size | Folded
Value: TypeAlias = Fraction | float  # a float where no fraction says it: inf, sqrt(2)
Number: TypeAlias = int | float

_MOST_BITS = 4096


def is_whole(scalar: Scalar) -> bool:
    """Whether a number is an integer by how it is written, as 2 is and 2.0 is not."""
    match scalar:
        case Literal(text):
            return text.isdigit()
        case Size():
            return True
        case Folded(function, arguments):
            return FUNCTIONS[function].integers and all(map(is_whole, arguments))
        case _:
            assert_never(scalar)


def number(scalar: Scalar, sizes: Mapping[str, int]) -> Number:
    """What a number is, where the dims have these sizes; SHC108 if it is none, as 1/0."""
    value = _value(scalar, sizes)
    if isinstance(value, float) and math.isnan(value):
        raise undefined("it is not a number")
    if is_whole(scalar) and isinstance(value, Fraction):
        return int(value)
    return _nearest(value)


def undefined(why: str) -> ShardcError:
    return ShardcError("SHC108", f"a number that does not exist: {why}", help="write a number that does")


def sizes_in(scalar: Scalar) -> frozenset[str]:
    """The dims whose sizes a number names."""
    match scalar:
        case Literal():
            return frozenset()
        case Size(dim):
            return frozenset({dim})
        case Folded(arguments=arguments):
            return frozenset().union(*map(sizes_in, arguments))
        case _:
            assert_never(scalar)


def _value(scalar: Scalar, sizes: Mapping[str, int]) -> Value:
    match scalar:
        case Literal(text):
            return math.inf if text == "inf" else Fraction(text)
        case Size(dim):
            return Fraction(sizes[dim])
        case Folded(function, arguments):
            return _folded(function, [_value(argument, sizes) for argument in arguments])
        case _:
            assert_never(scalar)


def _folded(function: str, values: list[Value]) -> Value:
    """Of fractions a fraction, where the function has one; else of the nearest floats."""
    if function == "div" and values[1] == 0:
        raise undefined("it divides by zero")
    exact = _EXACT.get(function)
    fractions = [value for value in values if isinstance(value, Fraction)]
    if exact is not None and len(fractions) == len(values):
        return _kept(exact(*fractions))
    return _of_floats(function, [_nearest(value) for value in values])


def _kept(value: Value) -> Value:
    """A fraction of few digits; of more, as squares of squares have, the nearest float."""
    if isinstance(value, float) or max(value.numerator.bit_length(), value.denominator.bit_length()) <= _MOST_BITS:
        return value
    return _nearest(value)


def _nearest(value: Value) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _of_floats(function: str, values: list[float]) -> float:
    """What NumPy would say, without it: a plain plan starts faster."""
    try:
        return float(FUNCTIONS[function].numpy(_PLAIN, *values))
    except OverflowError:
        return math.inf
    except (ValueError, ZeroDivisionError):
        return math.nan


def _log(value: float) -> float:
    return math.log(value) if value else -math.inf


# NumPy's functions by its names, of one number.
_PLAIN = SimpleNamespace(
    add=operator.add, subtract=operator.sub, multiply=operator.mul, true_divide=operator.truediv,
    negative=operator.neg, abs=abs, square=lambda x: x * x, maximum=max, minimum=min,
    floor=lambda x: x if math.isinf(x) else math.floor(x),
    exp=math.exp, exp2=lambda x: 2.0**x, log=_log, log1p=lambda x: _log(1.0 + x) if x <= -1 else math.log1p(x),
    sqrt=math.sqrt, sin=math.sin, cos=math.cos, tanh=math.tanh, sign=lambda x: math.copysign(1.0, x) if x else 0.0,
)  # fmt: skip


def _sqrt(value: Fraction) -> Value:
    if value < 0:
        return math.nan
    above, below = math.isqrt(value.numerator), math.isqrt(value.denominator)
    is_square = (above * above, below * below) == (value.numerator, value.denominator)
    return Fraction(above, below) if is_square else math.sqrt(value)


def _rsqrt(value: Fraction) -> Value:
    if value <= 0:
        return math.inf if value == 0 else math.nan
    return _sqrt(1 / value)


_EXACT: dict[str, Callable[..., Value]] = {
    "neg": lambda x: -x,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "abs": abs,
    "square": lambda x: x * x,
    "maximum": max,
    "minimum": min,
    "relu": lambda x: max(x, Fraction(0)),
    "sign": lambda x: Fraction((x > 0) - (x < 0)),
    "floor": lambda x: Fraction(math.floor(x)),
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
}
