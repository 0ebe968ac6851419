"""What the inputs of a rewrite hold: whole numbers that their types have exactly, by which elements are told apart.

A wide type has a number for each element. A narrow one, true and false above all, has fewer than there are elements:
these are told apart by several draws, in each of which an element has another digit of its own code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from shardc.errors import ShardcError
from shardc.ir.dtypes import DType, Kind
from shardc.ir.sharding import Array

Values = NDArray[Any]

_FEWEST = 2  # draws: of the parts of partial sums there are as many
_CODES = 4096  # of elements
_APART = 1000  # from one input's first element to the next one's
_WIDE = 2**15  # of so many whole numbers there is one for each element
_ROOM = 8  # in narrow types numbers are as much smaller than the largest, so that sums of a few are exact as well


def draws_of(arrays: Sequence[Array]) -> int:
    """How many draws tell any two elements of these inputs apart."""
    return max((_FEWEST, *(_digits(_values(array.dtype)) for array in arrays)))


def drawn(array: Array, place: int, draw: int) -> Values:
    """The input at a place: no two elements of all inputs are alike in all draws, and in none where the type is wide.

    Numbers are of either sign, so that `relu` is not taken for nothing, and of a wide type of the other one in the next
    draw. Complex ones have both parts.
    """
    numbers = np.arange(math.prod(array.shape), dtype=np.int64) + 1 + _APART * place
    values = _values(array.dtype)
    if values is None:
        found = numbers if _is_unsigned(array.dtype) else np.where((numbers + draw) % 2, numbers, -numbers)
    else:
        code = _codes()[numbers % _CODES]
        found = values[code // len(values) ** (draw % _digits(values)) % len(values)]
    found = found * (1 - 2j) if array.dtype.kind is Kind.COMPLEX else found
    return found.reshape(array.shape)


def _values(dtype: DType) -> Values | None:
    """The numbers that are drawn of a narrow type; None of a wide one."""
    if dtype.kind is Kind.BOOL:
        return np.arange(2)
    if dtype.name == "f8_e8m0fnu":  # powers of two alone
        return np.array([1, 2])
    whole = _whole(dtype)
    if whole >= _WIDE - 1:
        return None
    largest = max(1, whole // _ROOM)
    return np.arange(0 if _is_unsigned(dtype) else -largest, largest + 1)


def _whole(dtype: DType) -> int:
    """Up to where a type has every whole number."""
    match dtype.kind:
        case Kind.BOOL:
            return 1
        case Kind.INT:
            bits = int(dtype.name.lstrip("uint"))
            return int(2 ** (bits if _is_unsigned(dtype) else bits - 1)) - 1
        case Kind.FLOAT:
            return int(1 / dtype.unit)
        case Kind.COMPLEX:
            return _WIDE
        case _:
            assert_never(dtype.kind)


def _is_unsigned(dtype: DType) -> bool:
    return dtype.name.startswith("u")


def _digits(values: Values | None) -> int:
    """How many digits of a code tell it from all others; a wide number is its own code."""
    base = _CODES if values is None else len(values)
    return next(count for count in range(1, _CODES) if base**count >= _CODES)


@lru_cache
def _codes() -> Values:
    """In an order in which neighbours have nothing in common."""
    return np.random.default_rng(0).permutation(_CODES)


def alike(values: Values, others: Any) -> Values:
    """Where values are equal. NaN is NaN."""
    found: Values = (values == others) | (values != values) & (others != others)
    return found


class Seen:
    """Of all that was compared the first value of each result, and whether any result had another one too."""

    def __init__(self) -> None:
        self._first = dict[int, Any]()
        self._count = 0
        self._varies = False

    def add(self, place: int, values: Values) -> None:
        """What is held of the result at a place."""
        if values.size:
            first = self._first.setdefault(place, values.flat[0])
            self._varies = self._varies or not alike(values, first).all()
            self._count += values.size

    def check(self) -> None:
        """SHC001 where each result is one value throughout, of more than one element each."""
        if self._varies or self._count <= len(self._first):
            return
        said = " and ".join(dict.fromkeys(str(value + 0) for value in self._first.values()))
        so = "compare what differs from input to input, as with another bound, or before it is rounded"
        raise ShardcError("SHC001", f"every element of the results is {said}, which tells nothing", help=so)
