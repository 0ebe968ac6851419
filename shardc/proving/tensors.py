"""Arrays of symbols, with no NumPy: a shape, and items in row-major order; rearranged, joined, multiplied, added up.

An item is a number of a prime field, `field` says why. A rearrangement is a list of places, made once for a shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from operator import itemgetter, mul
from typing import Any, TypeAlias

from shardc.proving.field import PRIME, added, element

Shape: TypeAlias = tuple[int, ...]
Items: TypeAlias = tuple[int, ...]
Getter: TypeAlias = Callable[[Items], Items]


class Tensor:
    """A shape and its items."""

    __slots__ = ("items", "shape")

    def __init__(self, shape: Shape, items: Items) -> None:
        assert math.prod(shape) == len(items), f"{len(items)} items of the shape {shape}"
        self.shape = shape
        self.items = items

    def __getitem__(self, place: tuple[int, ...]) -> int:
        number = 0
        for size, index in zip(self.shape, place, strict=True):
            number = number * size + index
        return self.items[number]


def zeros(shape: Shape) -> Tensor:
    return Tensor(shape, (0,) * math.prod(shape))


def filled(shape: Shape, number: float) -> Tensor:
    """The one number everywhere."""
    return Tensor(shape, (element(number),) * math.prod(shape))


def getter(places: Sequence[int]) -> Getter:
    """What takes the items at these places."""
    match places:
        case []:
            return lambda items: ()
        case [only]:
            return lambda items: (items[only],)
        case _:
            return itemgetter(*places)


@lru_cache(maxsize=1 << 12)
def _strided(start: int, sizes: Shape, strides: Shape) -> Getter:
    """The items from `start` on, in steps of the strides."""
    places = [start]
    for size, stride in zip(sizes, strides, strict=True):
        places = [place + stride * n for place in places for n in range(size)]
    return getter(places)


def strides_of(shape: Shape) -> Shape:
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))


def transposed(given: Tensor, order: Sequence[int]) -> Tensor:
    if list(order) == sorted(order):
        return given
    strides = strides_of(given.shape)
    shape = tuple(given.shape[place] for place in order)
    return Tensor(shape, _strided(0, shape, tuple(strides[place] for place in order))(given.items))


def broadcast(given: Tensor, shape: Shape) -> Tensor:
    """Copied along dims of size 1, and along those in front that it lacks."""
    if given.shape == shape:
        return given
    own = (1,) * (len(shape) - len(given.shape)) + given.shape
    assert all(size in (1, wanted) for size, wanted in zip(own, shape, strict=True)), f"{given.shape} is not {shape}"
    strides = tuple(0 if size == 1 else stride for size, stride in zip(own, strides_of(own), strict=True))
    return Tensor(shape, _strided(0, shape, strides)(given.items))


def cut(given: Tensor, starts: Sequence[int], sizes: Shape) -> Tensor:
    """A part of it. As in JAX a start that leads too far is moved back."""
    assert all(size <= there for size, there in zip(sizes, given.shape, strict=True)), f"{sizes} of {given.shape}"
    kept = [max(0, min(s, there - size)) for s, size, there in zip(starts, sizes, given.shape, strict=True)]
    strides = strides_of(given.shape)
    return Tensor(sizes, _strided(sum(map(mul, kept, strides)), sizes, strides)(given.items))


def laid_into(given: Tensor, part: Tensor, starts: Sequence[int]) -> Tensor:
    """With a part of it replaced."""
    kept = [max(0, min(s, there - n)) for s, n, there in zip(starts, part.shape, given.shape, strict=True)]
    items, strides = list(given.items), strides_of(given.shape)
    spans = (range(start, start + size) for start, size in zip(kept, part.shape, strict=True))
    for item, place in zip(part.items, product(*spans), strict=True):
        items[sum(map(mul, place, strides))] = item
    return Tensor(given.shape, tuple(items))


def joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    """One behind the other along a dim."""
    first = parts[0].shape
    outer = math.prod(first[:axis])
    spans = [(part.items, math.prod(part.shape[axis:])) for part in parts]
    items: list[int] = []
    for n in range(outer):
        for held, inner in spans:
            items += held[n * inner : (n + 1) * inner]
    size = sum(part.shape[axis] for part in parts)
    return Tensor((*first[:axis], size, *first[axis + 1 :]), tuple(items))


def parted(given: Tensor, count: int, axis: int) -> list[Tensor]:
    """As many equal parts of a dim, in order."""
    size, rest = divmod(given.shape[axis], count)
    assert not rest, f"{given.shape[axis]} in {count} parts"
    sizes, strides = (*given.shape[:axis], size, *given.shape[axis + 1 :]), strides_of(given.shape)
    turned = _strided(0, (count, *sizes), (size * strides[axis], *strides))(given.items)
    each = math.prod(sizes)
    return [Tensor(sizes, turned[n : n + each]) for n in range(0, count * each, each)]


def shaped(given: Tensor, shape: Sequence[int]) -> Tensor:
    """In another shape, of which one size may be left open as −1."""
    known = -math.prod(shape) if -1 in shape else 0
    sizes = tuple(len(given.items) // known if size == -1 else size for size in shape)
    return Tensor(sizes, given.items)


def total(given: Tensor, axes: Sequence[int]) -> Tensor:
    """Added up over some dims, which go."""
    if not axes:
        return given
    kept = [place for place in range(len(given.shape)) if place not in axes]
    turned = transposed(given, [*kept, *axes])
    count = math.prod(given.shape[place] for place in axes)
    items = turned.items
    sums = tuple(sum(items[n : n + count]) % PRIME for n in range(0, len(items), count))
    return Tensor(tuple(given.shape[place] for place in kept), sums)


def sum_of(parts: Sequence[Tensor]) -> Tensor:
    """Element by element."""
    if len(parts) == 1:
        return parts[0]
    return Tensor(parts[0].shape, tuple(map(added, *(part.items for part in parts))))


def contracted(operands: Sequence[Tensor], labels: Sequence[Sequence[str]], wanted: Sequence[str]) -> Tensor:
    """The product of one or two by labels of their dims; what is not wanted is summed."""
    if len(operands) == 1:
        (only,), (own,) = operands, labels
        summed = total(only, [place for place, label in enumerate(own) if label not in wanted])
        left = [label for label in own if label in wanted]
        return transposed(summed, [left.index(label) for label in wanted])
    (one, other), (first, second) = operands, labels
    shared = [label for label in first if label in second]
    batch = [label for label in wanted if label in shared]
    inner = [label for label in shared if label not in wanted]
    rows = [label for label in wanted if label in first and label not in shared]
    columns = [label for label in wanted if label in second and label not in shared]
    one = contracted([one], [first], [*batch, *rows, *inner])
    other = contracted([other], [second], [*batch, *columns, *inner])
    sizes = dict(zip([*batch, *rows, *inner, *batch, *columns, *inner], one.shape + other.shape, strict=True))
    depth = math.prod(sizes[label] for label in inner)
    assert one.shape[len(batch + rows) :] == other.shape[len(batch + columns) :], "one dim has two sizes"
    found = _products(one.items, other.items, math.prod(sizes[label] for label in batch), depth)
    made = [*batch, *rows, *columns]
    return transposed(Tensor(tuple(sizes[label] for label in made), found), [made.index(label) for label in wanted])


def _products(left: Items, right: Items, batches: int, depth: int) -> Items:
    """Of each batch every row by every column."""
    found: list[int] = []
    rows, columns = len(left) // batches, len(right) // batches
    for n in range(batches):
        along = [right[k : k + depth] for k in range(n * columns, (n + 1) * columns, depth)]
        for k in range(n * rows, (n + 1) * rows, depth):
            row = left[k : k + depth]
            found += [sum(map(mul, row, column)) % PRIME for column in along]
    return tuple(found)


# --- tables of numbers, which are the same on all devices


def arange(count: int) -> Tensor:
    return Tensor((count,), tuple(range(count)))


def rolled(table: Tensor, by: int, *, axis: int) -> Tensor:
    size, stride = table.shape[axis], strides_of(table.shape)[axis]
    own = range(len(table.items))
    places = [n - (n // stride % size) * stride + (n // stride - by) % size * stride for n in own]
    return Tensor(table.shape, tuple(table.items[place] for place in places))


def listed(table: Tensor) -> list[Any]:
    if len(table.shape) == 1:
        return list(table.items)
    size = math.prod(table.shape[1:])
    return [listed(Tensor(table.shape[1:], table.items[n : n + size])) for n in range(0, len(table.items), size)]
