"""Which names may enter a program. Checked by the parser and again here, since names become code."""

from __future__ import annotations

import keyword
import re

from shardc.errors import ShardcError, Span

MAX_NAME = 64
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
# Names that emitted code uses for itself.
RESERVED = frozenset({"jax", "jnp", "np", "P", "program"})


def check_name(name: str, what: str, span: Span | None = None) -> str:
    """`name` if it may name an axis, a dim or an array; otherwise SHC107."""
    if type(name) is not str or not _NAME.fullmatch(name):
        long = isinstance(name, str) and len(name) > MAX_NAME
        reason = f"is {len(name)} letters long" if long else "is not a name"
        raise ShardcError(
            "SHC107",
            f"{what} `{str(name)[:MAX_NAME]}` {reason}",
            span=span,
            help=f"letters, digits and `_`, beginning with a letter, {MAX_NAME} at most",
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name) or (what == "array" and name in RESERVED):
        raise ShardcError("SHC107", f"{what} `{name}` is a reserved word", span=span, help="choose another name")
    return name
