"""A text in the canonical spelling, its comments where they were: what `shardc fmt` writes.

A[I_X,J]->B[I, J]   # gathered          A[I_X, J] → B[I, J]  # gathered
C[I]=relu( D[I] );  E[I] -> F[I]        C[I] = relu(D[I])
                                        E[I] → F[I]
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardc.errors import Span
from shardc.notation import tree
from shardc.notation.parse import parse_tree
from shardc.notation.paste import without_frames
from shardc.notation.printer import loop_head, print_item
from shardc.notation.scan import source_of

_COMMENT = re.compile(r"#[^\n]*")
_SAYS = re.compile(r"[^\W\d_]{2}|=")  # a remark, or a statement that says nothing; not a number, a bullet, a sign
_INDENT = "    "


def formatted(text: str, name: str = "<expression>") -> str:
    """The same program, a statement a line; comments and single blank lines stay. SHC1xx if it cannot be read."""
    whole = source_of(text, name).text.replace("\r\n", "\n")
    return "\n".join(_block(whole, 0, len(whole), parse_tree(whole, name).items)) + "\n"


def _block(text: str, start: int, end: int, items: Sequence[tree.Item], head: str = "") -> list[str]:
    """The lines of what stands between two places: of each item, and of what is between them."""
    lines = [head] if head else []
    for item in items:
        span = _span(item)
        _add_between(lines, text[start : span.start])
        lines += _item(text, item, span)
        start = span.end
    _add_between(lines, text[start:end])
    return lines[:-1] if lines[-1] == "" else lines


def _span(item: tree.Item) -> Span:
    assert item.span is not None, "a text was parsed"
    return item.span


def _item(text: str, item: tree.Item, span: Span) -> list[str]:
    """A loop with what is in it; of anything else the comments inside its brackets go before it."""
    if not isinstance(item, tree.For):
        return [*(comment.rstrip() for comment in _COMMENT.findall(span.text)), print_item(item)]
    inside = text.index("{", span.start) + 1
    until = text.rindex("}", inside, span.end)
    head, *body = _block(text, inside, until - (text[until - 1] == "\\"), item.body, loop_head(item.dim, item.down))
    return [head, *(f"{_INDENT}{line}" if line else "" for line in body), "}"]


def _add_between(lines: list[str], gap: str) -> None:
    """Adds what stands between two items: the comment behind the one before, comments, blank lines."""
    behind, *rows = without_frames(gap).split("\n") if lines else ["", *without_frames(gap).split("\n")]
    if kept := _kept(behind):
        lines[-1] = f"{lines[-1]}  {kept}"
    for number, row in enumerate(rows, start=1):
        kept = _kept(row)
        blank = not row.strip() and number < len(rows) and lines and lines[-1]  # the last row goes on with an item
        if kept or blank:
            lines.append(kept)


def _kept(row: str) -> str:
    """What of a row between items is kept, as a comment: one, a remark, a statement that says nothing."""
    before, sign, comment = row.partition("#")
    said = before.strip(" \t;&$`")
    if not _SAYS.search(said):
        return f"#{comment}".rstrip() if sign else ""
    return f"# {said}  #{comment}".rstrip() if sign else f"# {said}"
