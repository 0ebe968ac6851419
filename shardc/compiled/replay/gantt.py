"""A timeline drawn: as text, and as the JSON that Perfetto and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardc.compiled.replay.timeline import Event, Span, Timeline
from shardc.io.text import json_text

_MICRO = 10**6  # picoseconds
_SHADES = " ░▒▓█"
_LEAST_WIDTH = 10
_SHARE = len(" 100 %")
_FIRST = 1  # viewers take process 0 and thread 0 for the idle ones


def gantt(timeline: Timeline, width: int = 72, columns: int | None = None) -> str:
    """One row a track, the darker the busier; behind it how much of the step that is. In so many columns, if any.

    compute  ██████▒  ███████   81 %
    X+          ████████        49 %
             0       1,234.5 µs
    """
    margin = max((len(track) for track in timeline.tracks), default=0) + 2
    room = width if columns is None else columns - margin - _SHARE
    width = max(min(width, room), _LEAST_WIDTH)
    rows = [_row(timeline, track, margin, width) for track in timeline.tracks]
    end = f"{timeline.step_ps / _MICRO:,.1f} µs"
    return "\n".join([*rows, " " * margin + "0" + end.rjust(width - 1)])


def _row(timeline: Timeline, track: str, margin: int, width: int) -> str:
    spans = timeline.spans(track)
    busy = sum(end - start for start, end in spans)
    share = f"{100 * busy / timeline.step_ps:.0f}" if timeline.step_ps else "0"
    return f"{track:<{margin}}{_cells(spans, timeline.step_ps, width)} {share:>3} %"


def _cells(spans: Sequence[Span], step: int, width: int) -> str:
    """How much of each of `width` equal parts of the step the spans fill; what fills any of it is seen."""
    filled = [0] * width  # in picoseconds times `width`, so that parts are whole numbers
    for start, end in spans:
        first, last = start * width // step, (end * width - 1) // step
        for place in range(first, last + 1):
            filled[place] += min(end * width, (place + 1) * step) - max(start * width, place * step)
    return "".join(_SHADES[-(-part * (len(_SHADES) - 1) // step)] if step else " " for part in filled)


def trace(timeline: Timeline, name: str = "step") -> str:
    """The timeline in the Trace Event Format: one thread a track, times in microseconds."""
    threads = {track: number for number, track in enumerate(timeline.tracks, _FIRST)}
    records = [_named("process_name", _FIRST, name)]
    for track, number in threads.items():
        records.append(_named("thread_name", number, track))
        records.append({**_named("thread_sort_index", number, ""), "args": {"sort_index": number}})
    records += [_record(event, threads[track]) for event in timeline.events for track in event.tracks]
    return json_text({"traceEvents": records, "displayTimeUnit": "ns"}, sort_keys=True)


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": _FIRST, "tid": thread, "name": what, "args": {"name": name}}


def _record(event: Event, thread: int) -> dict[str, Any]:
    facts = {"kind": event.kind, "bytes": event.bytes, "count": event.count, "priced by": event.basis}
    facts |= {key: text for key in ("scope", "source", "statement") if (text := getattr(event, key))}
    return {
        "ph": "X",
        "pid": _FIRST,
        "tid": thread,
        "name": f"{event.kind} {event.name}" if event.is_communication else event.name,
        "cat": "communication" if event.is_communication else event.tracks[0],
        "ts": event.start_ps / _MICRO,
        "dur": event.duration_ps / _MICRO,
        "args": facts,
    }
