"""What comes through each level of a network in a collective, in seconds per byte of the array gathered over it."""

from __future__ import annotations

from collections.abc import Iterator

from shardc.cost.links import Factor, Level
from shardc.cost.links.level import less_one, product


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
