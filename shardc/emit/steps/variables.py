"""A Python name for every value of a schedule.

A value takes its array's name where that holds nothing that is still needed, so that
`A = jax.lax.all_gather(A, …)` reads as the listings do; otherwise `A_1`, `A_2`, ….
"""

from __future__ import annotations

from shardc.emit.allowed import BORDER, PARTED, TAKEN, check_variable
from shardc.ir.names import check_name
from shardc.ir.plan import Schedule

# Longer names are cut, so that an assignment always has room for its function.
LONGEST = 24


def variables(schedule: Schedule) -> tuple[str, ...]:
    """The variable of each value, by number."""
    last, taken = _last_uses(schedule), _taken(schedule)
    names: dict[int, str] = {}
    held: dict[str, int] = {}  # by variable: the last step that needs what it holds
    for value in schedule.inputs:
        names[value] = _choose(schedule.values[value].name, held, -1, taken)
        held[names[value]] = last.get(value, -1)
    for number, step in enumerate(schedule.steps):
        names[step.result] = _choose(schedule.values[step.result].name, held, number, taken)
        held[names[step.result]] = last.get(step.result, number)
    return tuple(names.get(value, "") for value in range(len(schedule.values)))


def _taken(schedule: Schedule) -> frozenset[str]:
    """What the emitted text names beside the variables."""
    ends = (*schedule.inputs, *schedule.outputs)
    parted = any(schedule.values[value].sharding.unreduced for value in ends)
    return TAKEN.union(BORDER if schedule.by is not None else (), PARTED if parted else ())


def _choose(wanted: str, held: dict[str, int], now: int, taken: frozenset[str]) -> str:
    base = check_name(wanted, "dim")[:LONGEST]
    number, name = 0, base
    while name in taken or held.get(name, now) > now or (now < 0 and name in held):
        number += 1
        name = f"{base}_{number}"
    return check_variable(name)


def _last_uses(schedule: Schedule) -> dict[int, int]:
    last = {operand: number for number, step in enumerate(schedule.steps) for operand in step.operands}
    return last | dict.fromkeys(schedule.outputs, len(schedule.steps))
