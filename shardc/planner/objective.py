"""What a plan is judged by.

A price is one integer: the objective, then the other measure, then the number of steps, packed high to low.
Adding two prices adds each part, comparing them compares the parts in order, and no rounding makes two
equal plans differ. Each part has room for the sum of 2^16 largest terms.
"""

from __future__ import annotations

from enum import Enum

_STEP_BITS = 24
_PART_BITS = 96


class Objective(Enum):
    """`time`: seconds, then wire bytes. `bytes`: wire bytes, then seconds."""

    TIME = "time"
    BYTES = "bytes"

    def price(self, time_ps: int, wire_bytes: int, steps: int = 1) -> int:
        first, second = (time_ps, wire_bytes) if self is Objective.TIME else (wire_bytes, time_ps)
        return (((first << _PART_BITS) | second) << _STEP_BITS) | steps

    def first(self, price: int) -> int:
        """What the objective counts, of a price: picoseconds or bytes."""
        return price >> (_PART_BITS + _STEP_BITS)

    def wire_bytes(self, price: int) -> int:
        """The wire bytes of a price."""
        return self.measures(price)[1]

    def measures(self, price: int) -> tuple[int, int]:
        """The picoseconds and the wire bytes of a price."""
        first, second = divmod(price >> _STEP_BITS, 1 << _PART_BITS)
        return (first, second) if self is Objective.TIME else (second, first)

    def below(self, first: int) -> int:
        """The highest price of less than so many picoseconds, or bytes."""
        return (first << (_PART_BITS + _STEP_BITS)) - 1

    def clearly_less(self, first: int) -> int:
        """What is less than this is better by a byte, or by a fiftieth of the time: worth longer code."""
        return first - first // 50 if self is Objective.TIME else first

    def clearly_below(self, price: int) -> int:
        """The highest price that is clearly less than this."""
        return self.below(self.clearly_less(self.first(price)))
