"""A sweep as a table: a row for each point, then the crossings and the best."""

from __future__ import annotations

from tabulate import tabulate

from shardc.report.units import in_bytes, in_seconds
from shardc.sweeping.result import Row, Swept

_WIDEST = 60


def swept_table(swept: Swept) -> str:
    names = [name for each in swept.over for name in each.names]
    headers = (*names, "compute", "communication", "limited by", "time", "wire bytes", "peak memory", "moves")
    rows = [_line(row, row is swept.best) for row in swept.rows]
    widths = [None] * (len(headers) - 1) + [_WIDEST]
    aligned = ("right",) * (len(names) + 2) + ("left", "right", "right", "right", "left")
    found = tabulate(
        rows, headers=headers, tablefmt="simple", disable_numparse=True, maxcolwidths=widths, colalign=aligned
    )
    table = "\n".join(line.rstrip() for line in found.splitlines())
    return "\n\n".join(["\n".join(swept.statements), table, "\n".join(_findings(swept))])


def _line(row: Row, best: bool) -> tuple[str, ...]:
    sizes = tuple(f"{size:,}" for _, size in row.sizes)
    if row.refused is not None:
        return (*sizes, "", "", "", "", "", "", f"{row.refused.code}: {row.refused.message}")
    times = (in_seconds(row.compute_s), in_seconds(row.communication_s), row.limited_by)
    time = in_seconds(row.time_s) + (" *" if best else "  ")
    return (*sizes, *times, time, in_bytes(row.wire_bytes), in_bytes(row.peak_bytes), row.moves)


def _findings(swept: Swept) -> list[str]:
    lines = [str(crossing) for crossing in swept.crossings]
    if not lines:
        legal = [row for row in swept.rows if row.refused is None]
        lines = [f"limited by {legal[0].limited_by} everywhere" if len(legal) > 1 else "one point: no crossing"]
    if swept.best is not None:
        best = ", ".join(f"{name}={size:,}" for name, size in swept.best.sizes)
        between = f"; least communication at {swept.over[0].names[0]} = {swept.optimum:.1f}" if swept.optimum else ""
        lines.append(f"* least time: {best}{between}")
    return lines
