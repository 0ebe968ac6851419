"""What goes through blocks, nested ones too: every step with how often it is done, every value with its last use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardc.ir.plan import Block, Loop, Step


@dataclass(frozen=True, slots=True)
class Done:
    """A step of a block, how often it is done, and its place: of its block, before it those of the loops around."""

    step: Step
    block: Block
    times: int
    path: tuple[int, ...]


def every_step(block: Block, times: int = 1, around: tuple[int, ...] = ()) -> Iterator[Done]:
    """Every step in order, after a loop those of its body."""
    for place, step in enumerate(block.steps):
        yield Done(step, block, times, (*around, place))
        if isinstance(step.op, Loop):
            yield from every_step(step.op.body, times * step.op.trips, (*around, place))


def single_steps(block: Block) -> Iterator[Done]:
    """The same without the loops themselves: what is done adds up from these."""
    return (done for done in every_step(block) if not isinstance(done.step.op, Loop))


def last_uses(block: Block) -> dict[int, int]:
    """For each value that is used the last step that does; of outputs the number after all steps."""
    last = {value: place for place, step in enumerate(block.steps) for value in step.operands}
    return last | dict.fromkeys(block.outputs, len(block.steps))


def every_block(block: Block, around: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Block]]:
    """The block itself and the bodies of its loops, each with the places of the loops around it."""
    yield around, block
    for place, step in enumerate(block.steps):
        if isinstance(step.op, Loop):
            yield from every_block(step.op.body, (*around, place))
