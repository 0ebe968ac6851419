"""Which names may enter a program. Checked by the parser and again here; what becomes code is renamed by the emitter."""

from __future__ import annotations

import re

from shardc.errors import ShardcError, Span

MAX_NAME = 64
# Of Greek the letters that no Latin one looks like; LaTeX names them.
GREEK = dict(
    zip(
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
        "omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split(),
        "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ",
        strict=True,
    )
) | {"varepsilon": "ε", "varphi": "φ"}
_LETTER = "A-Za-z" + "".join(dict.fromkeys(GREEK.values()))
_NAME = re.compile(rf"[{_LETTER}][{_LETTER}0-9]*'*(?:_[{_LETTER}0-9]*'*)*")


def check_name(name: str, what: str, span: Span | None = None) -> str:
    """`name` if it may name an axis, a dim or an array; otherwise SHC107. Primes are for arrays and dims."""
    fits = type(name) is str and len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None
    if not fits or (what == "axis" and "'" in name):
        long = isinstance(name, str) and len(name) > MAX_NAME
        reason = f"is {len(name)} letters long" if long else "is not a name"
        raise ShardcError(
            "SHC107",
            f"{what} `{str(name)[:MAX_NAME]}` {reason}",
            span=span,
            help=f"letters, digits and `_`, beginning with a letter, {MAX_NAME} at most",
        )
    return name
