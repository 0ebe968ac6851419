"""A text as a terminal shows it best: tables that fit its width, and colour, unless `NO_COLOR` is set.

Only what a person reads at a terminal comes here: a pipe, a file and JSON get texts as they are. rich has tables that
wrap, but importing it takes a sixth of what a short plan takes, and it puts no columns below a row.

    step           leaves     rule                       step           leaves
    -------------  ---------  -------------------   →    -------------  ---------
    AllGather_X A  A[I, J]    reshard                    AllGather_X A  A[I, J]
                                                           rule: reshard
"""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_RULE = re.compile(r" *-{2,}(?:  -{2,})*")
_BARS = re.compile("[░▒▓█]")
_LEAST = 16  # characters to which a column of words may be wrapped
_GAP = "  "
# What begins a line, or stands in it, and how it looks.
_LOOKS: tuple[tuple[re.Pattern[str], dict[str, object]], ...] = (
    (re.compile(r"^error(\[\w+\])?:", re.MULTILINE), {"fg": "red", "bold": True}),
    (re.compile(r"^ *warning:", re.MULTILINE), {"fg": "yellow", "bold": True}),
    (re.compile(r"^(note:|  = (?:help|note):|… .*)", re.MULTILINE), {"fg": "cyan"}),
    (re.compile(r"^  \| *\^+", re.MULTILINE), {"fg": "red"}),
    (re.compile(r"HBM-bound"), {"fg": "yellow"}),
    (re.compile(r"^ok:", re.MULTILINE), {"fg": "green"}),
)


def width() -> int:
    """Columns of the terminal, or `COLUMNS`."""
    return shutil.get_terminal_size().columns


def painted(text: str) -> str:
    """With colour, unless nobody wants it: https://no-color.org."""
    if os.environ.get("NO_COLOR"):
        return text
    import click

    for pattern, look in _LOOKS:
        text = pattern.sub(lambda found, look=look: click.style(found[0], **look), text)  # type: ignore[misc]  # a look is a style's arguments
    lines = text.split("\n")
    for place, line in enumerate(lines):
        if _RULE.fullmatch(line):
            lines[place] = click.style(line, dim=True)
            if place:
                lines[place - 1] = click.style(lines[place - 1], bold=True)
    return "\n".join(lines)


def fitted(text: str, columns: int) -> str:
    """The text with tables, and lines of words, no wider than so many columns, as far as their words allow."""
    return "\n".join(_fitted(text.split("\n"), columns))


def _fitted(lines: list[str], columns: int) -> Iterator[str]:
    place = 0
    while place < len(lines):
        if place + 1 < len(lines) and lines[place].strip() and _RULE.fullmatch(lines[place + 1]):
            end = place + 2
            while end < len(lines) and lines[end].strip() and _fits(lines[end], lines[place + 1]):
                end += 1
            yield from _table(lines[place:end], columns)
            place = end
        else:
            yield from _wrapped(lines[place], columns)
            place += 1


def _fits(line: str, rule: str) -> bool:
    """Whether a line is a row of the table: nothing stands between the columns."""
    return all(rule[n] == "-" or line[n : n + 1] in (" ", "") for n in range(len(rule)))


def _wrapped(line: str, columns: int) -> Iterator[str]:
    """A line of words, the rest of it four characters further right."""
    if len(line) <= columns or _BARS.search(line):
        yield line
        return
    indent = " " * (len(line) - len(line.lstrip()))
    yield from textwrap.wrap(
        line.strip(), columns, initial_indent=indent, subsequent_indent=f"{indent}    ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Cells:
    """A table's head and rows, cut where its columns are, less the empty ones; `right` are columns whose cells end
    together."""

    indent: int
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int]

    @classmethod
    def of(cls, lines: Sequence[str]) -> _Cells:
        every = [found.span() for found in re.finditer("-+", lines[1])]
        said = [*lines[:1], *lines[2:]]
        spans = [(start, end) for start, end in every if any(line[start:end].strip() for line in said)] or every[:1]
        cut = [[line[start:end] for start, end in spans] for line in said]
        full = [[each.ljust(end - start) for each, (start, end) in zip(row, spans, strict=True)] for row in cut]
        ends = {n for n in range(len(spans)) if all(row[n].endswith(row[n].strip()) for row in full)}
        wide = {n for n in ends if any(row[n].startswith(" ") for row in full)}
        return cls(every[0][0], tuple(tuple(each.strip() for each in row) for row in cut), frozenset(wide))

    @property
    def widths(self) -> list[int]:
        return [max(2, *map(len, column)) for column in zip(*self.rows, strict=True)]  # a rule's dashes


def _table(lines: Sequence[str], columns: int) -> Iterator[str]:
    """As it is, where it fits; else its longest columns wrapped; else the last ones below each row."""
    if max(map(len, lines)) <= columns:
        yield from lines
        return
    cells = _Cells.of(lines)
    kept = _kept(cells.widths, columns - cells.indent)
    widths = _narrowed(cells.widths[:kept], columns - cells.indent)
    heads, *rows = cells.rows
    yield from _row(heads[:kept], widths, cells)
    yield " " * cells.indent + _GAP.join("-" * size for size in widths)
    for row in rows:
        yield from _row(row[:kept], widths, cells)
        below = [
            f"{name}: {cell}" if name else cell for name, cell in zip(heads[kept:], row[kept:], strict=True) if cell
        ]
        yield from _wrapped(" " * (cells.indent + 2) + "; ".join(below), columns) if below else ()


def _kept(widths: Sequence[int], columns: int) -> int:
    """How many columns stand side by side: each as wide as its words, or at least so wide that words can wrap."""
    kept = len(widths)
    while kept > 1 and sum(min(size, _LEAST) for size in widths[:kept]) + len(_GAP) * (kept - 1) > columns:
        kept -= 1
    return kept


def _narrowed(widths: Sequence[int], columns: int) -> list[int]:
    found = list(widths)
    while sum(found) + len(_GAP) * (len(found) - 1) > columns and max(found) > _LEAST:
        found[max(range(len(found)), key=found.__getitem__)] -= 1
    return found


def _row(row: Sequence[str], widths: Sequence[int], cells: _Cells) -> Iterator[str]:
    parts = [textwrap.wrap(cell, size, break_on_hyphens=False) or [""] for cell, size in zip(row, widths, strict=True)]
    for number in range(max(map(len, parts))):
        line = [each[number] if number < len(each) else "" for each in parts]
        laid = [
            each.rjust(size) if place in cells.right else each.ljust(size)
            for place, (each, size) in enumerate(zip(line, widths, strict=True))
        ]
        yield (" " * cells.indent + _GAP.join(laid)).rstrip()
