"""What is alive while a schedule's buffers take the most: the same count as `cost.memory.peak_bytes`, by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from shardc.cost.kinds.flow import Flow, Path
from shardc.ir.plan import Block, Loop, last_uses

Alive: TypeAlias = Counter[
    int
]  # values of a flow. A loop's operands that its trips hold in their own place count once less


def at_peak(block: Block, flow: Flow, size: Callable[[int], int]) -> Alive:
    """How often each value counts when most bytes are alive."""
    return _most(_moments(block, (), flow, size, block.inputs), size)


def _most(moments: Iterable[Alive], size: Callable[[int], int]) -> Alive:
    return max(moments, key=lambda alive: _bytes_of(alive, size))


def _bytes_of(alive: Alive, size: Callable[[int], int]) -> int:
    return sum(count * size(value) for value, count in alive.items())


def _moments(
    block: Block, path: Path, flow: Flow, size: Callable[[int], int], held: tuple[int, ...]
) -> Iterator[Alive]:
    """What is alive before the first step, then while each step runs; what is held is so throughout."""
    first = flow.first[path]
    last = last_uses(block) | dict.fromkeys(held, len(block.steps))
    alive: Alive = Counter(first + number for number in block.inputs)
    yield Counter(alive)
    for place, step in enumerate(block.steps):
        alive.update(first + number for number in step.results)
        yield alive + Counter() if not isinstance(step.op, Loop) else _with(alive, step.op, (*path, place), flow, size)
        for number in {*step.operands, *step.results}:
            if last.get(number, place) == place:
                del alive[first + number]


def _with(alive: Alive, loop: Loop, path: Path, flow: Flow, size: Callable[[int], int]) -> Alive:
    """And the most that a trip takes beside what is fixed and carried, which lies where it lay."""
    body = loop.body
    moments = _moments(body, path, flow, size, body.inputs[: loop.fixed])
    found = Counter(alive)
    found.update(_most(moments, size))
    found.subtract(flow.first[path] + number for number in body.inputs[: loop.fixed + loop.carried])
    return found
