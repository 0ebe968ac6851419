"""Every fault of a text: each is told, and looked past.

A statement with a fault is left out, and the rest read again. What then is missing because of that is no fault of its
own; and where a declaration is at fault, all that follows might be, and nothing more is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from shardc.errors import ShardcError, Span

MAX_FAULTS = 20
_WORD = re.compile(r"\w[\w']*")
_ARRAY = re.compile(r"\w[\w']*(?=\s*(?:\[|:\s*\w+\s*\[|=(?!=)))")  # with brackets, or bound
_DIMS = re.compile(r"\[[^][]*\]")
_DECLARATION = re.compile(r"\s*(?:mesh|Mesh|dims|dtype|chip|topology)\b")
_OF_ARRAYS = {"SHC206", "SHC207", "SHC210", "SHC214", "SHC218"}  # said of the dims and types that arrays have


def every_fault(first: ShardcError, read: Callable[[str], object]) -> list[ShardcError]:
    """The first one and the others, in the order in which they are met. `read` raises the next."""
    found, error = [first], first
    if first.span is None:
        return found
    source, lost = first.span.source, set[str]()
    text, unknown = source.text, set[str]()
    while error.span is not None and len(found) < MAX_FAULTS:
        start, end = _statement(text, error.span.start)
        if _DECLARATION.match(text, start) or not text[start:end].strip():
            break
        lost |= set(_WORD.findall(text[start:end]))
        unknown |= set(_ARRAY.findall(text[start:end])) - set(_ARRAY.findall(text[:start]))
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
        try:
            read(text)
            break
        except ShardcError as another:
            error = another
        if error.span is not None:
            if error.span.source.text != text:  # of an option: no fault of the text
                break
            error.span = Span(source, error.span.start, error.span.end)
            if not _comes_of(error, error.span, lost, unknown):
                found.append(error)
    return found


def _comes_of(error: ShardcError, span: Span, lost: set[str], unknown: set[str]) -> bool:
    """Whether an error is there because statements are left out, or may be: what they use is not used then, and of
    what they were the first to name nothing is known."""
    match error.code:
        case "SHC217" | "SHC226":
            return bool(lost.intersection(_WORD.findall(span.text)[:1]))
        case code if code in _OF_ARRAYS:
            start, end = _statement(span.source.text, span.start)
            return bool(unknown.intersection(_WORD.findall(_DIMS.sub("", span.source.text[start:end]))))
        case _:
            return False


def _statement(text: str, place: int) -> tuple[int, int]:
    """From where to where the statement at a place goes; over several lines if its brackets are closed there."""
    start = max(text.rfind(end, 0, place) for end in "\n;") + 1
    ends = [at for end in "\n;" if (at := text.find(end, place)) >= 0]
    line, depth = min(ends, default=len(text)), 0
    for at in range(start, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if at >= place and text[at] in "\n;" and depth <= 0:
            return start, at
    return start, line if depth > 0 else len(text)
