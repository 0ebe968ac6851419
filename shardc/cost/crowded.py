"""Outputs that wait on the chip to be copied to their places, and find no room there.

What an AllGather leaves as an output is copied after all other steps (`lowering.held`). Until then it lies on the chip,
beside the argument that is brought there before a program starts, and at its end again for the next time, and beside
other outputs that wait; what is larger has its place first. From memory the copy takes up to five times as long:

    C[T, D_Y] = A[T, K] · W[K, D_Y]; E[T, D] = C      A of 64 MiB is there: E of 64 MiB lies in memory
    E[T, D] = C[T, D_Y]                               E waits on the chip
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from shardc.cost.copied import farther
from shardc.cost.model import CostModel
from shardc.cost.on_chip import Life, brought_early, on_chip
from shardc.cost.rounded import Rounded
from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Loop, Step, StepCost, ValueNumber
from shardc.lowering.tpu import on_chip as room_on_chip


@dataclass(frozen=True, slots=True)
class Crowded:
    """The outputs of a program that lie in memory until they are copied, and what the program is given."""

    outputs: Collection[ValueNumber]
    given: Collection[ValueNumber]

    @classmethod
    def of(cls, block: Block, model: CostModel) -> Crowded:
        room = room_on_chip(model.target)
        waiting = [step.result for step in block.steps if room and _waits(step, block, model)]
        if not waiting:
            return NOT
        sizes = {number: array.local_bytes(model.mesh) for number, array in enumerate(block.values)}
        early = brought_early(block, sizes, room)
        first = [] if early is None else [early]
        there = on_chip({value: Life(sizes[value], 0, 1) for value in (*first, *waiting)}, room, first)
        return cls([value for value in waiting if value not in there], block.inputs)

    def more(self, step: Step, around: Rounded, model: CostModel) -> Iterator[StepCost]:
        """What a step takes more than what it takes in a program without others."""
        if not isinstance(step.op, Loop) and step.result in self.outputs:
            made = [around.lies(value) for value in step.operands if value not in self.given]
            yield from farther(around.lies(step.result), model, sum(array.local_bytes(model.mesh) for array in made))


NOT = Crowded((), ())


def _waits(step: Step, block: Block, model: CostModel) -> bool:
    """Whether a step leaves an output that is copied after all others."""
    if isinstance(step.op, Loop) or step.op.facts.kind is not Kind.GATHER or step.result not in block.outputs:
        return False
    return model.leaves_output_apart(step.op, len(block.values[step.result].dims))
