"""What is written here instead of what other notations, and Python, have."""

from __future__ import annotations

import re

LOGIC = "`and(M, N)`, `or(M, N)` and `not(M)` are functions"
LOOP = "a loop over dim L is written `for L { … }`; arrays that have dim L are taken at each of its indices"
POWER = "a power is a product, `A ⊙ A`, or `square(A)`; a transpose is `^T`, and not needed: dims are matched by name"
KEYWORD = "a function names the dim that it runs along: `softmax_J(A)`"
_INSTEAD = {
    "^": POWER,
    "%": "a comment begins with `#`",
    "\\frac": "write `A / B`",
    "\\sum": "name the dim that it is over: `Σ_J A[I, J]`, or `sum_J(A)`",
    "\\max": "write `max_J(A)` of a dim, `maximum(A, B)` of two arrays",
    "and": LOGIC,
    "or": LOGIC,
    "if": "`where(M, A, B)` is A where M is true, else B",
    "**": POWER,
    "//": "a comment begins with `#`; a quotient of whole numbers is `floor(A / B)`",
    "=>": "an arrow is written `->`, at least `>=`",
    "?": "`where(M, A, B)` is A where M is true, else B",
    ".": "a product is `A · B`; functions stand before their arrays, `sum_J(A)`; a transpose is not needed, dims are "
    "matched by name",
}

TWO_SIGNS = re.compile(r"\*\*|=>|//")
LOOKUP = "a row looked up by its number is a product with a mask: `where(index_V == Tok, 1, 0) ·_V E`"
_CLIPPED = "it is `minimum(maximum(A, 0), 1)`"
_EXTREMES = "the places are a mask, `A == {0}_J(A)`; the last of them is `max_J(where(A == {0}_J(A), index_J, 0))`"

# Functions of other libraries, joined without `_`; J is the dim that they run along.
_OF_OTHERS = {
    "logsoftmax": "it is `A - logsumexp_J(A)`",
    "pow": POWER,
    "power": POWER,
    "transpose": POWER,
    "clip": _CLIPPED,
    "clamp": _CLIPPED,
    "argmax": _EXTREMES.format("max"),
    "argmin": _EXTREMES.format("min"),
    "topk": "of A[I, J] the places of the 2 largest are a mask, `sum_K(where(A[I, K] > A[I, J], 1, 0)) < 2`",
    "cumsum": "it is a product with a mask, which has it along K: `A ·_J where(index_J <= index_K, 1, 0)`",
    "layernorm": "it is written out, by `mean_J(A)`, `square(A)` and `rsqrt(A)`",
    "rmsnorm": "it is `A ⊙ rsqrt(mean_J(square(A)) + 1e-6)`",
    "norm": "it is `sqrt(sum_J(square(A)))`",
    "var": "it is `mean_J(square(A - mean_J(A)))`",
    "variance": "it is `mean_J(square(A - mean_J(A)))`",
    "std": "it is `sqrt(mean_J(square(A - mean_J(A))))`",
    "prod": "of numbers above 0 it is `exp(sum_J(log(A)))`; of others a loop, `p[I] = 1; for J { p = p ⊙ A }`",
    "any": "of a mask it is `max_J(where(M, 1, 0)) > 0`",
    "all": "of a mask it is `min_J(where(M, 1, 0)) > 0`",
    "take": LOOKUP,
    "embedding": LOOKUP,
    "onehot": "along a dim V of its own it is `where(index_V == Tok, 1, 0)`",
    "softplus": "it is `maximum(A, 0) + log1p(exp(-abs(A)))`",
    "leakyrelu": "it is `maximum(A, 0.01 ⊙ A)`",
    "elu": "it is `where(A > 0, A, exp(minimum(A, 0)) - 1)`",
    "relu6": "it is `minimum(relu(A), 6)`",
    "round": "it is `floor(A + 0.5)`, halves up",
    "ceil": "it is `-floor(-A)`",
    "mod": "it is `A - B ⊙ floor(A / B)`",
    "expm1": "it is `exp(A) - 1`",
    "tan": "it is `sin(A) / cos(A)`",
}


def instead_of(written: str, otherwise: str) -> str:
    """The remedy for what somebody wrote, if one is known."""
    return _INSTEAD.get(written, otherwise)


def instead_of_function(words: str) -> str | None:
    """The same for a function and what is below it, `log_softmax_D`: with that dim, if one is named."""
    parts = words.split("_")
    for count in range(len(parts), 0, -1):
        told = _OF_OTHERS.get("".join(parts[:count]).lower())
        if told is not None:
            dims = parts[count:]
            return _along(told, dims[0]) if len(dims) == 1 else told
    return None


def _along(told: str, dim: str) -> str:
    """With the dim that is named, unless it is one of the recipe's own."""
    along = "V" if "_V" in told else "J"
    return told if f"{dim}]" in told else re.sub(rf"(_|for ){along}\b", rf"\g<1>{dim}", told)
