"""Time as a function of bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

PICO = 10**12


def picoseconds(seconds: float) -> int:
    """Rounded up, so that a whole is never dearer than its parts; but not for the last bits of a float."""
    return math.ceil(seconds * PICO - 1e-6)


@dataclass(frozen=True, slots=True)
class Rate:
    """Time as a function of the local bytes L before the move: max(latency_s, L · s_per_byte); of rounds the sum. Up to
    `near_bytes`, what is done on the chip, it is L · near_s_per_byte."""

    latency_s: float
    s_per_byte: float
    then: Rate | None = None
    near_bytes: int = 0
    near_s_per_byte: float = 0.0

    def seconds(self, local_bytes: int) -> float:
        per_byte = self.s_per_byte if local_bytes > self.near_bytes else self.near_s_per_byte
        here = max(self.latency_s, local_bytes * per_byte)
        return here if self.then is None else here + self.then.seconds(local_bytes)

    def rounds(self) -> Iterator[Rate]:
        """It, and those that follow."""
        yield self
        if self.then is not None:
            yield from self.then.rounds()

    def time_ps(self, local_bytes: int) -> int:
        return picoseconds(self.seconds(local_bytes))
