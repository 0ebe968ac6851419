"""Which temporaries stay in memory on the chip: those that find a place there for as long as they live.

An argument that is brought before the program starts chooses first; then the largest, each the smallest gap between
those that live at the same time. In room for 4, of buffers of 2, 2 and 1 that live together the last is left in memory;
if it lives after the first, none is. Given up on the way, the argument is there at the end again, for the next time:

    C[T, D_Y] = A[T, K] · W[K, D_Y]; E[T, D] = C      A, of 64 MiB, leaves E, of 64 MiB, to be gathered in memory
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from shardc.cost.held_up import multiplies
from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Loop, Step
from shardc.lowering import tpu


class Life(NamedTuple):
    """How large a buffer is, and from when to when it lives; at its end another may take its place."""

    size: int
    start: int
    end: int


def brought_early(block: Block, sizes: Sequence[int] | Mapping[int, int], room: int) -> int | None:
    """The argument that is brought to the chip before a program starts, if one is: the largest that a product reads, or
    of which it reads a share. One of elements reads what it multiplies where that lies."""
    steps = [step for step in block.steps if not isinstance(step.op, Loop)]
    shared = shares_of(steps)
    products = (step for step in steps if multiplies(step, block.values))
    read = {shared.get(value, value) for step in products for value in step.operands}
    fits = [value for value in read.intersection(block.inputs) if tpu.is_brought_early(sizes[value], room)]
    return min(fits, key=lambda value: (-sizes[value], value), default=None)


def shares_of(steps: Iterable[Step]) -> dict[int, int]:
    """Of each share, and share of a share, the array that it is of."""
    found = dict[int, int]()
    for step in steps:
        if not isinstance(step.op, Loop) and step.op.facts.kind is Kind.SLICE:
            found[step.result] = found.get(step.operands[0], step.operands[0])
    return found


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
