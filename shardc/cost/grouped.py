"""Steps that are done as one, as a walk over memory meets them: what each holds in place of whole arrays.

    T[I, J] = AllGather_X A[I_X, J]; C[I, K] = T · B[J, K]                 a ring: blocks of A come, are read, and go
    P[I, K]{U_X} = A[I, J_X] · B[J_X, K]; C[I_X, K] = ReduceScatter P      a ring: blocks of P are made, and sums go

What every product of a ring reads whole, B here, is brought to the chip where there is room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shardc.ir.plan import Einsum, How, Schedule, Step, Together, ValueNumber
from shardc.lowering import tpu
from shardc.lowering.as_one import LeftToXla, as_one
from shardc.lowering.buffers import size_of
from shardc.lowering.chunks import Chunks, is_read
from shardc.lowering.held import (
    CHUNKS_THAT_COME,
    MOST_BROUGHT,
    blocks_that_come,
    blocks_that_go,
    cut_in_memory,
    held_as_one,
    held_by_two_rings,
    pairs_that_go,
)
from shardc.lowering.meeting import Meeting
from shardc.lowering.rings import Ring
from shardc.lowering.target import Target

_F32 = 4  # bytes


class InBlocks(NamedTuple):
    """A product and its collective that are done block by block: a ring, or chunks that are gathered before."""

    how: How
    product: Step
    move: Step
    gathers: bool  # else it adds up, with what that leaves `gathered_after` or not
    gathered_after: bool
    block: int  # bytes of a block of what is gathered, or added up
    at_once: int  # how many of them there are at once
    in_all: int  # where other steps come between the products and their sums
    made: int  # bytes of what a product of one block leaves, before it is put to its place or added up in f32
    cut: int  # bytes in memory of what blocks are cut from, cut before
    brought: tuple[int, ...]  # bytes on the chip of arguments that each product reads whole

    @property
    def is_ring(self) -> bool:
        return self.how is How.RING

    def ends_in_sums(self, step: Step) -> bool:
        return step is self.move and not self.gathers

    def puts_together(self, step: Step) -> bool:
        """Whether a step leaves what products of gathered blocks are put together to."""
        return step is self.product and self.gathers

    def blocks(self, goes_on: bool) -> int:
        """How many there are at once, where the sums go on, or other steps come before them."""
        return self.at_once if goes_on or self.gathers else self.in_all


@dataclass(frozen=True, slots=True)
class Groups:
    schedule: Schedule
    target: Target
    blocks: Mapping[int, InBlocks] = field(default_factory=dict)  # by the results of their steps

    @classmethod
    def of(cls, schedule: Schedule) -> Groups:
        target = Target.of(schedule.program)
        found = cls(schedule, target)
        if not tpu.on_chip(target):
            return found
        every = [each for group, steps in found.every() if (each := _in_blocks(schedule, group, steps)) is not None]
        return cls(schedule, target, {step.result: each for each in every for step in (each.product, each.move)})

    def every(self) -> Iterator[tuple[Together, tuple[Step, ...]]]:
        for group in self.schedule.together:
            yield group, self.schedule.steps[group.first : group.last + 1]

    @property
    def stored(self) -> set[int]:
        """What products of blocks read and leave: it is not computed as it is read."""
        return {value for each in self.blocks.values() for value in (*each.product.operands, each.product.result)}

    def is_as_one(self, step: Step) -> bool:
        return any(step is each for _, steps in self.every() for each in steps)

    def comes_round(self, step: Step) -> bool:
        """Whether a step brings what two rings bring round: it has its memory with their product."""
        return any(group.how is How.RINGS and step in steps[:-1] for group, steps in self.every())

    def also_read(self, step: Step) -> Sequence[ValueNumber]:
        """What the last product of blocks reads whose sums this step ends: it comes just before."""
        found = self.blocks.get(step.results[0])
        return found.product.operands if found is not None and found.ends_in_sums(step) else ()

    def held_as_one(self, step: Step, users: Mapping[int, Sequence[Step]]) -> int:
        """Where the step ends a group of steps that are done as one, what that takes beside them."""
        group = next((group for group, steps in self.every() if steps[-1] is step), None)
        if group is None:
            return 0
        match as_one(self.schedule, group):
            case Meeting() as met:
                return self._of_two(group, met)
            case Ring() | Chunks() | LeftToXla() | None:
                pass
        read = is_read(step.result, users, self.schedule.outputs)
        return held_as_one(group.how, step.op.facts.kind, self._size(step.result), read, self.target)

    def _of_two(self, group: Together, met: Meeting) -> int:
        """The sum and the blocks of two rings."""
        schedule = self.schedule
        *gathers, product = schedule.steps[group.first : group.last + 1]
        size = {gather.result: self._size(gather.operands[0]) for gather in gathers}
        fine, coarse = (size[product.operands[place]] for place in (met.fine, 1 - met.fine))
        summed = self._size(product.result) // schedule.values[product.result].dtype.bytes * _F32
        return held_by_two_rings((fine, coarse), summed, met.within > 1, self.target)

    def _size(self, value: ValueNumber) -> int:
        return size_of(self.schedule.values[value], self.schedule.mesh)


def _in_blocks(schedule: Schedule, group: Together, steps: Sequence[Step]) -> InBlocks | None:
    def size(value: ValueNumber) -> int:
        return size_of(schedule.values[value], schedule.mesh)

    match as_one(schedule, group):
        case Ring(dim=dim, gathers=gathers, gathered_after=after) as ring:
            count = ring.size
            going = pairs_that_go if ring.in_pairs else blocks_that_go
            at_once, brings = blocks_that_come(count) if gathers else going(count), not ring.in_pairs
        case Chunks(count, dim) if not isinstance(steps[0].op, Einsum):
            gathers, after, at_once, brings = True, False, CHUNKS_THAT_COME, True
        case Chunks() | Meeting() | LeftToXla() | None:
            return None

    product, move = steps[::-1] if gathers else steps
    result, left = schedule.values[product.result], size(product.result)
    is_put = dim in result.dims  # else products of all blocks are added up
    cut = {value for value in product.operands if is_put and dim in schedule.values[value].dims}
    return InBlocks(
        *(group.how, product, move, gathers, after),
        block=size(steps[0].result) // count,
        at_once=at_once,
        in_all=count,
        made=left // count if is_put else left // result.dtype.bytes * _F32,
        cut=cut_in_memory(size(move.operands[0]), count) if group.how is How.CHUNKS else 0,
        brought=tuple(
            min(size(value), MOST_BROUGHT)
            for value in product.operands
            if brings and value in schedule.inputs and value not in cut
        ),
    )
