"""The question that a plan answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shardc.cost import LinkModel
from shardc.ir.program import Program
from shardc.planner import Idle, Objective, Overlap


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan answers; `devices` is the JAX mesh that it was asked for, if it was one: another process has its
    own. `model` is compared by its parts (`ByParts` of a plan)."""

    program: Program
    model: LinkModel = field(compare=False)
    objective: Objective
    memory: int | None
    idle: Idle
    overlap: Overlap = Overlap.AUTO
    devices: Any = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Asked, (self.program, self.model, self.objective, self.memory, self.idle, self.overlap)
