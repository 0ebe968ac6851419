"""The functions of the notation. One row each: its name, how JAX spells it, what it means in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Gives(Enum):
    """The type of a function's result, from that in which its arguments meet."""

    SAME = "same"
    FLOAT = "float"  # f32 of integers, as JAX has it of `/`
    BOOL = "bool"
    ASKED = "asked"  # a cast's


class Through(Enum):
    """A loop over all of an operand."""

    LARGEST = "the largest, or the smallest"
    SUM = "a sum of exponentials"
    RESULT = "as many results"


@dataclass(frozen=True, slots=True)
class Function:
    """`jax` is the dotted name in emitted code. `numpy` is the reference: it takes the numpy module and the arguments,
    in whose precision it computes; functions over dims (`softmax_J`) take `axis` as well.

    `linear` are the places of the arguments in which, taken together, it is linear, so that it passes unreduced values
    on: both of A + B, the first of A / B. One that `scales` is so in each place, if a number is in the other.
    """

    name: str
    jax: str
    numpy: Callable[..., Any]
    arity: int = 1
    linear: tuple[int, ...] = ()
    scales: bool = False
    over_dims: bool = False
    keeps_dims: bool = True
    integers: bool = False  # integers in, integers out
    truths: bool = False  # takes what is true or false, `bool`
    gives: Gives = Gives.SAME
    reduces: str = ""  # over a sharded dim each device's own is a partial one of this kind: "max", "min"
    through: tuple[Through, ...] = ()  # its loops over an operand; elementwise ones go with what they read
    across: int = 0  # how many AllReduces of what is left it takes over a sharded dim; 0 where it cannot be done so
    conditions: tuple[int, ...] = ()  # the places of arguments that are true or false, and meet no type
    zero_at_zero: bool = False  # it is 0 where its arguments are, and bounds go by that
    is_flat: bool = False  # of numbers it says no more than between which others they lie
    sign: str = ""  # how the notation writes it between its arguments


def _sigmoid(np: Any, x: Any) -> Any:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # does not overflow for large |x|


def _gelu(np: Any, x: Any) -> Any:
    """The tanh form, which jax.nn.gelu computes by default (Hendrycks and Gimpel 2016)."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _max(np: Any, x: Any, axis: tuple[int, ...]) -> Any:
    return np.max(x, axis=axis)


def _min(np: Any, x: Any, axis: tuple[int, ...]) -> Any:
    return np.min(x, axis=axis)


def _softmax(np: Any, x: Any, axis: tuple[int, ...]) -> Any:
    weights = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return weights / np.sum(weights, axis=axis, keepdims=True)


def _logsumexp(np: Any, x: Any, axis: tuple[int, ...]) -> Any:
    largest = np.max(x, axis=axis, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0.0)  # of nothing but −inf it is −inf
    return np.log(np.sum(np.exp(x - shift), axis=axis)) + np.squeeze(shift, axis=axis)


def _truth(name: str) -> Callable[..., Any]:
    """What NumPy's function of that name says, as 0 and 1: all integers are int64 here."""
    return lambda np, *arguments: getattr(np, name)(*arguments).astype(np.int64)


def _where(np: Any, condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition != 0, x, y)


def _compared(name: str, jax: str, sign: str) -> Function:
    return Function(name, jax, _truth(jax.removeprefix("jnp.")), 2, integers=True, gives=Gives.BOOL, sign=sign)


_TABLE = (
    Function("relu", "jax.nn.relu", lambda np, x: np.maximum(x, 0), integers=True, zero_at_zero=True),
    Function("gelu", "jax.nn.gelu", _gelu, zero_at_zero=True),
    Function("silu", "jax.nn.silu", lambda np, x: x * _sigmoid(np, x), zero_at_zero=True),
    Function("sigmoid", "jax.nn.sigmoid", _sigmoid),
    Function("exp", "jnp.exp", lambda np, x: np.exp(x)),
    Function("exp2", "jnp.exp2", lambda np, x: np.exp2(x)),
    Function("log", "jnp.log", lambda np, x: np.log(x)),
    Function("log1p", "jnp.log1p", lambda np, x: np.log1p(x)),
    Function("sqrt", "jnp.sqrt", lambda np, x: np.sqrt(x), zero_at_zero=True),
    Function("rsqrt", "jax.lax.rsqrt", lambda np, x: 1.0 / np.sqrt(x)),
    Function("sin", "jnp.sin", lambda np, x: np.sin(x)),
    Function("cos", "jnp.cos", lambda np, x: np.cos(x)),
    Function("tanh", "jnp.tanh", lambda np, x: np.tanh(x), zero_at_zero=True),
    Function("abs", "jnp.abs", lambda np, x: np.abs(x), integers=True, zero_at_zero=True),
    Function("sign", "jnp.sign", lambda np, x: np.sign(x), integers=True, is_flat=True),
    Function("floor", "jnp.floor", lambda np, x: np.floor(x), is_flat=True),
    Function("square", "jnp.square", lambda np, x: np.square(x), integers=True, zero_at_zero=True),
    Function(
        "neg", "jnp.negative", lambda np, x: np.negative(x), linear=(0,), integers=True, sign="-", zero_at_zero=True
    ),
    Function(
        "add", "jnp.add", lambda np, x, y: np.add(x, y), 2, linear=(0, 1), integers=True, sign="+", zero_at_zero=True
    ),
    Function(
        "sub",
        "jnp.subtract",
        lambda np, x, y: np.subtract(x, y),
        2,
        linear=(0, 1),
        integers=True,
        sign="-",
        zero_at_zero=True,
    ),
    Function("mul", "jnp.multiply", lambda np, x, y: np.multiply(x, y), 2, scales=True, integers=True, sign="⊙"),
    Function("div", "jnp.divide", lambda np, x, y: np.true_divide(x, y), 2, linear=(0,), gives=Gives.FLOAT, sign="/"),
    Function("maximum", "jnp.maximum", lambda np, x, y: np.maximum(x, y), 2, integers=True),
    Function("minimum", "jnp.minimum", lambda np, x, y: np.minimum(x, y), 2, integers=True),
    _compared("less", "jnp.less", "<"),
    _compared("less_equal", "jnp.less_equal", "<="),
    _compared("greater", "jnp.greater", ">"),
    _compared("greater_equal", "jnp.greater_equal", ">="),
    _compared("equal", "jnp.equal", "=="),
    _compared("not_equal", "jnp.not_equal", "!="),
    Function("and", "jnp.logical_and", _truth("logical_and"), 2, truths=True, conditions=(0, 1), gives=Gives.BOOL),
    Function("or", "jnp.logical_or", _truth("logical_or"), 2, truths=True, conditions=(0, 1), gives=Gives.BOOL),
    Function("not", "jnp.logical_not", _truth("logical_not"), truths=True, conditions=(0,), gives=Gives.BOOL),
    Function("where", "jnp.where", _where, 3, linear=(1, 2), integers=True, conditions=(0,)),
    Function("index", "jnp.arange", lambda np, size: np.arange(size), 0, over_dims=True, integers=True),
    Function("full", "jnp.full", lambda np, x: x, integers=True),  # `h[B, D] = 0`: a number, in each of its places
    # The array as it is, which the compiler must take for another: what is made of it is made again.
    Function("again", "jax.lax.optimization_barrier", lambda np, x: x, linear=(0,), integers=True, truths=True),
    Function("cast", "astype", lambda np, x: x, truths=True, gives=Gives.ASKED, integers=True),
    Function("widen", "astype", lambda np, x: x, linear=(0,), gives=Gives.ASKED, integers=True),  # rounds nothing
    # A sum that was kept in a wider type, also of a device's part of it: a product rounds what it adds up so too.
    Function("narrow", "astype", lambda np, x: x, linear=(0,), gives=Gives.ASKED, integers=True),
    Function(
        "max",
        "jnp.max",
        _max,
        over_dims=True,
        keeps_dims=False,
        integers=True,
        reduces="max",
        across=1,
        through=(Through.LARGEST,),
    ),
    Function(
        "min",
        "jnp.min",
        _min,
        over_dims=True,
        keeps_dims=False,
        integers=True,
        reduces="min",
        across=1,
        through=(Through.LARGEST,),
    ),
    # The maximum that exponents are shifted by, so that none overflows: the result does not depend on it, nor does
    # any derivative.
    Function("shift", "jnp.max", _max, over_dims=True, keeps_dims=False, reduces="max", through=(Through.LARGEST,)),
    Function("softmax", "jax.nn.softmax", _softmax, over_dims=True, through=(*Through,), across=2),
    Function(
        "logsumexp",
        "jax.nn.logsumexp",
        _logsumexp,
        over_dims=True,
        keeps_dims=False,
        across=2,
        through=(Through.LARGEST, Through.SUM),
    ),
)

FUNCTIONS: dict[str, Function] = {row.name: row for row in _TABLE}
COMPARISONS: dict[str, str] = {row.sign: row.name for row in _TABLE if row.gives is Gives.BOOL and row.sign}
MADE_OF_NONE = frozenset({"index", "full"})  # of no operand: each device makes its own block
# What the notation writes as an operator, a cast or a bare word, and not by its name.
UNNAMED = frozenset({row.name for row in _TABLE if row.sign} | {"index", "full", "cast", "widen", "narrow", "shift"})
SUMS = ("sum", "mean")  # products of one operand, and no functions of a program
NAMED: tuple[str, ...] = (*(name for name in FUNCTIONS if name not in UNNAMED), *SUMS)
