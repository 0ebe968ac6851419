"""What every kind of link tells of a group of devices that it joins.

A factor is a text and its value, kept together: `("(X-1)/X / W_X", 8.3e-12)` is a time per byte. The texts use
axes for their sizes, `W_X` for the bandwidth of mesh axis X in B/s, and `T_hop` for the latency of a hop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Traffic:
    """Blocks on their way: the time per byte of one on the busiest link, the longest way, and the links taken."""

    s_per_byte: float
    hops: int
    links: int  # a bit each


@dataclass(frozen=True, slots=True)
class Wire:
    """A link of a torus from the device at a place to the next along an axis, and the bytes that go each way."""

    at: tuple[int, ...]
    along: int  # the axis, as a number in `at`
    forward: float
    backward: float


@dataclass(frozen=True, slots=True)
class Factor:
    """A part of a formula. `value` is what `text` evaluates to."""

    text: str
    value: float


class Level(Protocol):
    """One kind of link between `count` members, each of which may stand for a group of an inner level."""

    @property
    def count(self) -> Factor:
        """How many members."""
        ...

    @property
    def width(self) -> Factor:
        """B/s at which one device takes in from the others, all links of the group together."""
        ...

    @property
    def hops(self) -> Factor:
        """Hops on the way to the farthest member."""
        ...

    def exchange(self, book: bool) -> Factor:
        """Seconds of an AllToAll among the members, per byte of the array gathered over them.

        `book`: without (n-1)/n and the like, which tend to 1.
        """
        ...

    def route(self) -> Factor:
        """Seconds of a CollectivePermute among the members, per byte of a block, by its longest route."""
        ...


def product(factors: Iterable[Factor]) -> Factor:
    """`X·Y`, bracketed if there are several."""
    parts = list(factors)
    value = 1.0
    for part in parts:
        value *= part.value
    text = "·".join(part.text for part in parts) or "1"
    return Factor(f"({text})" if len(parts) > 1 else text, value)


def total(factors: Iterable[Factor]) -> Factor:
    """`W_X + W_Y`, bracketed if there are several."""
    parts = list(factors)
    text = "+".join(part.text for part in parts) or "0"
    return Factor(f"({text})" if len(parts) > 1 else text, sum(part.value for part in parts))


def less_one(count: Factor) -> Factor:
    """`(X-1)/X`: the part of a gathered array that a device does not have."""
    return Factor(f"({count.text}-1)/{count.text}", (count.value - 1) / count.value)


# --- what comes through each level of a network in a collective, in seconds per byte of the array gathered over it


def gathers(levels: tuple[Level, ...], book: bool) -> Iterator[Factor]:
    """Through each level comes what is outside it, over the links of all the devices inside."""
    inside: list[Factor] = []
    for level in levels:
        missing = Factor("1", 1.0) if book else less_one(level.count)
        width = product([*inside, level.width])
        yield Factor(f"{missing.text} / {width.text}", missing.value / width.value)
        inside.append(level.count)


def exchanges(levels: tuple[Level, ...], book: bool) -> Iterator[Factor]:
    """What leaves a group of M inner devices of N: (N-M)/N of every device's N-th part."""
    if len(levels) == 1:
        yield levels[0].exchange(book)
        return
    every = product(level.count for level in levels)
    inside = Factor("1", 1.0)
    for level in levels:
        leaves = (every.value - inside.value) / every.value
        text = f"({every.text}-{inside.text})/{every.text}/{every.text} / {level.width.text}"
        yield Factor(text, leaves / every.value / level.width.value)
        inside = product([inside, level.count]) if inside.value > 1 else level.count


def slowest(factors: Iterator[Factor]) -> Factor:
    return max(factors, key=lambda factor: factor.value)
