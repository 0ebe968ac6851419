"""What is written here instead of what other notations, and Python, have."""

from __future__ import annotations

LOGIC = "`and(M, N)`, `or(M, N)` and `not(M)` are functions"
LOOP = "a loop over dim L is written `for L { … }`; arrays that have dim L are taken at each of its indices"
POWER = "a power is a product, `A ⊙ A`; a transpose is `^T`, and not needed: dims are matched by name"
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
    ".": "functions stand before their arrays, `sum_J(A)`; a transpose is not needed, dims are matched by name",
}

# Functions of other libraries, joined without `_`; J is the dim that they run along.
_OF_OTHERS = {
    "logsoftmax": "it is `A - logsumexp_J(A)`",
    "pow": POWER,
    "power": POWER,
    "transpose": POWER,
    "clip": "it is `minimum(maximum(A, 0), 1)`",
    "clamp": "it is `minimum(maximum(A, 0), 1)`",
    "argmax": "the places are a mask, `A == max_J(A)`; the last of them is `max_J(where(A == max_J(A), index_J, 0))`",
    "cumsum": "it is a product with a mask, which has it along K: `A ·_J where(index_J <= index_K, 1, 0)`",
    "layernorm": "it is written out, by `mean_J(A)`, `square(A)` and `rsqrt(A)`",
    "rmsnorm": "it is `A ⊙ rsqrt(mean_J(square(A)) + 1e-6)`",
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
            return told.replace("_J", f"_{dims[0]}") if len(dims) == 1 else told
    return None
