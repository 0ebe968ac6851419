"""What a sweep's rows are of, beside what is swept: mesh, chip, type, sizes, and what was assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Sizes: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Stands:
    """What the plan of one row is of."""

    mesh: Sizes
    chip: str
    dtype: str
    dims: Sizes
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """What the plans of all rows are of: of an axis or a dim its sizes, several where each row chose one."""

    mesh: Mapping[str, tuple[int, ...]]
    chip: str
    dtype: str
    dims: Mapping[str, tuple[int, ...]]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        mesh = f"mesh {_spelled(self.mesh)}" if self.mesh else ""
        parts = (mesh, f"chip {self.chip}", self.dtype, _spelled(self.dims))
        return "\n".join(["; ".join(part for part in parts if part), *(f"note: {note}" for note in self.notes)])


def standing(rows: Sequence[Stands]) -> Standing:
    """Of at least one row."""
    mesh, dims = (_sizes([getattr(row, name) for row in rows]) for name in ("mesh", "dims"))
    notes = dict.fromkeys(note for row in rows for note in row.notes)
    return Standing(mesh, rows[0].chip, rows[0].dtype, dims, tuple(notes))


def _sizes(rows: Sequence[Sizes]) -> dict[str, tuple[int, ...]]:
    found: dict[str, dict[int, None]] = {}
    for name, size in (each for row in rows for each in row):
        found.setdefault(name, {})[size] = None
    return {name: tuple(sizes) for name, sizes in found.items()}


def _spelled(sizes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name}={' or '.join(map(str, found))}" for name, found in sizes.items())
