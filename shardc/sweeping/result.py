"""What a sweep finds: a row for each point, where communication and compute are equal, and the best point."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shardc.io.text import json_text
from shardc.sweeping.ranges import Over
from shardc.sweeping.rows import Crossing, Row, crossing, neighbours
from shardc.sweeping.splits import BestSplit, splits
from shardc.sweeping.standing import Standing, standing
from shardc.sweeping.table import rows_table

if TYPE_CHECKING:
    from shardc.report.pictures import Picture

VERSION = 1


@dataclass(frozen=True, repr=False)
class Swept:
    """The rows of a sweep in order; `print` shows them as a table."""

    statements: tuple[str, ...]
    over: tuple[Over, ...]
    rows: tuple[Row, ...]
    axes: tuple[str, ...]  # of the mesh
    probes: tuple[Row, ...] = ()  # planned between rows, to find the crossings

    @cached_property
    def crossings(self) -> tuple[Crossing, ...]:
        """Along each quantity that is swept, the last one first; of a split along its first axis."""
        return tuple(crossing(*found) for found in neighbours(self.rows, self.over, self.probes))

    @cached_property
    def legal(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.refused is None)

    @cached_property
    def stands(self) -> Standing:
        """What the rows are of, beside what is swept, and what was assumed in any of them."""
        return standing([row.stands for row in self.legal if row.stands is not None])

    @cached_property
    def best(self) -> Row | None:
        """The row of the least time, of equal ones the first; None where dims change, and the work with them."""
        return self.splits[0].best if self.splits and not self.splits[0].beside else None

    @cached_property
    def optimum(self) -> float | None:
        """X_opt, where the devices of `X*Y=N` were split among two axes, and no dim changes."""
        return None if self.best is None else self.splits[0].optimum

    @cached_property
    def splits(self) -> tuple[BestSplit, ...]:
        """Where axes change: of each setting of the dims that do, in order, the axes of the least time."""
        return splits(self.legal, self.over, self.axes)

    def to_json(self) -> str:
        """The JSON text of `shardc plan --sweep --json`."""
        stands = self.stands
        fields = {
            "version": VERSION,
            "mesh": {axis: found[0] for axis, found in stands.mesh.items() if len(found) == 1},
            "chip": stands.chip,
            "dtype": stands.dtype,
            "dims": {dim: found[0] for dim, found in stands.dims.items() if len(found) == 1},
            "notes": list(stands.notes),
            "statements": list(self.statements),
            "sweep": [each.text for each in self.over],
            "rows": [_fields(row) for row in self.rows],
            "crossings": [
                {"name": found.name, "at": found.at, "between": list(found.between), "beside": dict(found.beside)}
                for found in self.crossings
            ],
            "best": None if self.best is None else dict(self.best.sizes),
            "optimum": self.optimum,
            "splits": [
                {"beside": dict(split.beside), "best": dict(split.axes), "optimum": split.optimum}
                for split in self.splits
            ],
        }
        return json_text(fields, indent=1)

    def to_csv(self) -> str:
        """A line for each row, under the names of the JSON."""
        lines = [_flat(row) for row in self.rows]
        found = io.StringIO()
        writer = csv.DictWriter(
            found, lineterminator="\n", fieldnames=list(dict.fromkeys(key for line in lines for key in line))
        )
        writer.writeheader()
        writer.writerows(lines)
        return found.getvalue()

    def __repr__(self) -> str:
        over = ", ".join(each.text for each in self.over)
        return f"<Sweep of {'; '.join(self.statements)[:100]} over {over}: {len(self.rows)} plans>"

    def _repr_html_(self) -> str:
        from shardc.report.page.notebook import swept_html

        return swept_html(self.picture(), str(self))

    def picture(self) -> Picture:
        """Compute, communication and time over what is swept last, a chart for each other size; needs drawsvg."""
        from shardc.sweeping.drawn import picture

        return picture(self)

    def __str__(self) -> str:
        table = rows_table(
            [name for each in self.over for name in each.names], self.rows, [split.best for split in self.splits]
        )
        return "\n\n".join([str(self.stands), "\n".join(self.statements), table, "\n".join(self._findings())])

    def _findings(self) -> Iterator[str]:
        yield from map(str, self.crossings)
        counts = Counter(row.limited_by for row in self.legal)
        if len(counts) == 1:
            yield f"limited by {self.legal[0].limited_by} everywhere"
        elif not self.crossings:
            compute, communication = counts["compute"], counts["communication"]
            are = "row is" if compute == 1 else "rows are"
            yield f"{compute} {are} limited by compute, {communication} by communication, none beside each other"
        yield from map(str, self.splits)


def _fields(row: Row) -> dict[str, Any]:
    sizes = {"sizes": dict(row.sizes)}
    return sizes | ({"error": row.refused.to_json()} if row.refused is not None else _figures(row))


def _figures(row: Row) -> dict[str, Any]:
    names = ("compute_s", "communication_s", "time_s", "limited_by", "wire_bytes", "flops", "peak_bytes", "moves")
    return {name: getattr(row, name) for name in names}


def _flat(row: Row) -> dict[str, Any]:
    figures = _figures(row) if row.refused is None else {"error": row.refused.code}
    return dict(row.sizes) | figures
