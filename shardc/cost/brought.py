"""The argument that is brought to the chip before a program starts: when it is there.

h = x · W; g = h · V; y = g · U       W, of 64 MiB, until h is made, and again while y is: g, of 64, lies in memory
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.cost.heap import Buffers
from shardc.cost.inside import Inside
from shardc.cost.on_chip import brought_early
from shardc.ir.plan import Block, Loop, Step
from shardc.lowering.held import comes_beside


@dataclass(slots=True)
class Brought:
    """On the chip until the step at a place has read it last, and again from another on, for the next time that the
    program runs; where it is read last there or later, all the time. None has no bytes."""

    heap: Buffers
    size: int = 0
    last: int = 0
    again: int | None = None
    number: int | None = None

    @classmethod
    def of(
        cls,
        block: Block,
        steps: Sequence[Step],
        last: Mapping[int, Step],
        inside: Inside,
        sizes: Sequence[int],
        heap: Buffers,
    ) -> Brought:
        """Of a block's steps, of which these read values last; in a trip of a loop there is none."""
        argument = None if heap.in_loop else brought_early(block, sizes, heap.room)
        if argument is None:
            return cls(heap)
        ends = next(place for place, step in enumerate(steps) if last[argument] is step)
        return cls(heap, sizes[argument], ends, _comes_again_at(steps, inside, sizes, sizes[argument]))

    def before(self, place: int) -> None:
        """What comes before the step at this place."""
        if self.size and self.number is None and place in (0, self.again):
            self.number = self.heap.brings(self.size, before_all=True)

    def after(self, place: int) -> None:
        """What comes behind it."""
        if self.number is not None and place == self.last and (self.again is None or place < self.again):
            self.heap.give_back(self.number)
            self.number = None


def _comes_again_at(steps: Sequence[Step], inside: Inside, sizes: Sequence[int], size: int) -> int | None:
    """The place of the step from which on so many bytes are there again: of the last product, or of functions behind it
    that take as long; none before a loop, of which nothing is known."""
    moved = 0
    for place, step in reversed([*enumerate(steps)]):
        if isinstance(step.op, Loop):
            return None
        is_product = not inside.loops.isdisjoint(step.results)
        moved += 0 if step.is_collective else sum(sizes[each] for each in (*inside.lying(step.operands), *step.results))
        if is_product or comes_beside(moved, size):
            return place
    return None
