"""What a device does when: events on tracks, and the times that follow from them.

One track is the matrix and vector units (`compute`), one the copies beside them (`memory`), the others are links, as
`tracks` names them: for each mesh axis on a torus `X+` and `X-`, the two ways round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

COMPUTE, MEMORY = "compute", "memory"
_PICO = 10**12
Span = tuple[int, int]  # [start, end), in picoseconds


@dataclass(frozen=True, slots=True)
class Event:
    """Something that occupies tracks for a while. An iteration that repeats is one event of all its repetitions."""

    name: str  # of the instruction
    kind: str  # a collective's name, or an opcode
    tracks: tuple[str, ...]
    start_ps: int
    duration_ps: int
    bytes: int = 0  # of the wire for a collective, else those read and written in memory; of one run
    count: int = 1  # how many runs lie one behind the other
    basis: str = ""  # what its time was taken from: cycles, roofline, links, memory
    is_async: bool = False
    scope: str = ""
    source: str = ""  # the line that it comes from
    statement: str = ""  # of a program of ours

    @property
    def end_ps(self) -> int:
        return self.start_ps + self.duration_ps

    @property
    def start_s(self) -> float:
        return self.start_ps / _PICO

    @property
    def duration_s(self) -> float:
        return self.duration_ps / _PICO

    @property
    def is_communication(self) -> bool:
        return self.tracks[0] not in (COMPUTE, MEMORY)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events in order of the program, the time when the last ends, and what had to be assumed."""

    events: tuple[Event, ...]
    tracks: tuple[str, ...]
    step_ps: int
    notes: tuple[str, ...] = ()

    @property
    def step_s(self) -> float:
        return self.step_ps / _PICO

    @property
    def compute_s(self) -> float:
        return self.busy_s(COMPUTE)

    @property
    def communication_s(self) -> float:
        """The time during which some link is busy."""
        return _length(self._communication()) / _PICO

    @property
    def exposed_s(self) -> float:
        """The time during which some link is busy and compute is not."""
        return (self._busy_ps() - _length(self.spans(COMPUTE))) / _PICO

    @property
    def waiting_s(self) -> float:
        """The time during which neither is: what is to be read is brought to the chip."""
        return (self.step_ps - self._busy_ps()) / _PICO

    @property
    def overlapped_s(self) -> float:
        """The communication that computing hides."""
        return self.communication_s - self.exposed_s

    def busy_s(self, track: str) -> float:
        return _length(self.spans(track)) / _PICO

    def spans(self, track: str) -> list[Span]:
        """When a track is busy, in order, neighbours joined."""
        return merged((e.start_ps, e.end_ps) for e in self.events if track in e.tracks)

    def _busy_ps(self) -> int:
        """The time during which some link is busy, or compute is."""
        return _length(merged([*self._communication(), *self.spans(COMPUTE)]))

    def _communication(self) -> list[Span]:
        return merged((e.start_ps, e.end_ps) for e in self.events if e.is_communication)

    def to_json(self) -> dict[str, Any]:
        return {
            "step_s": self.step_s,
            "compute_s": self.compute_s,
            "communication_s": self.communication_s,
            "exposed_s": self.exposed_s,
            "waiting_s": self.waiting_s,
            "busy_s": {track: self.busy_s(track) for track in self.tracks},
            "notes": list(self.notes),
        }


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same times, with no two spans that overlap or touch."""
    return list(_merged(sorted(span for span in spans if span[1] > span[0])))


def _merged(spans: list[Span]) -> Iterator[Span]:
    if not spans:
        return
    start, end = spans[0]
    for low, high in spans[1:]:
        if low > end:
            yield start, end
            start, end = low, high
        else:
            end = max(end, high)
    yield start, end


def _length(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)
