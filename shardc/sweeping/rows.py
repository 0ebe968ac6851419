"""A sweep's points: the plan at each, and where between two of them communication takes as long as compute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardc.errors import ShardcError
from shardc.sweeping.ranges import Over
from shardc.sweeping.standing import Sizes, Stands


@dataclass(frozen=True, slots=True)
class Row:
    """The plan at one point, per device; `refused` where there is none. `stands` is what else it is of, and its notes
    what was assumed."""

    sizes: Sizes
    refused: ShardcError | None = None
    compute_s: float = 0.0
    communication_s: float = 0.0
    time_s: float = 0.0
    wire_bytes: int = 0
    flops: int = 0
    peak_bytes: int = 0
    moves: str = ""
    stands: Stands | None = None

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
    beside: Sizes  # the other sizes

    def __str__(self) -> str:
        beside = "".join(f", {name}={size}" for name, size in self.beside)
        first, last = self.between
        at = f"{self.at:,.0f}" if self.at >= 1000 else f"{self.at:.4g}"
        return f"communication = compute at {self.name} = {at}{beside} (between {first:,} and {last:,})"


def neighbours(
    rows: Sequence[Row], over: Sequence[Over], between: Sequence[Row] = ()
) -> Iterator[tuple[slice, Row, Row]]:
    """Two legal rows beside each other along one quantity, of which another thing is the limit, and where its names
    are: along what is swept last, then along what is swept before. Of the rows between some, those whose other sizes
    are swept."""
    end = sum(len(each.names) for each in over)
    for each in reversed(over):
        own = slice(end - len(each.names), end)
        end = own.start
        for group in _lines(rows, between, own):
            for one, other in pairwise(sorted(group, key=lambda row: _numbers(row, own))):
                if one.limited_by != other.limited_by:
                    yield own, one, other


def _lines(rows: Sequence[Row], between: Sequence[Row], own: slice) -> Sequence[Sequence[Row]]:
    """The legal rows, those together that differ in these sizes alone."""
    found: dict[Sizes, list[Row]] = {_beside(row, own): [] for row in rows}
    for row in (*rows, *between):
        if row.refused is None and _beside(row, own) in found:
            found[_beside(row, own)].append(row)
    return list(found.values())


def _beside(row: Row, own: slice) -> Sizes:
    return row.sizes[: own.start] + row.sizes[own.stop :]


def _numbers(row: Row, own: slice) -> list[int]:
    return [size for _, size in row.sizes[own]]


def crossing(own: slice, one: Row, other: Row) -> Crossing:
    """Of a split along its first axis."""
    (name, first), (_, last) = one.sizes[own.start], other.sizes[own.start]
    return Crossing(name, _equal_at((first, one), (last, other)), (first, last), _beside(one, own))


def _equal_at(one: tuple[int, Row], other: tuple[int, Row]) -> float:
    """Where communication ÷ compute is 1, taken as a power of the size: times go with B, or with 1/X."""
    (first, before), (last, after) = one, other
    if min(row.communication_s * row.compute_s for row in (before, after)) == 0:
        return float(last if before.communication_s == before.compute_s == 0 else first)
    ratios = [math.log(row.communication_s / row.compute_s) for row in (before, after)]
    return first * math.exp(math.log(last / first) * ratios[0] / (ratios[0] - ratios[1]))
