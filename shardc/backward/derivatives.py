"""The derivative of each function of the notation, as the notation writes it.

Each takes the gradient `g` of the function's value and its arguments, and gives the gradient of each argument, None
where there is none. Sources: the functions' own definitions (`ir.functions`); at a tie `maximum` and `max_J` share the
gradient out equally, and relu has none at 0, as in JAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from shardc.backward.terms import Term, call, negative, number, over, sign, summed, times
from shardc.ir.functions import MADE_OF_NONE
from shardc.ir.sharding import Dims

Gradients: TypeAlias = tuple[Term | None, ...]
Derivative: TypeAlias = Callable[[Term, tuple[Term, ...], Dims], Gradients]

_ZERO, _ONE, _TWO, _HALF = number("0"), number("1"), number("2"), number("0.5")


def _of_one(rule: Callable[[Term, Term], Term]) -> Derivative:
    """A function of one array, element by element."""
    return lambda g, given, along: (rule(g, given[0]),)


def _gelu(g: Term, x: Term) -> Term:
    """0.5·x·(1 + t), t = tanh(c·(x + 0.044715·x³)): 0.5·(1 + t) + 0.5·x·(1 − t²)·c·(1 + 3·0.044715·x²)."""
    c = number(repr(math.sqrt(2.0 / math.pi)))
    cubic = sign(x, "+", times(number("0.044715"), times(x, call("square", x))))
    t = call("tanh", times(c, cubic))
    inner = times(c, sign(_ONE, "+", times(number("0.134145"), call("square", x))))
    outer = times(sign(_ONE, "-", call("square", t)), inner)
    slope = sign(times(_HALF, sign(_ONE, "+", t)), "+", times(times(_HALF, x), outer))
    return times(g, slope)


def _silu(g: Term, x: Term) -> Term:
    s = call("sigmoid", x)
    return times(g, times(s, sign(_ONE, "+", times(x, sign(_ONE, "-", s)))))


def _sigmoid(g: Term, x: Term) -> Term:
    s = call("sigmoid", x)
    return times(g, times(s, sign(_ONE, "-", s)))


def _mul(g: Term, given: tuple[Term, ...], along: Dims) -> Gradients:
    a, b = given
    return times(g, b), times(g, a)


def _div(g: Term, given: tuple[Term, ...], along: Dims) -> Gradients:
    a, b = given
    return over(g, b), negative(over(times(g, a), call("square", b)))


def _larger(than: str) -> Derivative:
    """`maximum` and `minimum`."""

    def rule(g: Term, given: tuple[Term, ...], along: Dims) -> Gradients:
        a, b = given
        tie = call("where", sign(a, "==", b), times(_HALF, g), _ZERO)
        return (
            call("where", sign(a, than, b), g, tie),
            call("where", sign(b, than, a), g, tie),
        )

    return rule


def _where(g: Term, given: tuple[Term, ...], along: Dims) -> Gradients:
    return None, call("where", given[0], g, _ZERO), call("where", given[0], _ZERO, g)


def _extreme(name: str) -> Derivative:
    """`max_J` and `min_J`: to where it is, in equal shares."""

    def rule(g: Term, given: tuple[Term, ...], along: Dims) -> Gradients:
        x = given[0]
        here = call("where", sign(x, "==", call(name, x, over=along, keeps=False)), _ONE, _ZERO)
        shares = over(g, call("sum", here, over=along, keeps=False))
        return (times(here, shares),)

    return rule


def _softmax(g: Term, y: Term, along: Dims) -> Gradients:
    return (through_shares(g, y, call("sum", times(g, y), over=along, keeps=False)),)


def through_shares(g: Term, y: Term, mean: Term) -> Term:
    """Of what a softmax y is taken of, by the mean of y's gradient under these shares: y ⊙ (g - sum_J(g ⊙ y))."""
    return times(y, sign(g, "-", mean))


def _logsumexp(g: Term, given: tuple[Term, ...], along: Dims) -> Gradients:
    return (times(call("softmax", given[0], over=along), g),)


def _none(g: Term, given: tuple[Term, ...], along: Dims) -> Gradients:
    return (None,) * len(given)


DERIVATIVES: dict[str, Derivative] = {
    "relu": _of_one(lambda g, x: call("where", sign(x, ">", _ZERO), g, _ZERO)),
    "gelu": _of_one(_gelu),
    "silu": _of_one(_silu),
    "sigmoid": _of_one(_sigmoid),
    "exp": _of_one(lambda g, x: times(g, call("exp", x))),
    "exp2": _of_one(lambda g, x: times(times(number(repr(math.log(2.0))), g), call("exp2", x))),
    "log": _of_one(lambda g, x: over(g, x)),
    "log1p": _of_one(lambda g, x: over(g, sign(_ONE, "+", x))),
    "sqrt": _of_one(lambda g, x: over(g, times(_TWO, call("sqrt", x)))),
    "rsqrt": _of_one(lambda g, x: negative(over(times(_HALF, times(g, call("rsqrt", x))), x))),
    "tanh": _of_one(lambda g, x: times(g, sign(_ONE, "-", call("square", call("tanh", x))))),
    "sin": _of_one(lambda g, x: times(g, call("cos", x))),
    "cos": _of_one(lambda g, x: negative(times(g, call("sin", x)))),
    "abs": _of_one(lambda g, x: times(g, call("sign", x))),
    "square": _of_one(lambda g, x: times(times(_TWO, g), x)),
    "neg": _of_one(lambda g, x: negative(g)),
    "again": _of_one(lambda g, x: g),
    "cast": _of_one(lambda g, x: g),
    "widen": _of_one(lambda g, x: g),
    "narrow": _of_one(lambda g, x: g),
    "add": lambda g, given, along: (g, g),
    "sub": lambda g, given, along: (g, negative(g)),
    "mul": _mul,
    "div": _div,
    "maximum": _larger(">"),
    "minimum": _larger("<"),
    "where": _where,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "softmax": lambda g, given, along: _softmax(g, call("softmax", given[0], over=along), along),
    "logsumexp": _logsumexp,
    # What is piecewise constant, true or false, or does not show in the result.
    **dict.fromkeys(("sign", "floor", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal"), _none),
    **dict.fromkeys(("and", "or", "not", *sorted(MADE_OF_NONE), "shift"), _none),
}


# By the function's own value, where it has a name: nothing that it is made of is kept then.
BY_VALUE: dict[str, Callable[[Term, Term, Dims], Gradients]] = {
    "relu": lambda g, y, along: (call("where", sign(y, ">", _ZERO), g, _ZERO),),
    "exp": lambda g, y, along: (times(g, y),),
    "exp2": lambda g, y, along: (times(times(number(repr(math.log(2.0))), g), y),),
    "sqrt": lambda g, y, along: (over(g, times(_TWO, y)),),
    "sigmoid": lambda g, y, along: (times(g, times(y, sign(_ONE, "-", y))),),
    "tanh": lambda g, y, along: (times(g, sign(_ONE, "-", call("square", y))),),
    "softmax": _softmax,
}


def fitted(gradient: Term, dims: Dims, among: Dims) -> Term:
    """Of an argument with these dims, where the function's value has those `among`: summed over what it lacks.

    A gradient that lacks a dim is the same all along it, so that its sum there is |D| of it.
    """
    constant = [dim for dim in among if dim not in dims and dim not in gradient.dims]
    gradient = summed(gradient, dims)
    for dim in constant:
        gradient = times(gradient, number(f"|{dim}|"))
    return gradient
