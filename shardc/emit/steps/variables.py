"""A Python name for every value of a schedule.

A value takes its array's name where that holds nothing that is still needed, so that
`A = jax.lax.all_gather(A, …)` reads as the listings do; otherwise `A_1`, `A_2`, ….
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from shardc.emit.allowed import ALIKE, BORDER, MAPPED, MEETING, PARTED, RING, TABLES, TAKEN, check_variable, part_names
from shardc.ir.collectives import UnevenExchange
from shardc.ir.names import check_name
from shardc.ir.plan import Block, How, Schedule, Together, ValueNumber, last_uses

# Longer names are cut, so that an assignment always has room for its function.
LONGEST = 24


def variables(
    block: Block, taken: frozenset[str], fixed: Sequence[str] = (), together: Sequence[Together] = ()
) -> tuple[str, ...]:
    """The variable of each value, by number. The first inputs are fixed: variables of these names, from around.

    What is done together leaves its result piece by piece, while it still reads what it was given.
    """
    last, given = last_uses(block), {group.last: _given(block, group) for group in together}
    names = dict(zip(block.inputs, fixed, strict=False))
    held = dict.fromkeys(fixed, len(block.steps))  # by variable: the last step that needs what it holds
    for value in block.inputs[len(fixed) :]:
        names[value] = choose(block.values[value].name, held, -1, taken)
        held[names[value]] = last.get(value, -1)
    for number, step in enumerate(block.steps):
        read = {names[value] for value in given.get(number, ())}
        for value in step.results:
            names[value] = choose(block.values[value].name, held, number, taken | read)
            held[names[value]] = max(last.get(value, number), number + 1)  # beside what else a loop leaves, read or not
    return tuple(names.get(ValueNumber(value), "") for value in range(len(block.values)))


def _given(block: Block, group: Together) -> set[ValueNumber]:
    """What a group reads that it does not make."""
    steps = block.steps[group.first : group.last + 1]
    return {value for step in steps for value in step.operands}.difference(*(step.results for step in steps))


def taken_names(schedule: Schedule) -> frozenset[str]:
    """What the emitted text names beside the variables."""
    ends = (*schedule.inputs, *schedule.outputs)
    parted = any(schedule.values[value].sharding.unreduced for value in ends)
    uneven = any(isinstance(step.op, UnevenExchange) for step in schedule.steps)
    return TAKEN.union(
        (*TABLES, ALIKE, MAPPED) if uneven else (),
        BORDER if schedule.by is not None else (),
        PARTED if parted else (),
        RING if any(group.how in (How.RING, How.RINGS) for group in schedule.together) else (),
        MEETING if any(group.how is How.RINGS for group in schedule.together) else (),
        part_names(len(schedule.together) + 1) if schedule.together or schedule.by_xla else (),
    )


def choose(wanted: str, held: Mapping[str, int], now: int, taken: AbstractSet[str]) -> str:
    """A variable of that name, or of it and a number: not taken, and holding nothing that is needed after `now`."""
    base = check_name(wanted, "array").replace("'", "_prime")[:LONGEST]
    number, name = 0, base
    while name in taken or held.get(name, now) > now or (now < 0 and name in held):
        number += 1
        name = f"{base}_{number}"
    return check_variable(name)
