"""Where the elements of an array go when it is transposed, reshaped, gathered or multiplied.

A dim is written as digits, major to minor, each a factor of one dim of the array that was begun with. Begun with
A[I, J] = [16, 8]:

    transpose            [J:8, I:16]
    reshape to [4, 32]   [J:4, J:2·I:16]              a digit is cut where the new dim ends
    all-gather of dim 1  [J:4, ag:4·J:2·I:16]         a digit that counts the devices of the group

What one device keeps of such an array is then said in the dims of the array that was begun with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

FOREIGN = ""  # the origin of a digit that counts another array's elements


@dataclass(frozen=True, slots=True)
class Digit:
    """`size` values, `stride` apart, of the dim `origin`: a dim's number, or the name of a gather."""

    origin: int | str
    size: int
    stride: int = 1


Dim: TypeAlias = tuple[Digit, ...]
View: TypeAlias = tuple[Dim, ...]


def whole(sizes: Sequence[int]) -> View:
    """An array as it lies: each dim one digit."""
    return tuple((Digit(number, size),) if size > 1 else () for number, size in enumerate(sizes))


def sizes_of(view: View) -> tuple[int, ...]:
    return tuple(prod(digit.size for digit in dim) for dim in view)


def foreign(size: int) -> Dim:
    return (Digit(FOREIGN, size, 0),) if size > 1 else ()


def transposed(view: View, order: Sequence[int]) -> View:
    """`order` names for each new dim the old one."""
    return tuple(view[number] for number in order)


def gathered(view: View, dim: int, size: int, name: str) -> View:
    """The dim is now `size` blocks, one of each device of the group."""
    block = (Digit(name, size), *view[dim]) if size > 1 else view[dim]
    return (*view[:dim], block, *view[dim + 1 :])


def reshaped(view: View, sizes: Sequence[int]) -> View | None:
    """The same elements in row-major order; None where a new dim would cut a digit unevenly."""
    left = [digit for dim in view for digit in dim]
    found: list[Dim] = []
    for size in sizes:
        taken = split(left, size)
        if taken is None:
            return None
        head, left = taken
        found.append(tuple(_joined(head)))
    return None if left else tuple(found)


def rearranged(view: View, before: Sequence[int], sizes: Sequence[int], after: Sequence[int]) -> View | None:
    """A bitcast: the same bytes under another shape. `before` and `after` are layouts, minor to major."""
    if len(before) != len(view) or len(after) != len(sizes):
        return None
    order = tuple(reversed(after))
    found = reshaped(transposed(view, tuple(reversed(before))), [sizes[number] for number in order])
    return None if found is None else tuple(found[order.index(number)] for number in range(len(sizes)))


def split(digits: Sequence[Digit], size: int) -> tuple[list[Digit], list[Digit]] | None:
    """The leading digits that count to `size`, and the rest; None if no cut gives that."""
    head, rest = list[Digit](), list(digits)
    while size > 1:
        if not rest:
            return None
        first = rest.pop(0)
        if size % first.size == 0:
            head.append(first)
            size //= first.size
        elif first.size % size == 0:
            inner = first.size // size
            head.append(replace(first, size=size, stride=first.stride * inner))
            rest.insert(0, replace(first, size=inner))
            size = 1
        else:
            return None
    return head, rest


def _joined(digits: list[Digit]) -> Iterator[Digit]:
    """Neighbours that count on in one dim are one digit again."""
    waiting: Digit | None = None
    for digit in digits:
        if waiting is None:
            waiting = digit
        elif _continues(waiting, digit):
            waiting = replace(digit, size=waiting.size * digit.size)
        else:
            yield waiting
            waiting = digit
    if waiting is not None:
        yield waiting


def _continues(major: Digit, minor: Digit) -> bool:
    return major.origin == minor.origin != FOREIGN and major.stride == minor.stride * minor.size
