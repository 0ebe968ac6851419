"""A whole schedule, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardc.ir.plan import Loop, Schedule, Step, last_uses, operands_of
from shardc.simulate.arguments import check_count
from shardc.simulate.blocks import Values, row, stacked
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
    last = last_uses(schedule.block)
    for number, current in enumerate(schedule.steps):
        known.update(zip(current.results, _results(schedule, current, known, coins), strict=True))
        for value in current.operands:
            if last[value] == number:
                known.pop(value, None)  # a step may use a value twice
    return [known[value] for value in schedule.outputs]


def trace(schedule: Schedule, wholes: Sequence[Any], seed: int = 0) -> Iterator[tuple[Step, Values]]:
    """Each step with the blocks that it leaves, in order; a loop once for each of its results."""
    known = laid_out(schedule, wholes, seed)
    for current in schedule.steps:
        for value, blocks in zip(current.results, _results(schedule, current, known), strict=True):
            known[value] = blocks
            yield current, blocks


def laid_out(schedule: Schedule, wholes: Sequence[Any], seed: int) -> dict[int, Values]:
    """What every device holds of each input, by the number of its value."""
    arrays = [schedule.values[value] for value in schedule.inputs]
    check_count(len(wholes), [array.name for array in arrays])
    return {
        value: scatter(whole, array, schedule.mesh, seed + place)
        for place, (value, whole, array) in enumerate(zip(schedule.inputs, wholes, arrays, strict=True))
    }


def _results(
    schedule: Schedule, current: Step, known: dict[int, Values], coins: Coins | None = None
) -> Sequence[Values]:
    blocks = [known[value] for value in current.operands]
    if isinstance(current.op, Loop):
        return _looped(schedule, current.op, blocks, coins)
    arrays = list(operands_of(current, schedule.values))
    result = schedule.values[current.result]
    if coins is None:
        return [step(current.op, blocks, arrays, result, schedule.mesh)]
    return [inexact_step(current.op, blocks, arrays, result, schedule.mesh, coins)]


def _looped(schedule: Schedule, loop: Loop, blocks: list[Values], coins: Coins | None) -> list[Values]:
    """What the last trip carries on, and what all trips leave, one behind the other."""
    body, mesh, first = schedule.inside(loop), schedule.mesh, loop.fixed + loop.carried
    fixed, carried, scanned = blocks[: loop.fixed], blocks[loop.fixed : first], blocks[first:]
    rows: list[list[Values]] = []
    for turn in loop.turns(loop.trips):
        taken = [row(each, turn, mesh) for each in scanned]
        left = run_blocks(body, dict(zip(body.inputs, (*fixed, *carried, *taken), strict=True)), coins)
        carried = left[: loop.carried]
        rows.append(left[loop.carried :])
    rows = rows[::-1] if loop.down else rows
    return [*carried, *(stacked(each, mesh) for each in zip(*rows, strict=True))]
