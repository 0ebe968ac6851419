"""What tuning found: every candidate as it was predicted and replayed, and the one that is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from shardc.compiled.compare import Side
from shardc.compiled.tune.plans import Candidate
from shardc.io.text import preformatted
from shardc.io.units import in_bytes, in_seconds
from shardc.proving import Proof


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate, whether it is proved to be the program, and what its replay says; or why the compiler refuses it."""

    candidate: Candidate
    proof: Proof
    side: Side | None
    refused: str = ""

    @property
    def replayed_s(self) -> float:
        return float("inf") if self.side is None else self.side.timeline.step_s

    def to_json(self) -> dict[str, Any]:
        found = {"plan": self.candidate.name, "form": self.candidate.how, "predicted_s": self.candidate.predicted_s}
        found["proof"] = self.proof.verdict.value
        if self.side is None or self.side.memory is None:
            return {**found, "refused": self.refused}
        line = self.side.timeline
        return {
            **found,
            "replayed_s": line.step_s,
            "compute_s": line.compute_s,
            "communication_s": line.communication_s,
            "exposed_s": line.exposed_s,
            "wire_bytes": self.side.wire_bytes,
            "temporary_bytes": self.side.memory.temporary_bytes,
        }


@dataclass(frozen=True, slots=True, repr=False)
class Tuned:
    """`print` shows the table, in the order of trying; `kept` is the place of the best."""

    tried: tuple[Tried, ...]
    kept: int
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Tried:
        return self.tried[self.kept]

    def to_json(self) -> dict[str, Any]:
        return {"candidates": [each.to_json() for each in self.tried], "kept": self.kept, "notes": list(self.notes)}

    def __repr__(self) -> str:
        best = self.best
        return f"<Tuning: {best.candidate.label}, {in_seconds(best.replayed_s)}, of {len(self.tried)} candidates>"

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def __str__(self) -> str:
        headers = ("", "predicted", "replayed", "exposed", "wire bytes", "temporary bytes", "")
        table = tabulate(
            list(self._rows()), headers=headers, tablefmt="simple", disable_numparse=True, colalign=_COLUMNS
        )
        return "\n".join([table, *(f"note: {note}" for note in self.notes)])

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for place, each in enumerate(self.tried):
            predicted = "–" if each.candidate.predicted_s is None else in_seconds(each.candidate.predicted_s)
            if each.side is None or each.side.memory is None:
                yield each.candidate.label, predicted, "refused", "", "", "", ""
                continue
            line, memory = each.side.timeline, each.side.memory.temporary_bytes
            bytes_ = (in_bytes(each.side.wire_bytes), in_bytes(memory))
            kept = "kept" if place == self.kept else ""
            yield each.candidate.label, predicted, in_seconds(line.step_s), in_seconds(line.exposed_s), *bytes_, kept


_COLUMNS = ("left", *["right"] * 5, "left")
