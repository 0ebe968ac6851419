"""Further values of inputs: those at which functions change, 0, 1 and −1, ties, signs and large numbers.

Whole numbers that are all distinct tell devices and elements apart, but none of them is 0, no two are equal, and few
are large: `minimum(a, 100)` is `a` to them. So on one mesh each side is run on these as well, of few values each, so
that they meet in every way. A function may leave what a float cannot hold, or round, where another that is as right
does not; so these draws judge less: floats by what rounding does not explain, and large numbers only where a wider type
tells the sides apart too.

Nor does anything round that is drawn so: of small whole numbers a sum in bf16 is the one in f32. `FINE` has floats
whose last bits are set. Two of nine bits have a product of eighteen, which f32 holds, and sums of many, and bf16 not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from shardc.ir.dtypes import DType, Kind
from shardc.testing.values import Values

_ODD = (7, 1, 5, 3)  # times a power of two: every float has them exactly
_FINE_BITS = 9  # one more than bf16 has, so that what is cast to it is seen
_OFF, _OFF_UNITS, _MOST_OFF = 2.0**-12, 16, 2.0**-3  # of the largest value, what rounding explains


@dataclass(frozen=True, slots=True)
class Edge:
    """A draw of few whole numbers. `turn`: of several of the same numbers, which; `large`: they may overflow; `fine`:
    of floats instead, some between 1/2 and 1 of either sign with all their bits."""

    numbers: tuple[int, ...]
    turn: int = 0
    large: bool = False
    fine: bool = False

    def __str__(self) -> str:
        if self.fine:
            return "of inputs that have all their bits, as 0.501953125 has"
        numbers = [f"{number:,}" for number in sorted(self.numbers)]
        return f"of inputs among {', '.join(numbers)}"

    def inputs(self, taken: Sequence[tuple[tuple[int, ...], DType]]) -> list[Values] | None:
        """An array for each shape and type; None where nothing but 0 would be drawn of any type."""
        found = [self._drawn(shape, dtype, place) for place, (shape, dtype) in enumerate(taken)]
        return found if any(values.any() for values in found) else None

    def _drawn(self, shape: tuple[int, ...], dtype: DType, place: int) -> Values:
        """Of as many arrays of a shape as there are, every combination of numbers comes before one comes again."""
        held = [number for number in self.numbers if _holds(dtype, number)] or [0]
        numbers = np.array(_fine(dtype) if self.fine and dtype.unit else held)
        count = math.prod(shape)
        codes = np.random.default_rng(self.turn).permutation(count) + self.turn * count
        found = numbers[(codes // len(numbers) ** place + place) % len(numbers)]
        found = found * (1 - 2j) if dtype.kind is Kind.COMPLEX else found
        drawn: Values = found.reshape(shape)
        return drawn

    def apart(self, found: Values, wanted: Values, dtype: DType) -> Any:
        """Where values differ by more than rounding, or what a type cannot hold, explains."""
        if not any(values.dtype.kind in "fc" for values in (found, wanted)):
            return np.asarray(found != wanted)
        fits, others = np.isfinite(found), np.isfinite(wanted)
        both = fits & others
        size = max(_size(found), _size(wanted))
        off = np.abs(np.subtract(found, wanted, out=np.zeros(found.shape, np.result_type(found, wanted)), where=both))
        said = off > min(_MOST_OFF, max(_OFF, _OFF_UNITS * dtype.unit)) * size
        return said if self.large else said | (fits != others)


def _fine(dtype: DType) -> list[float]:
    """Odd multiples of the last of a float's bits, or of the ninth."""
    ends = 2 ** min(_FINE_BITS, round(-math.log2(dtype.unit)))
    odd = range(ends // 2 + 1, ends, max(2, ends // 16 // 2 * 2))
    return [sign * number / ends for number in odd for sign in (1, -1)]


def _size(values: Values) -> float:
    return float(np.max(np.abs(values), initial=0, where=np.isfinite(values)))


def _holds(dtype: DType, number: int) -> bool:
    """Whether a type has that number. Of what is only moved a few are enough."""
    if dtype.moves and dtype.kind is not Kind.COMPLEX:
        return number in ((0, 1) if dtype.kind is Kind.BOOL else (1, 2))
    match dtype.kind:
        case Kind.INT:
            ends = np.iinfo(np.dtype(dtype.jax))
            return bool(ends.min <= number <= ends.max)
        case Kind.FLOAT:
            return abs(number) <= -dtype.lowest
        case Kind.COMPLEX | Kind.BOOL:
            return True
        case _:
            assert_never(dtype.kind)


def _large(power: int) -> Edge:
    """The largest of either sign first, for arrays of few elements."""
    numbers = [sign * odd << power for odd in _ODD for sign in (1, -1)]
    return Edge((*numbers, 0), large=True)


_SIGNS, _SMALL = (0, 1, -1), (0, 1, -1, 2, -2, 3, -3)
EDGES = (
    *(Edge(_SIGNS, turn) for turn in range(3)),
    *(Edge(_SMALL, turn) for turn in range(2)),
    *(_large(power) for power in (5, 10, 15, 20)),
)
FINE = Edge(_SMALL, fine=True)
FEW_EDGES = (Edge(_SMALL), _large(10), _large(20))  # where a run takes long
