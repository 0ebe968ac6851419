"""What can be said of a text before it is parsed: its length, its characters, its depth.

Parsing a text that passes takes linear time, bounded depth, and meets only characters of the grammar.
"""

from __future__ import annotations

import re
import unicodedata

from shardc.errors import ShardcError, Source, Span
from shardc.ir.names import GREEK
from shardc.notation.instead import LOGIC, POWER

MAX_BYTES = 64 * 1024
MAX_DEPTH = 50

_EVENT = re.compile(rf"#[^\n]*|[()]|\r(?!\n)|[^\t\r\n -~·⋅→⊙≤≥≠∞{''.join(GREEK.values())}]")
# Characters that change what a reader sees without being seen; refused in comments too.
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
# Letters of other scripts that look like ASCII ones. NFKC folds full-width and styled letters, but not these.
_LOOK_ALIKE = dict(
    zip(
        "АВЕІЈКМНОРСТУХЅаеіјорсухѕΑΒΕΖΗΙΚΜΝΟΡΤΥΧο",
        "ABEIJKMHOPCTYXSaeijopcyxsABEZHIKMNOPTYXo",
        strict=True,
    )
)
_INSTEAD = {
    "−": "-", "–": "-", "—": "-", "⟶": "->", "⇒": "->", "➔": "->", "↦": "->",
    "÷": "/", "⊘": "/", "⊕": "+", "∗": "*", "⋆": "*", "⟵": "=",
    "•": "·", "∙": "·", "・": "·", "∘": "⊙", "⨀": "⊙", "⊗": "·",
    "‘": "'", "’": "'", "“": '"', "”": '"', "⟨": "<", "⟩": ">", "，": ",", "；": ";",
}  # fmt: skip
# What is no sign here, but a function or a word.
_REMEDIES = {
    "…": "write every operand out, and every dim; only `C[…] = …` alone may leave open how an array is made",
    "√": "write `sqrt(A)`",
    "∧": LOGIC, "∨": LOGIC, "¬": LOGIC,
    "‖": "the norm is `sqrt(sum_J(square(A)))`",
}  # fmt: skip


def source_of(text: object, name: str) -> Source:
    """The text without its byte-order mark, which is not a column."""
    if not isinstance(text, str):
        raise ShardcError("SHC101", f"the notation is text, not {type(text).__name__}", help="pass a str")
    return Source(str(text).removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}"), name)


def scan(source: Source) -> None:
    """A coded error if the text is too long, nested too deeply, or holds a character that does not belong."""
    _check_length(source)
    depth = 0
    for event in _EVENT.finditer(source.text):
        found = event.group()
        if found[0] == "#":
            _check_comment(source, event.start(), found)
        elif found == "(":
            depth += 1
            if depth > MAX_DEPTH:
                raise too_deep(Span(source, event.start(), event.end()))
        elif found == ")":
            depth -= 1
        else:
            raise _misplaced(source, event.start())


def too_deep(span: Span | None, most: int = MAX_DEPTH) -> ShardcError:
    return ShardcError(
        "SHC403",
        f"nested more than {most} deep",
        span=span,
        help="give a part a name of its own: `Part = …`",
    )


def _check_length(source: Source) -> None:
    length = len(source.text)
    if length <= MAX_BYTES:
        length = len(source.text.encode("utf-8", "surrogatepass"))
    if length > MAX_BYTES:
        raise ShardcError(
            "SHC401",
            f"the text is {length} bytes long; the limit is 64 KiB = {MAX_BYTES}",
            help="split the program into several texts",
        )


def _check_comment(source: Source, start: int, comment: str) -> None:
    hidden = _HIDDEN.search(comment.removesuffix("\r"))
    if hidden:
        raise _misplaced(source, start + hidden.start())


def _misplaced(source: Source, offset: int) -> ShardcError:
    found = source.text[offset]
    span = Span(source, offset, offset + 1)
    what = f"U+{ord(found):04X} {unicodedata.name(found, _nameless(found))}"
    if found.isdecimal():
        digit = unicodedata.decimal(found)
        return ShardcError(
            "SHC108", f"{what} is not an ASCII digit", span=span, help=f"write `{digit}`, the ASCII digit"
        )
    remedy = _REMEDIES.get(found) or _raised(found)
    if remedy:
        return ShardcError("SHC106", f"{what} does not belong here", span=span, help=remedy)
    meant = _meant(found)
    if meant.isalnum():
        message, remedy = f"{what} is not the letter `{meant}`", f"write `{meant}`, the ASCII letter"
    else:
        message = f"{what} does not belong here"
        remedy = f"write `{meant}`" if meant.strip() else "write a plain space" if meant else "delete it"
    return ShardcError("SHC106", message, span=span, help=remedy)


def _raised(found: str) -> str:
    """What is written for a letter or a digit that is set above or below the line: `A[I]²`, `Aᵀ`, `A[Iₓ]`."""
    kind, _, code = unicodedata.decomposition(found).partition(" ")
    match kind:
        case "<super>":
            return POWER
        case "<sub>":
            return f"a subscript is written behind `_`: `_{chr(int(code, 16))}`"
        case _:
            return ""


def _meant(found: str) -> str:
    """The ASCII text that a stray character most likely stands for; empty if there is none."""
    if found in _LOOK_ALIKE:
        return _LOOK_ALIKE[found]
    if found in _INSTEAD:
        return _INSTEAD[found]
    if unicodedata.category(found) == "Zs":
        return " "
    folded = unicodedata.normalize("NFKC", found)
    return folded if folded.isascii() and folded.isprintable() else ""


def _nameless(found: str) -> str:
    if "\ud800" <= found <= "\udfff":
        return "(a lone surrogate)"
    return {"\0": "NULL", "\r": "CARRIAGE RETURN with no line feed"}.get(found, "(a control character)")
