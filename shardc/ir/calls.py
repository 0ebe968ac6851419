"""What is true of a function at some arguments: its places, of which type they are, in which it is linear.

An argument is an array or a number. `numbers` has an entry for each argument: the number, or None where the next
operand stands; and nothing at all where every argument is an operand.

    A / 8            operands A        numbers None, 8
    where(M, A, 0)   operands M, A     numbers None, None, 0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from shardc.errors import ShardcError, Span
from shardc.ir.dtypes import DTYPES, DType, Kind, multiplied
from shardc.ir.functions import FUNCTIONS, Function, Gives
from shardc.ir.scalars import Literal

T = TypeVar("T")
N = TypeVar("N")


def arguments(operands: Sequence[T], numbers: Sequence[N | None]) -> Iterator[T | N]:
    """The arguments in their places."""
    waiting = iter(operands)
    yield from (next(waiting) if number is None else number for number in numbers)
    yield from waiting


def places(row: Function, numbers: Sequence[Any]) -> tuple[int, ...]:
    """The place of each operand among the arguments."""
    return tuple(place for place in range(row.arity) if place >= len(numbers) or numbers[place] is None)


def linear_operands(function: str, numbers: Sequence[Any]) -> frozenset[int]:
    """The operands in which, taken together, a function is linear, each by its number among the operands.

    where(M, A, 0) is linear in A; A + 1 is not.
    """
    return _linear_operands(function, tuple(numbers))


@lru_cache(maxsize=1024)
def _linear_operands(function: str, numbers: tuple[Any, ...]) -> frozenset[int]:
    row = FUNCTIONS[function]
    stand = places(row, numbers)
    if row.scales:
        return frozenset({0}) if len(stand) == 1 else frozenset()
    if not all(_is_zero(numbers[place]) for place in row.linear if place not in stand):
        return frozenset()
    return frozenset(number for number, place in enumerate(stand) if place in row.linear)


def _is_zero(number: Any) -> bool:
    if isinstance(number, Literal):
        return number.text != "inf" and float(number.text) == 0
    return isinstance(number, int | float) and number == 0


def fills_zeros(function: str, numbers: Sequence[Any]) -> bool:
    """Whether it is an array of zeros, whose partial sums are zeros too."""
    return function == "full" and not any(numbers)


def meeting(row: Function, operands: Sequence[DType], whole: Sequence[bool | None]) -> DType:
    """The type in which the arguments of a function meet: the operands' promoted, and of integers beside a number that
    is not whole f32. `whole` has an entry for each argument as `numbers` has: whether the number is whole.

    Of what is true or false nothing meets; then it is the operand's own.
    """
    stand = places(row, whole)
    met = [dtype for dtype, place in zip(operands, stand, strict=True) if place not in row.conditions]
    if not met and row.gives is Gives.SAME:
        return DTYPES["f32" if False in whole else "int32"]  # where(M, 1, 0)
    found = multiplied(met or operands)
    if found.kind in (Kind.INT, Kind.BOOL) and False in whole:
        return DTYPES["f32"]
    if row.gives is Gives.FLOAT and found.kind is Kind.INT:
        return DTYPES["f64" if found.is_wide else "f32"]
    return found


def holds(dtype: DType, number: int | float) -> bool:
    """Whether a type has room for a number that meets it. Of floats each has: what is too large is infinite."""
    if dtype.kind is not Kind.INT or not isinstance(number, int):
        return True
    bits = 8 * dtype.bytes
    lowest, beyond = (0, 1 << bits) if dtype.name.startswith("u") else (-(1 << (bits - 1)), 1 << (bits - 1))
    return lowest <= number < beyond


def no_room(dtype: DType, number: int | float, span: Span | None) -> ShardcError:
    return ShardcError(
        "SHC214", f"{dtype} has no room for {number}", span=span, help="cast the array to a wider type: `int32(A)`"
    )


def whole(numbers: Sequence[int | float | None]) -> tuple[bool | None, ...]:
    """Of each argument that is a number whether it is whole."""
    return tuple(None if number is None else isinstance(number, int) for number in numbers)


def result_type(row: Function, met: DType) -> DType:
    """Of a function whose arguments meet in a type; not of a cast, which is asked for its own."""
    return DTYPES["bool"] if row.gives is Gives.BOOL else met
