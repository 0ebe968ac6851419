"""Which temporaries stay in memory on the chip: those that find a place there for as long as they live.

An argument that is brought before the program starts chooses first; then the largest, each the smallest gap between
those that live at the same time. In room for 4, of buffers of 2, 2 and 1 that live together the last is left in memory;
if it lives after the first, none is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple


class Life(NamedTuple):
    """How large a buffer is, and from when to when it lives; at its end another may take its place."""

    size: int
    start: int
    end: int


def on_chip(lives: Mapping[int, Life], room: int, first: Collection[int] = ()) -> set[int]:
    """The buffers, by their numbers, that fit in so many bytes; some choose `first`."""
    if not room:
        return set()
    placed: dict[int, tuple[Life, int]] = {}
    for number in sorted(lives, key=lambda number: (number not in first, -lives[number].size, number)):
        place = _place(lives[number], placed.values(), room)
        if place is not None:
            placed[number] = (lives[number], place)
    return set(placed)


def _place(life: Life, others: Iterable[tuple[Life, int]], room: int) -> int | None:
    """Where the smallest gap starts that holds a buffer while it lives."""
    size, born, dies = life
    taken = sorted([(at, at + other.size) for other, at in others if other.start < dies and born < other.end])
    gaps, reached = list[tuple[int, int]](), 0
    for start, end in (*taken, (room, room)):
        if start - reached >= size:
            gaps.append((start - reached, reached))
        reached = max(reached, end)
    return min(gaps)[1] if gaps else None
