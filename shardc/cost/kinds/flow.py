"""A schedule's blocks as one graph: what each value is made of, through loops and from trip to trip.

for L { x = x ·_D W[L, D, D'] }     the W that a trip reads is the W outside, at the index; the x that it reads is
                                    the one before the loop, or the one that the trip before it left
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shardc.ir.plan import Block, Loop, Step
from shardc.ir.sharding import Array

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """One value is made of others by a step; without one it is the same value, in a loop and outside."""

    sources: tuple[int, ...]
    target: int
    step: Step | None = None

    @property
    def keeps(self) -> bool:
        """Whether the array stays the array, wherever it lies."""
        return self.step is None or self.step.op.facts.is_move or self.step.op.facts.name == "Reshape"


@dataclass(slots=True)
class Flow:
    """Values of all blocks, numbered from `first[path]` on for the block inside the loops at that path."""

    values: list[Array] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    first: dict[Path, int] = field(default_factory=dict)
    outer: dict[int, int] = field(default_factory=dict)  # of what a loop only takes, what it is outside
    made: dict[int, Link] = field(default_factory=dict)  # by its target
    rows: dict[int, int] = field(default_factory=dict)  # of what loops stack or go along, the trips
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()

    @classmethod
    def of(cls, block: Block) -> Flow:
        found = cls(inputs=block.inputs, outputs=block.outputs)
        found._add(block, ())
        return found

    def _add(self, block: Block, path: Path) -> int:
        first = self.first[path] = len(self.values)
        self.values += block.values
        for place, step in enumerate(block.steps):
            operands = tuple(first + number for number in step.operands)
            results = tuple(first + number for number in step.results)
            if isinstance(step.op, Loop):
                self._loop(step.op, operands, results, (*path, place))
            else:
                self.links.append(Link(operands, results[0], step))
                self.made[results[0]] = self.links[-1]
        return first

    def _loop(self, loop: Loop, operands: tuple[int, ...], results: tuple[int, ...], path: Path) -> None:
        body, inside = loop.body, len(self.values)
        taken = [inside + number for number in body.inputs]
        left = [inside + number for number in body.outputs]
        self.links += [Link((outer,), inner) for outer, inner in zip(operands, taken, strict=True)]
        self._add(body, path)
        carried = slice(loop.fixed, loop.fixed + loop.carried)
        self.links += [Link((last,), first) for last, first in zip(left, taken[carried], strict=False)]
        self.links += [Link((inner,), outer) for inner, outer in zip(left, results, strict=True)]
        only = [n for n in range(len(taken)) if not carried.start <= n < carried.stop]
        self.outer |= {taken[n]: operands[n] for n in only}
        for number in operands[carried.stop :]:
            self.rows.setdefault(number, loop.trips)
        for inner, outer in list(zip(left, results, strict=True))[loop.carried :]:
            self.rows[outer] = loop.trips * self.rows.get(inner, 1)

    def outside(self, value: int) -> int:
        """The value that a loop takes as this one: the one around all loops that only take it."""
        while value in self.outer:
            value = self.outer[value]
        return value

    def reached(self, passes: Callable[[Link], bool] = lambda link: True) -> list[int]:
        """Of each value the inputs that lead to it by links that pass: a bit for each."""
        found = [0] * len(self.values)
        for place, number in enumerate(self.inputs):
            found[number] = 1 << place
        links, changed = [link for link in self.links if passes(link)], True
        while changed:
            changed = False
            for link in links:
                before = found[link.target]
                for source in link.sources:
                    found[link.target] |= found[source]
                changed |= found[link.target] != before
        return found

    def alike(self, values: set[int], *, back: bool) -> set[int]:
        """These, and what is the same array elsewhere: what is moved from them; `back`, what they are moved from."""
        found, count = set(values), -1
        links = [link for link in self.links if link.keeps]
        while len(found) > count:
            count = len(found)
            for link in links:
                (source,) = link.sources
                if back and link.target in found:
                    found.add(source)
                elif not back and source in found:
                    found.add(link.target)
        return found

    def steps(self) -> Iterator[tuple[int, Link, Step]]:
        """The links that steps make, in order."""
        return ((place, link, link.step) for place, link in enumerate(self.links) if link.step is not None)
