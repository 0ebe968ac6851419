"""A table of text in columns, as `tabulate` draws it, which takes longer to import than a plan to find."""

from __future__ import annotations

from collections.abc import Sequence


def columns(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Headers, a rule, and the rows: aligned at the left, a column at least two wider than its header.

    >>> print(columns(("step", "time"), [("Slice", "0"), ("AllGather_X A", "46.6 µs")]))
    step           time
    -------------  -------
    Slice          0
    AllGather_X A  46.6 µs
    """
    widths = [max([len(header) + 2, *map(len, cells)]) for header, *cells in zip(headers, *rows, strict=True)]
    lines = [headers, ["-" * width for width in widths], *rows]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
