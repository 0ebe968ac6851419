"""The question that a plan answers."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.cost import LinkModel
from shardc.ir.program import Program
from shardc.planner import Idle, Objective, Overlap


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan answers."""

    program: Program
    model: LinkModel
    objective: Objective
    memory: int | None
    idle: Idle
    overlap: Overlap = Overlap.AUTO
