"""What a sweep finds: a row for each point, where communication and compute are equal, and the best point."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any

from shardc.errors import ShardcError
from shardc.io.text import json_text
from shardc.sweeping.ranges import Over

VERSION = 1


@dataclass(frozen=True, slots=True)
class Row:
    """The plan at one point, per device; `refused` where there is none."""

    sizes: tuple[tuple[str, int], ...]
    refused: ShardcError | None = None
    compute_s: float = 0.0
    communication_s: float = 0.0
    time_s: float = 0.0
    wire_bytes: int = 0
    flops: int = 0
    peak_bytes: int = 0
    moves: str = ""

    @property
    def limited_by(self) -> str:
        """Which of the two takes longer, and could not be hidden behind the other if all of that one could."""
        return "communication" if self.communication_s > self.compute_s else "compute"


@dataclass(frozen=True, slots=True)
class Crossing:
    """Between two points of a sweep: where communication takes as long as compute."""

    name: str
    at: float
    between: tuple[int, int]
    beside: tuple[tuple[str, int], ...]  # the other sizes

    def __str__(self) -> str:
        beside = "".join(f", {name}={size}" for name, size in self.beside)
        first, last = self.between
        at = f"{self.at:,.0f}" if self.at >= 1000 else f"{self.at:.4g}"
        return f"communication = compute at {self.name} = {at}{beside} (between {first:,} and {last:,})"


@dataclass(frozen=True)
class Swept:
    """The rows of a sweep in order; `print` shows them as a table."""

    statements: tuple[str, ...]
    over: tuple[Over, ...]
    rows: tuple[Row, ...]
    axes: tuple[str, ...]  # of the mesh
    probes: tuple[Row, ...] = ()  # planned between rows, to find the crossings

    @cached_property
    def crossings(self) -> tuple[Crossing, ...]:
        """Along the quantity that is swept last; of a split along its first axis."""
        every = sorted((*self.rows, *self.probes), key=lambda row: [size for _, size in row.sizes])
        return tuple(_crossing(*both, len(self.over[-1].names)) for both in neighbours(every, self.over))

    @cached_property
    def best(self) -> Row | None:
        """The row of the least time, of equal ones the first; None where dims change, and the work with them."""
        if not all(name in self.axes for each in self.over for name in each.names):
            return None
        return min((row for row in self.rows if row.refused is None), key=lambda row: row.time_s)

    @cached_property
    def optimum(self) -> float | None:
        """X_opt, where the devices of `X*Y=N` were split among two axes: the size of X between whole ones.

        The communication of three neighbours, the least between, is p·X + q/X + r; its minimum is √(q/p).
        """
        if len(self.over) != 1 or len(self.over[0].names) != 2:
            return None
        rows = [row for row in self.rows if row.refused is None]
        place = min(range(len(rows)), key=lambda number: rows[number].communication_s)
        if not 0 < place < len(rows) - 1:
            return None
        return _least_between([(row.sizes[0][1], row.communication_s) for row in rows[place - 1 : place + 2]])

    def to_json(self) -> str:
        """The JSON text of `shardc plan --sweep --json`."""
        fields = {
            "version": VERSION,
            "statements": list(self.statements),
            "sweep": [each.text for each in self.over],
            "rows": [_fields(row) for row in self.rows],
            "crossings": [
                {"name": found.name, "at": found.at, "between": list(found.between), "beside": dict(found.beside)}
                for found in self.crossings
            ],
            "best": None if self.best is None else dict(self.best.sizes),
            "optimum": self.optimum,
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

    def __str__(self) -> str:
        from shardc.sweeping.table import swept_table

        return swept_table(self)


def neighbours(rows: Sequence[Row], over: Sequence[Over]) -> Iterator[tuple[Row, Row]]:
    """Two legal rows beside each other, along the quantity that is swept last, of which another thing is the limit."""
    count = len(over[-1].names)
    for _, group in groupby(rows, key=lambda row: row.sizes[:-count]):
        for one, other in pairwise(row for row in group if row.refused is None):
            if one.limited_by != other.limited_by:
                yield one, other


def _crossing(one: Row, other: Row, count: int) -> Crossing:
    (name, first), (_, last) = one.sizes[-count], other.sizes[-count]
    return Crossing(name, _equal_at((first, one), (last, other)), (first, last), one.sizes[:-count])


def _equal_at(one: tuple[int, Row], other: tuple[int, Row]) -> float:
    """Where communication ÷ compute is 1, taken as a power of the size: times go with B, or with 1/X."""
    (first, before), (last, after) = one, other
    if min(row.communication_s * row.compute_s for row in (before, after)) == 0:
        return float(last if before.communication_s == before.compute_s == 0 else first)
    ratios = [math.log(row.communication_s / row.compute_s) for row in (before, after)]
    return first * math.exp(math.log(last / first) * ratios[0] / (ratios[0] - ratios[1]))


def _least_between(near: list[tuple[int, float]]) -> float | None:
    """The minimum of p·x + q/x + r through three points; None where it has none."""
    (x0, t0), (x1, t1), (x2, t2) = near
    # Differences rid us of r, and divided by those of x leave two equations in p and q.
    one, other = (t1 - t0) / (x1 - x0), (t2 - t1) / (x2 - x1)
    q = (one - other) / (1 / (x1 * x2) - 1 / (x0 * x1))
    p = one + q / (x0 * x1)
    return math.sqrt(q / p) if p > 0 and q > 0 else None


def _fields(row: Row) -> dict[str, Any]:
    sizes = {"sizes": dict(row.sizes)}
    return sizes | ({"error": row.refused.to_json()} if row.refused is not None else _figures(row))


def _figures(row: Row) -> dict[str, Any]:
    names = ("compute_s", "communication_s", "time_s", "limited_by", "wire_bytes", "flops", "peak_bytes", "moves")
    return {name: getattr(row, name) for name in names}


def _flat(row: Row) -> dict[str, Any]:
    figures = _figures(row) if row.refused is None else {"error": row.refused.code}
    return dict(row.sizes) | figures
