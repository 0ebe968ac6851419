"""Which names may enter a program. Checked by the parser and again here; the emitter renames what becomes code."""

from __future__ import annotations

import re

from shardc.errors import ShardcError, Span

MAX_NAME = 64
# Words of the notation, which no array may bear; any other name is free.
KEYWORDS = frozenset({"mesh", "dims", "dtype", "chip", "topology", "return", "for"})
# Of Greek the letters that no Latin one looks like; LaTeX names them.
GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "varepsilon": "ε", "zeta": "ζ", "eta": "η",
    "theta": "θ", "iota": "ι", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ",
    "sigma": "σ", "tau": "τ", "upsilon": "υ", "phi": "φ", "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω",
    "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ", "Phi": "Φ",
    "Psi": "Ψ", "Omega": "Ω",
}  # fmt: skip
_LETTER = "A-Za-z" + "".join(dict.fromkeys(GREEK.values()))
_NAME = re.compile(rf"[{_LETTER}][{_LETTER}0-9]*'*(?:_[{_LETTER}0-9]*'*)*")


def check_name(name: str, what: str, span: Span | None = None) -> str:
    """`name` if it may name an axis, a dim or an array; otherwise SHC107.

    An axis has Latin letters alone, and no primes: XLA aborts on others.
    """
    fits = type(name) is str and len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None
    if not fits or (what == "axis" and ("'" in name or not name.isascii())):
        long = isinstance(name, str) and len(name) > MAX_NAME
        reason = f"is {len(name)} letters long" if long else "is not a name"
        raise ShardcError(
            "SHC107",
            f"{what} `{str(name)[:MAX_NAME]}` {reason}",
            span=span,
            help=f"{'ASCII ' * (what == 'axis')}letters, digits and `_`, beginning with a letter, {MAX_NAME} at most",
        )
    return name
