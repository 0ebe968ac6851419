"""A whole schedule, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardc.ir.plan import Schedule, Step
from shardc.simulate.arguments import check_count
from shardc.simulate.blocks import Values
from shardc.simulate.layout import scatter
from shardc.simulate.steps import step
from shardc.simulate.stochastic import Coins, inexact_step


def run(schedule: Schedule, wholes: Sequence[Any], seed: int = 0, coins: Coins | None = None) -> list[Values]:
    """What every device holds of each output. `seed` draws the parts of unreduced inputs.

    With `coins` each step's result is rounded in the step's own precision, up or down as they fall.
    """
    return run_blocks(schedule, laid_out(schedule, wholes, seed), coins)


def run_blocks(schedule: Schedule, inputs: Mapping[int, Values], coins: Coins | None = None) -> list[Values]:
    """The same from the blocks of the inputs, as `laid_out` gives them."""
    known = dict(inputs)
    last = _last_uses(schedule)
    for number, current in enumerate(schedule.steps):
        known[current.result] = _blocks(schedule, current, known, coins)
        for value in current.operands:
            if last[value] == number:
                known.pop(value, None)  # a step may use a value twice
    return [known[value] for value in schedule.outputs]


def trace(schedule: Schedule, wholes: Sequence[Any], seed: int = 0) -> Iterator[tuple[Step, Values]]:
    """Each step with the blocks that it leaves, in order."""
    known = laid_out(schedule, wholes, seed)
    for current in schedule.steps:
        known[current.result] = _blocks(schedule, current, known)
        yield current, known[current.result]


def laid_out(schedule: Schedule, wholes: Sequence[Any], seed: int) -> dict[int, Values]:
    """What every device holds of each input, by the number of its value."""
    arrays = [schedule.values[value] for value in schedule.inputs]
    check_count(len(wholes), [array.name for array in arrays])
    return {
        value: scatter(whole, array, schedule.mesh, seed + place)
        for place, (value, whole, array) in enumerate(zip(schedule.inputs, wholes, arrays, strict=True))
    }


def _blocks(schedule: Schedule, current: Step, known: dict[int, Values], coins: Coins | None = None) -> Values:
    blocks = [known[value] for value in current.operands]
    arrays = [schedule.values[value] for value in current.operands]
    result = schedule.values[current.result]
    if coins is None:
        return step(current.op, blocks, arrays, result, schedule.mesh)
    return inexact_step(current.op, blocks, arrays, result, schedule.mesh, coins)


def _last_uses(schedule: Schedule) -> dict[int, int]:
    """For each value the step after which it may be forgotten; outputs never."""
    last = {value: number for number, current in enumerate(schedule.steps) for value in current.operands}
    return last | dict.fromkeys(schedule.outputs, len(schedule.steps))
