"""Numbers as they are written: read, or refused if malformed."""

from __future__ import annotations

import re

from shardc.errors import ShardcError, Span
from shardc.io.units import size_in_units
from shardc.ir.mesh import check_size

MAX_DIGITS = 100
_NUMBER = re.compile(r"(?P<whole>[0-9]*)(?:\.[0-9]*)?(?:[eE](?P<power>[+-]?[0-9]+))?")


def is_name_gone_wrong(text: str) -> bool:
    """`1A`."""
    return re.fullmatch(r"[0-9]+(?![eE][0-9])[A-Za-z]\w*", text) is not None


def neither(text: str, span: Span) -> ShardcError:
    shown = text if len(text) <= 40 else text[:40] + "…"
    return ShardcError(
        "SHC101", f"`{shown}` is neither a number nor a name", span=span, help="a name begins with a letter: `A1`"
    )


def number_of(text: str, span: Span) -> str:
    """A number as written, and short enough to be read."""
    if len(text) > MAX_DIGITS:
        raise ShardcError(
            "SHC407", f"a number of {len(text)} digits; the limit is {MAX_DIGITS}", span=span, help="write it as 1e30"
        )
    if is_name_gone_wrong(text):
        raise neither(text, span)
    found = _NUMBER.fullmatch(text)
    if found is None or len((found["power"] or "").lstrip("+-")) > 3:
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise ShardcError("SHC108", f"`{shown}` is not a number", span=span, help="a number is written 2, 0.5 or 1e-6")
    if len(found["whole"]) > 1 and found["whole"].startswith("0"):
        raise ShardcError("SHC108", f"`{text}` begins with a zero", span=span, help=f"write {text.lstrip('0') or '0'}")
    return text


def size_of(text: str, what: str, name: str, code: str, span: Span) -> int:
    """A size as written; refused before int() would spend itself on it."""
    digits = text.removeprefix("-")
    if len(digits) > MAX_DIGITS and digits.isdigit():
        raise ShardcError(
            "SHC407",
            f"{what} `{name}` has {len(digits)} digits; the limit is {MAX_DIGITS}",
            span=span,
            help="write a smaller size",
        )
    if not digits.isdigit():
        raise _not_whole(text, what, name, code, span)
    if len(digits) > 1 and digits[0] == "0":
        raise ShardcError(
            "SHC108", f"`{text}` begins with a zero", span=span, help=f"write {digits.lstrip('0') or '0'}"
        )
    return check_size(int(text), what, name, code=code, span=span)


def _not_whole(text: str, what: str, name: str, code: str, span: Span) -> ShardcError:
    shown = text if len(text) <= 40 else text[:40] + "…"
    meant = _meant(text)
    if re.fullmatch(r"-?[0-9]+\.?[0-9]*(?:[eE][0-9]+)?", text) or text[:1].isalpha():
        return ShardcError(
            code,
            f"{what} `{name}` = {shown} is not a whole number",
            span=span,
            help=f"write {name}={meant or '4, say'}",
        )
    remedy = f"write {name}={meant}" if meant else "plain decimal digits, as in 1024"
    return ShardcError("SHC108", f"`{shown}` is not a whole number", span=span, help=remedy)


def _meant(text: str) -> int | None:
    """`1e6` and `4k` in digits."""
    found = re.fullmatch(r"([0-9]{1,9})(?:[eE]([0-9]{1,2})|([kKmMgG]))", text)
    if found is None:
        return None
    if found[2]:
        return int(found[1]) * int(10 ** int(found[2]))
    return size_in_units(found[1] + {"K": "k", "m": "M", "g": "G"}.get(found[3], found[3]))
