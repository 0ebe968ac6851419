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


def instead_of(written: str, otherwise: str) -> str:
    """The remedy for what somebody wrote, if one is known."""
    return _INSTEAD.get(written, otherwise)
