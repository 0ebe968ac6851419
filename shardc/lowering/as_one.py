"""How a product is done as one with the collectives beside it: the form of each group of steps, said once.

    form of a group = Ring         partial products beside permutes (`lowering.rings`)
                    | Meeting      two rings at once (`lowering.meeting`)
                    | Chunks       of a free dim, each gathered beside the product of another (`lowering.chunks`)
                    | LeftToXla    an einsum between two shardings, which XLA splits and windows by itself

A group says which steps are done as one and how (`ir.plan.Together`); its form is what follows from the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from shardc.ir.plan import How, Schedule, Together
from shardc.lowering.chunks import Chunks, chunks_of
from shardc.lowering.flow import untyped_along
from shardc.lowering.meeting import Meeting, meeting_of
from shardc.lowering.repeats import any_repeats
from shardc.lowering.rings import Ring, ring_of


@dataclass(frozen=True, slots=True)
class LeftToXla:
    """The program is cut before and behind it (`lowering.together`)."""


AsOne: TypeAlias = Ring | Meeting | Chunks | LeftToXla


def as_one(schedule: Schedule, group: Together) -> AsOne | None:
    """How a group is done as one; None where it cannot be. Of a program that is cut: a group of one of its parts."""
    match group.how:
        case How.RING:
            return ring_of(schedule, group)
        case How.RINGS:
            return meeting_of(schedule, group)
        case How.CHUNKS:
            return chunks_of(schedule, group)
        case How.PARTITIONER:
            is_possible = may_be_cut(schedule) and not any_repeats(schedule.block, group.places)
            return LeftToXla() if is_possible else None
        case _:
            assert_never(group.how)


def may_be_cut(schedule: Schedule) -> bool:
    """Whether parts of a program can be left to the partitioner: on its own mesh alone."""
    return schedule.by is None and may_be_grouped(schedule)


def may_be_grouped(schedule: Schedule) -> bool:
    """Whether products can be done as one with collectives: where no partial sums come in or go out."""
    ends = (*schedule.inputs, *schedule.outputs)
    partial = any(schedule.values[value].sharding.unreduced for value in ends)
    return bool(schedule.mesh.axes) and not partial and not any(untyped_along(schedule.block))
