"""Findings: what is wasteful, once for each cause, with what it costs and what would do.

The same change of sharding, made at the same lines of the program, is one cause, however many arrays, instructions
and trips of loops it is made for. What saves less than a thousandth of the program's bytes is not told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

REMATERIALIZED = "full rematerialization"
GATHERED = "gathered, then sliced"
SUMMED = "summed on every device, then sliced"
TWICE = "gathered twice"
HELD = "moved, though every device holds it"
PLANNED = "a cheaper plan"
WORTHWHILE = 0.95
# What is gathered, and known to be whole or not: the compiler may hide of one array of several what it is a copy of.
_GATHERED = (REMATERIALIZED, GATHERED)
_LEAST = 1000  # one part in so many is not worth telling
_NAMED = re.compile(r"\w+(?=\[)")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wasteful. Bytes and seconds are of all its runs; the better ones are the planner's."""

    kind: str
    where: tuple[str, ...]  # source lines: of the collective, of the slice
    what: str
    collectives: tuple[str, ...]  # names of instructions
    wire_bytes: int
    time_s: float
    better_bytes: int
    better_s: float
    bound_bytes: int | None
    statement: str
    remedy: str
    count: int = 1  # how often it is done: for how many arrays, in how many trips
    cause: tuple[str, ...] = ()  # the lines that ask for it; of equal ones the findings are one

    @property
    def saved_bytes(self) -> int:
        return self.wire_bytes - self.better_bytes

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        del found["cause"]
        return found


def by_cause(findings: Iterable[Finding]) -> list[Finding]:
    """Those of one cause as one; what saves most comes first."""
    together: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        lines = finding.cause or finding.where or finding.collectives[:1]
        kind = _GATHERED if finding.kind in _GATHERED else finding.kind
        together.setdefault((kind, lines, unnamed(finding.statement)), []).append(finding)
    merged = [_merged(found) for found in together.values()]
    return sorted(merged, key=lambda finding: -finding.saved_bytes)


def worth_telling(findings: Sequence[Finding], wire_bytes: int) -> tuple[Finding, ...]:
    """Those that save a thousandth of the bytes or more."""
    return tuple(finding for finding in findings if finding.saved_bytes * _LEAST >= wire_bytes)


def _merged(found: Sequence[Finding]) -> Finding:
    """Findings of one cause, added up; they are told of the first that knows most, and of each array's change."""
    told = next((one for one in found if one.kind == REMATERIALIZED), found[0])
    bounds = [one.bound_bytes for one in found if one.bound_bytes is not None]
    return replace(
        told,
        where=_each_once(line for one in found for line in one.where),
        what=told.what + _more(len(found) - 1),
        collectives=_each_once(name for one in found for name in one.collectives),
        wire_bytes=sum(one.wire_bytes for one in found),
        time_s=sum(one.time_s for one in found),
        better_bytes=sum(one.better_bytes for one in found),
        better_s=sum(one.better_s for one in found),
        bound_bytes=sum(bounds) if bounds else None,
        statement="\n".join(_each_once(one.statement for one in found)),
        count=sum(one.count for one in found),
    )


def _more(count: int) -> str:
    return f"; so {'is' if count == 1 else 'are'} {count} more" if count else ""


def _each_once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def unnamed(statement: str) -> str:
    """`a[I_X, J] → a[I, J_X]` without the array's name, which a partitioner may know or not."""
    return _NAMED.sub("", statement)
