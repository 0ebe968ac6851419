"""The functions of the notation. One row each: its name, how JAX spells it, what it means in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Function:
    """`linear` functions pass an unreduced value on; `over_dims` ones run along named dims (`softmax_J`).

    `jax` is the dotted name in emitted code. `numpy` is the reference: it takes the numpy module and the
    arguments, in whose precision it computes; functions over dims take `axis` as well.
    """

    name: str
    jax: str
    numpy: Callable[..., Any]
    arity: int = 1
    linear: bool = False
    over_dims: bool = False
    keeps_dims: bool = True
    integers: bool = False  # integers in, integers out


def _sigmoid(np: Any, x: Any) -> Any:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # does not overflow for large |x|


def _gelu(np: Any, x: Any) -> Any:
    """The tanh form, which jax.nn.gelu computes by default (Hendrycks and Gimpel 2016)."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _max(np: Any, x: Any, axis: tuple[int, ...]) -> Any:
    return np.max(x, axis=axis)


def _softmax(np: Any, x: Any, axis: tuple[int, ...]) -> Any:
    weights = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return weights / np.sum(weights, axis=axis, keepdims=True)


_TABLE = (
    Function("relu", "jax.nn.relu", lambda np, x: np.maximum(x, 0), integers=True),
    Function("gelu", "jax.nn.gelu", _gelu),
    Function("silu", "jax.nn.silu", lambda np, x: x * _sigmoid(np, x)),
    Function("sigmoid", "jax.nn.sigmoid", _sigmoid),
    Function("exp", "jnp.exp", lambda np, x: np.exp(x)),
    Function("log", "jnp.log", lambda np, x: np.log(x)),
    Function("sqrt", "jnp.sqrt", lambda np, x: np.sqrt(x)),
    Function("rsqrt", "jax.lax.rsqrt", lambda np, x: 1.0 / np.sqrt(x)),
    Function("tanh", "jnp.tanh", lambda np, x: np.tanh(x)),
    Function("abs", "jnp.abs", lambda np, x: np.abs(x), integers=True),
    Function("square", "jnp.square", lambda np, x: np.square(x), integers=True),
    Function("neg", "jnp.negative", lambda np, x: np.negative(x), linear=True, integers=True),
    Function("add", "jnp.add", lambda np, x, y: np.add(x, y), arity=2, linear=True, integers=True),
    Function("sub", "jnp.subtract", lambda np, x, y: np.subtract(x, y), arity=2, linear=True, integers=True),
    Function("max", "jnp.max", _max, over_dims=True, keeps_dims=False, integers=True),
    Function("softmax", "jax.nn.softmax", _softmax, over_dims=True),
)

FUNCTIONS: dict[str, Function] = {row.name: row for row in _TABLE}
