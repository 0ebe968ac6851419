"""The cheapest of a program's plans: as it is written, with what it writes several times as arrays of their own, and
with sums of its arrays done before the products that these are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from shardc.errors import ShardcError
from shardc.ir.program import Program
from shardc.ir.refine import refined
from shardc.planner.options import Objective
from shardc.planner.planned import PlannedProgram, Refused, Within
from shardc.planner.program.others import with_others

if TYPE_CHECKING:
    from shardc.planner.whole.rewrites import Rewritten


def cheapest(program: Program, objective: Objective, written: Within, planned: Callable[[Program], Within]) -> Within:
    """The cheapest of a program's plans under any limit: `written`, or in another way that can be `planned`.

    `y = relu(A · B) + exp(A · B)` as it is, or as `y_1 = A · B; y = relu(y_1) + exp(y_1)`.
    """
    return partial(_cheapest, objective, written, [*_others(program, objective, planned)])


def _cheapest(
    objective: Objective, written: Within, others: Sequence[Within], memory: int | None
) -> PlannedProgram | Refused:
    """Of equal ones that of the program as it is written, whose strategies are told in any case."""
    best = first = written(memory)
    for way in others:
        found = way(memory)
        if isinstance(found, Refused):
            best = Refused(min(best.smallest, found.smallest)) if isinstance(best, Refused) else best
        elif isinstance(best, Refused) or found.price(objective) < best.price(objective):
            best = found
    if isinstance(best, Refused) or isinstance(first, Refused) or best is first:
        return best
    return with_others(best, first)


def _others(program: Program, objective: Objective, planned: Callable[[Program], Within]) -> Iterator[Within]:
    """With what the program writes several times as arrays; for a chip alone also with sums done before products. On a
    slice a sum takes next to nothing beside the product that it is of."""
    from shardc.planner.whole.repeated import with_arrays_shared, with_sums_first  # with NumPy, seldom

    alone = program.topology is None
    for shared in chain(with_arrays_shared(program), with_sums_first(program) if alone else ()):
        try:
            yield partial(_as_written, program, objective, shared, planned(shared.program))
        except ShardcError:
            continue


def _as_written(
    program: Program, objective: Objective, shared: Rewritten, way: Within, memory: int | None
) -> PlannedProgram | Refused:
    """A plan of what it was rewritten to, told by the statements as they were written."""
    from shardc.planner.whole.realise import Exact, as_written

    found, asked = way(memory), Exact(shared.program, shared.told, {})
    if isinstance(found, Refused):
        return found
    told = as_written(program, found, asked, objective)
    if found.whole is None or found.schedule.by is None:
        return told
    whole = as_written(program, replace(found, schedule=found.whole), asked, objective).schedule
    inputs, outputs = ([whole.values[n].sharding for n in ends] for ends in (whole.inputs, whole.outputs))
    finer = refined(program, found.schedule.by, inputs, outputs)
    return replace(told, schedule=replace(told.schedule, program=finer), whole=whole)
