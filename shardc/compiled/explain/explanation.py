"""What a compiled function communicates, as data, as JSON, and as text.

The text shows the collectives, the sums over each group of axes, then what is wasteful and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from tabulate import tabulate

from shardc.compiled.explain.findings import Finding
from shardc.cost.allocation import Allocation
from shardc.io.text import preformatted
from shardc.io.units import in_bytes, in_seconds
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, spell_axes

_SIZES = ("local bytes", "wire bytes", "judged bytes")
_COLLECTIVES = ("collective", "arrays", "runs", *_SIZES, "time", "", "where", "operation")
_NOT_JUDGED = ("not judged", "arrays", "wire bytes", "why")
_TOTALS = ("over", "collectives", "wire bytes", "time")
_LEFT = ("collective", "over", "", "where", "operation", "not judged", "why")
_LONG = 48
_MOST_NAMES = 4


@dataclass(frozen=True, slots=True)
class Moved:
    """One array of a collective: how many bytes of it were judged, all or none; bytes are of all runs."""

    name: str  # of the instruction that makes it
    shape: str
    local_bytes: int
    wire_bytes: int
    judged: bool
    why: str  # what became of it, or why it was not judged
    source: str
    scope: str


@dataclass(frozen=True, slots=True)
class Row:
    """One collective of the program; bytes and seconds are of all its runs."""

    kind: str
    axes: Axes | None
    group_size: int
    count: int
    count_known: bool
    local_bytes: int
    wire_bytes: int
    time_s: float
    is_async: bool
    source: str  # the user's line
    scope: str  # JAX's names of the operation
    name: str  # of the instruction
    algorithm: str
    arrays: tuple[Moved, ...] = ()  # what it moves: often several arrays together

    @property
    def judged_bytes(self) -> int:
        return sum(array.wire_bytes for array in self.arrays if array.judged)

    @property
    def label(self) -> str:
        """`AllGather_XY`; `AllGather of 4` for groups that are not made of whole axes."""
        return f"{self.kind} of {self.group_size}" if self.axes is None else f"{self.kind}_{spell_axes(self.axes)}"


@dataclass(frozen=True, slots=True)
class Total:
    """All collectives over the same axes."""

    axes: Axes | None
    collectives: int
    wire_bytes: int
    time_s: float


@dataclass(frozen=True, slots=True)
class NotJudged:
    """Arrays of one collective that were not judged, for one reason."""

    collective: str  # its label
    name: str  # of the instruction
    arrays: int
    wire_bytes: int
    why: str


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What a compiled function communicates. `print` shows it; seconds are by the cost model, nothing overlapped."""

    mesh: Mesh
    chip: str
    platform: str
    collectives: tuple[Row, ...]
    findings: tuple[Finding, ...]  # what saves most comes first
    memory: Allocation | None
    notes: tuple[str, ...] = ()
    step_s: float | None = None  # of the whole step, where somebody has replayed it

    @property
    def wire_bytes(self) -> int:
        return sum(row.wire_bytes for row in self.collectives)

    @property
    def judged_bytes(self) -> int:
        """Of the wire bytes, those of which it is known whether they are wasted."""
        return sum(row.judged_bytes for row in self.collectives)

    @property
    def wasted_bytes(self) -> int:
        """What doing better would save; of findings about the same collective the one that saves most counts."""
        wasted, seen = 0, set[str]()
        for finding in sorted(self.findings, key=lambda each: -each.saved_bytes):
            if seen.isdisjoint(finding.collectives):
                wasted += finding.saved_bytes
                seen.update(finding.collectives)
        return wasted

    @property
    def not_judged(self) -> tuple[NotJudged, ...]:
        """The rest, by collective and by what stood in the way."""
        found = []
        for row in self.collectives:
            left = [array for array in row.arrays if not array.judged]
            for why in dict.fromkeys(array.why for array in left):
                sizes = [array.wire_bytes for array in left if array.why == why]
                found.append(NotJudged(row.label, row.name, len(sizes), sum(sizes), why))
        return tuple(found)

    @property
    def time_s(self) -> float:
        return sum(row.time_s for row in self.collectives)

    @property
    def totals(self) -> tuple[Total, ...]:
        """Per group of axes, in order of first use."""
        axes = dict.fromkeys(row.axes for row in self.collectives)
        rows = {group: [row for row in self.collectives if row.axes == group] for group in axes}
        return tuple(
            Total(group, sum(r.count for r in own), sum(r.wire_bytes for r in own), sum(r.time_s for r in own))
            for group, own in rows.items()
        )

    def __str__(self) -> str:
        return _text(self)

    def __repr__(self) -> str:
        counts = {"collective": len(self.collectives), "finding": len(self.findings)}
        moved, wasted = (f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items())
        found = f"{moved}, {self.wire_bytes:,} wire bytes, {wasted}"
        return f"<Explanation on {self.chip}, mesh {self.mesh}: {found}>"

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def to_json(self) -> dict[str, Any]:
        """The fields of `shardc explain --json`."""
        return {
            "version": 1,
            "mesh": dict(self.mesh.axes),
            "chip": self.chip,
            "platform": self.platform,
            "collectives": [asdict(row) | {"judged_bytes": row.judged_bytes} for row in self.collectives],
            "totals": [asdict(total) for total in self.totals],
            "cost": {"wire_bytes": self.wire_bytes, "communication_s": self.time_s, "step_s": self.step_s},
            "judged": {
                "wire_bytes": self.judged_bytes,
                "of_wire_bytes": self.wire_bytes,
                "not_judged": [asdict(left) for left in self.not_judged],
            },
            "memory": asdict(self.memory) if self.memory is not None else None,
            "findings": [finding.to_json() for finding in self.findings],
            "notes": list(self.notes),
        }


def _text(found: Explanation) -> str:
    parts = [_head(found), _collectives(found), _totals(found), _not_judged(found), _notes(found), _findings(found)]
    return "\n\n".join(part for part in parts if part)


def _head(found: Explanation) -> str:
    lines = [f"mesh {found.mesh}; compiled for {found.platform}, priced for {found.chip}; per device"]
    if found.memory is not None:
        sizes = (found.memory.argument_bytes, found.memory.output_bytes, found.memory.temporary_bytes)
        lines.append("memory: arguments {}, outputs {}, temporary {}".format(*map(in_bytes, sizes)))
    if found.step_s is not None:
        lines.append(f"step: {in_seconds(found.step_s)}")
    return "\n".join(lines)


def _collectives(found: Explanation) -> str:
    rows = [_row(row) for row in found.collectives]
    return _table(_COLLECTIVES, rows) if rows else "no communication"


def _row(row: Row) -> tuple[str, ...]:
    runs = str(row.count) if row.count_known else f"{row.count} or more"
    mode = "async" if row.is_async else ""
    scope = row.scope if len(row.scope) <= _LONG else "…" + row.scope[-_LONG:]
    sizes = (in_bytes(row.local_bytes), in_bytes(row.wire_bytes), in_bytes(row.judged_bytes))
    places = shortened(dict.fromkeys(_place(array.source) for array in row.arrays if array.source), 2)
    return (row.label, str(len(row.arrays)), runs, *sizes, in_seconds(row.time_s), mode, places, scope)


def _totals(found: Explanation) -> str:
    if not found.collectives:
        return ""
    rows = [
        (
            "parts of axes" if total.axes is None else spell_axes(total.axes),
            str(total.collectives),
            in_bytes(total.wire_bytes),
            in_seconds(total.time_s),
        )
        for total in found.totals
    ]
    count = sum(total.collectives for total in found.totals)
    return _table(_TOTALS, [*rows, ("all", str(count), in_bytes(found.wire_bytes), in_seconds(found.time_s))])


def _not_judged(found: Explanation) -> str:
    """What was not judged; equal collectives that one thing stands in the way of are one line."""
    together: dict[tuple[str, str], list[NotJudged]] = {}
    for left in found.not_judged:
        together.setdefault((left.collective, left.why), []).append(left)
    rows = [
        (label, str(sum(each.arrays for each in own)), in_bytes(sum(each.wire_bytes for each in own)), why)
        for (label, why), own in together.items()
    ]
    return _table(_NOT_JUDGED, rows) if rows else ""


def _notes(found: Explanation) -> str:
    return "\n".join(f"note: {note}" for note in found.notes)


def _findings(found: Explanation) -> str:
    if not found.findings:
        every = found.judged_bytes == found.wire_bytes
        return "nothing wasteful found" + ("" if every else f" in {found.judged_bytes:,} of {found.wire_bytes:,} bytes")
    return "\n\n".join("\n".join(_finding(n, finding)) for n, finding in enumerate(found.findings, start=1))


def _finding(number: int, finding: Finding) -> Iterator[str]:
    where = shortened(map(_place, finding.where))
    yield f"{number}. {finding.kind}" + (f" ({where})" if where else "")
    yield f"   {finding.what}"
    times = f" in {finding.count:,} times" if finding.count > 1 else ""
    names = shortened(finding.collectives)
    yield f"   costs    {in_bytes(finding.wire_bytes)}, {in_seconds(finding.time_s)}{times}: {names}"
    bound = f"; the bound is {in_bytes(finding.bound_bytes)}" if finding.bound_bytes else ""
    better = f"{in_bytes(finding.better_bytes)}, {in_seconds(finding.better_s)}" if finding.better_bytes else "nothing"
    yield f"   instead  {better}{bound}"
    yield from (f"            {line}" for line in finding.statement.splitlines())
    yield f"   help: {finding.remedy}"


def _place(source: str) -> str:
    """`model.py:12`, without the folders."""
    return PurePath(source).name if source else ""


def shortened(names: Iterable[str], most: int = _MOST_NAMES) -> str:
    """`a, b, c, d and 96 more`."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def _table(headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    aligned = ["left" if header in _LEFT else "right" for header in headers]
    found = tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True, colalign=aligned)
    return "\n".join(line.rstrip() for line in found.splitlines())
