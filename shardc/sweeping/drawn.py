"""A sweep as a picture: curves of what compute and communication take, and where they cross."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

from shardc.report.pictures import Curve, Picture, curves_picture
from shardc.report.pictures.picture import above
from shardc.sweeping.ranges import Over
from shardc.sweeping.rows import Crossing, Row

_MOST = 8  # charts
_CURVES = ("compute", "communication", "time")


class Sweep(Protocol):
    """What is drawn of `result.Swept`."""

    @property
    def over(self) -> tuple[Over, ...]: ...
    @property
    def rows(self) -> tuple[Row, ...]: ...
    @property
    def crossings(self) -> tuple[Crossing, ...]: ...


def picture(swept: Sweep) -> Picture:
    """A chart for each setting of the other sizes, the first ones."""
    count = len(swept.over[-1].names)
    groups = [(beside, list(rows)) for beside, rows in groupby(swept.rows, key=lambda row: row.sizes[:-count])]
    charts = [_chart(beside, rows, count, swept.crossings) for beside, rows in groups[:_MOST]]
    return above(f"sweep over {', '.join(each.text for each in swept.over)}", charts)


def _chart(
    beside: tuple[tuple[str, int], ...], rows: Sequence[Row], count: int, crossings: Sequence[Crossing]
) -> Picture:
    legal = [row for row in rows if row.refused is None]
    across = rows[0].sizes[-count][0]
    title = ", ".join(["time of a run", *(f"{name}={size:,}" for name, size in beside)])
    curves = [
        Curve(name, tuple((float(row.sizes[-count][1]), getattr(row, f"{name}_s")) for row in legal))
        for name in _CURVES
    ]
    return curves_picture(title, across, curves, [found.at for found in crossings if found.beside == beside])
