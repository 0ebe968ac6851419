"""Scales of charts: round numbers on an axis, and where a value lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` on pixels from `start` to `end`; by their logarithms if `log`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log(max(each, 1e-300)) if self.log else each for each in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.0
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within: 0, 5, 10, …; by logarithms 1, 2, 5, 10, …, or powers of ten, thinned out."""
        return _decades(self.low, self.high, most) if self.log else _round(self.low, self.high, most)


def _round(low: float, high: float, most: int) -> list[float]:
    if not high > low:
        return [low]
    rough = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * times for times in (1, 2, 2.5, 5, 10) if unit * times >= rough * (1 - 1e-9))
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _decades(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low) + 1e-9), math.floor(math.log10(high) + 1e-9)
    fine = [times * 10.0**power for power in range(first, last + 1) for times in (1, 2, 5)]
    within = [value for value in fine if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
    if len(within) <= most:
        return within
    powers = [10.0**power for power in range(first, last + 1) if 10.0**power >= low * (1 - 1e-9)]
    return powers[:: -(-len(powers) // most)]


def apart(places: Sequence[float], least: float) -> list[float]:
    """The same places in the same order, moved down until no two are closer than `least`: labels side by side."""
    found: list[float] = []
    for place in places:
        found.append(place if not found else max(place, found[-1] + least))
    return found
