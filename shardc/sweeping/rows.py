"""A sweep's points: the plan at each, and where between two of them communication takes as long as compute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from shardc.errors import ShardcError
from shardc.sweeping.ranges import Over


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


def neighbours(rows: Sequence[Row], over: Sequence[Over]) -> Iterator[tuple[Row, Row]]:
    """Two legal rows beside each other, along the quantity that is swept last, of which another thing is the limit."""
    count = len(over[-1].names)
    for _, group in groupby(rows, key=lambda row: row.sizes[:-count]):
        for one, other in pairwise(row for row in group if row.refused is None):
            if one.limited_by != other.limited_by:
                yield one, other


def crossing(one: Row, other: Row, count: int) -> Crossing:
    (name, first), (_, last) = one.sizes[-count], other.sizes[-count]
    return Crossing(name, _equal_at((first, one), (last, other)), (first, last), one.sizes[:-count])


def _equal_at(one: tuple[int, Row], other: tuple[int, Row]) -> float:
    """Where communication ÷ compute is 1, taken as a power of the size: times go with B, or with 1/X."""
    (first, before), (last, after) = one, other
    if min(row.communication_s * row.compute_s for row in (before, after)) == 0:
        return float(last if before.communication_s == before.compute_s == 0 else first)
    ratios = [math.log(row.communication_s / row.compute_s) for row in (before, after)]
    return first * math.exp(math.log(last / first) * ratios[0] / (ratios[0] - ratios[1]))


def least_between(near: list[tuple[int, float]]) -> float | None:
    """The minimum of p·x + q/x + r through three points; None where it has none."""
    (x0, t0), (x1, t1), (x2, t2) = near
    # Differences rid us of r, and divided by those of x leave two equations in p and q.
    one, other = (t1 - t0) / (x1 - x0), (t2 - t1) / (x2 - x1)
    q = (one - other) / (1 / (x1 * x2) - 1 / (x0 * x1))
    p = one + q / (x0 * x1)
    return math.sqrt(q / p) if p > 0 and q > 0 else None
