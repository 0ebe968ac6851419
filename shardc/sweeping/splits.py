"""Of each size that is swept the best way to share the devices out among axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shardc.sweeping.ranges import Over
from shardc.sweeping.rows import Row
from shardc.sweeping.standing import Sizes


@dataclass(frozen=True, slots=True)
class BestSplit:
    """The row of the least time, of equal ones the first, of those with the same dims.

    `optimum` is X_opt, where the devices of `X*Y=N` were split among two axes: the size of X between whole ones. The
    communication of three neighbours, the least between, is p·X + q/X + r; its minimum is √(q/p).
    """

    beside: Sizes
    best: Row
    optimum: float | None

    @property
    def axes(self) -> Sizes:
        return tuple(each for each in self.best.sizes if each not in self.beside)

    def __str__(self) -> str:
        least = f"; least communication at {self.axes[0][0]} = {self.optimum:.1f}" if self.optimum else ""
        at = f" at {_spelled(self.beside)}" if self.beside else ""
        return f"* least time{at}: {_spelled(self.axes)}{least}"


def splits(legal: Sequence[Row], over: Sequence[Over], axes: Sequence[str]) -> tuple[BestSplit, ...]:
    """For each setting of the dims; none where no axis is swept."""
    swept = [each.names for each in over if all(name in axes for name in each.names)]
    if not swept:
        return ()
    found: dict[Sizes, list[Row]] = {}
    for row in legal:
        found.setdefault(tuple(each for each in row.sizes if each[0] not in axes), []).append(row)
    first = swept[0][0] if len(swept) == 1 and len(swept[0]) == 2 else None
    return tuple(
        BestSplit(beside, min(rows, key=lambda row: row.time_s), None if first is None else _optimum(rows, first))
        for beside, rows in found.items()
    )


def _optimum(rows: Sequence[Row], axis: str) -> float | None:
    place = min(range(len(rows)), key=lambda number: rows[number].communication_s)
    if not 0 < place < len(rows) - 1:
        return None
    return least_between([(dict(row.sizes)[axis], row.communication_s) for row in rows[place - 1 : place + 2]])


def _spelled(sizes: Sizes) -> str:
    return ", ".join(f"{name}={size:,}" for name, size in sizes)


def least_between(near: list[tuple[int, float]]) -> float | None:
    """The minimum of p·x + q/x + r through three points; None where it has none."""
    (x0, t0), (x1, t1), (x2, t2) = near
    # Differences rid us of r, and divided by those of x leave two equations in p and q.
    one, other = (t1 - t0) / (x1 - x0), (t2 - t1) / (x2 - x1)
    q = (one - other) / (1 / (x1 * x2) - 1 / (x0 * x1))
    p = one + q / (x0 * x1)
    return math.sqrt(q / p) if p > 0 and q > 0 else None
