"""What a call of `einsum` or `reshard` asks of its plan: the options of `plan` that arrays and mesh do not answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from shardc.interface.arguments import (
    FormulaWord,
    IdleWord,
    ObjectiveWord,
    OverlapWord,
    ProfileWord,
    idle_of,
    objective_of,
    overlap_of,
    texts,
)
from shardc.interface.hardware import Hardware


class CallOptions(TypedDict, total=False):
    """What they take by name."""

    chip: str | None
    topology: str | None
    objective: ObjectiveWord
    memory: int | float | str | None
    formula: FormulaWord
    profile: ProfileWord
    map: Mapping[str, Any] | str | None
    dcn: Mapping[str, int] | str | None
    wraparound: Mapping[str, bool | str] | str | None
    idle: IdleWord | None
    overlap: OverlapWord


@dataclass(frozen=True, slots=True)
class Called:
    """The same, read: of equal options equal, so that what was planned by them is found again."""

    hardware: Hardware
    topology: str | None
    objective: str
    idle: str | None
    overlap: str

    @classmethod
    def by(
        cls,
        *,
        topology: str | None = None,
        objective: str = "time",
        idle: str | None = None,
        overlap: str = "auto",
        **hardware: Any,
    ) -> Called:
        """SHC001 for what is malformed."""
        if unknown := hardware.keys() - set(Hardware.OPTIONS):
            raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
        found = cls(Hardware.of(**hardware), topology, objective, idle, overlap)
        texts(chip=found.hardware.chip, topology=topology)
        objective_of(objective)
        idle_of(idle, found.hardware.book)
        overlap_of(overlap)
        return found
