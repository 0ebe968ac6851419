"""The rows of a sweep as a table."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from shardc.io.units import in_bytes, in_seconds
from shardc.sweeping.rows import Row

_WIDEST = 60


def rows_table(names: Sequence[str], rows: Sequence[Row], bests: Sequence[Row]) -> str:
    """A line for each row, the best with a star, one for each setting of the dims."""
    headers = (*names, "compute", "communication", "limited by", "time", "wire bytes", "peak memory", "moves")
    widths = [None] * (len(headers) - 1) + [_WIDEST]
    aligned = ("right",) * (len(names) + 2) + ("left", "right", "right", "right", "left")
    found = tabulate(
        [_line(row, any(row is best for best in bests)) for row in rows],
        headers=headers,
        tablefmt="simple",
        disable_numparse=True,
        maxcolwidths=widths,
        colalign=aligned,
    )
    return "\n".join(line.rstrip() for line in found.splitlines())


def _line(row: Row, is_best: bool) -> tuple[str, ...]:
    sizes = tuple(f"{size:,}" for _, size in row.sizes)
    if row.refused is not None:
        return (*sizes, "", "", "", "", "", "", f"{row.refused.code}: {row.refused.message}")
    times = (in_seconds(row.compute_s), in_seconds(row.communication_s), row.limited_by)
    time = in_seconds(row.time_s) + (" *" if is_best else "  ")
    return (*sizes, *times, time, in_bytes(row.wire_bytes), in_bytes(row.peak_bytes), row.moves)
