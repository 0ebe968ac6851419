"""When what is busy: a row for compute and for each axis, a bar for each step on the rows that it occupies."""

from __future__ import annotations

from shardc.compiled.replay.timeline import COMPUTE, MEMORY, Event, Timeline
from shardc.io.units import in_seconds
from shardc.report.pictures import style
from shardc.report.pictures.marks import Group, Line, Mark, Rect, Text, shortened, width_of
from shardc.report.pictures.picture import Picture, framed
from shardc.report.pictures.scale import Scale

_WIDTH, _ROW = 640.0, 30.0
_PS = 1e-12
_MOST = 400  # bars


def timeline_picture(timeline: Timeline, until_s: float | None = None) -> Picture:
    """Of a plan as it is priced, or of a compiled program as it is replayed; of `until_s` seconds, beside a longer."""
    title = f"timeline of {in_seconds(timeline.step_s)}"
    tracks = timeline.tracks
    if not tracks:
        return framed(Picture(title, 160, 20, (Text(0, 13, "nothing takes time"),)))
    left = max(width_of(track) for track in tracks) + 12
    scale = Scale(0, timeline.step_s if until_s is None else until_s, left, left + _WIDTH)
    bottom = len(tracks) * _ROW + 8
    marks: list[Mark] = []
    for value in scale.ticks():
        x = scale(value)
        marks += [Line(((x, 4), (x, bottom)), "grid"), Text(x, bottom + 14, in_seconds(value), "s soft", "middle")]
    for row, track in enumerate(tracks):
        marks.append(Text(0, row * _ROW + 24, track))
        share = f"{100 * timeline.busy_s(track) / timeline.step_s:.0f} %"
        marks.append(Text(left + _WIDTH + 8, row * _ROW + 24, share, "s soft"))
    placed = _placed(timeline)
    drawn = sorted(sorted(placed, key=lambda each: -each[1].duration_ps)[:_MOST], key=lambda each: each[0])
    marks += [_bar(event, row, scale, number) for number, event, row in drawn]
    if len(drawn) < len(placed):
        marks.append(Text(left, bottom + 30, f"the longest {_MOST} of {len(placed)} are drawn", "s soft"))
        bottom += 16
    return framed(Picture(title, left + _WIDTH + 50, bottom + 20, tuple(marks)))


def _placed(timeline: Timeline) -> list[tuple[int, Event, int]]:
    """Each event once for each of its rows."""
    return [
        (number, event, timeline.tracks.index(track))
        for number, event in enumerate(timeline.events)
        for track in event.tracks
        if track in timeline.tracks
    ]


def _bar(event: Event, row: int, scale: Scale, number: int) -> Group:
    start, end = scale(event.start_ps * _PS), scale(event.end_ps * _PS)
    y, width = row * _ROW + 8, max(end - start, 1.0)
    title = f"{event.kind} {event.name}: {in_seconds(event.duration_s)} from {in_seconds(event.start_s)}"
    look = style.fill({COMPUTE: 0, MEMORY: 2}.get(event.tracks[0], 1))
    marks: list[Mark] = [Rect(start, y, width, _ROW - 8, f"{look} edge")]
    if event.is_communication:
        marks.append(Rect(start, y, min(width, 8), _ROW - 8, "x4"))
    label = shortened(event.kind, width - 16, "s")
    if width > 40 and len(label) > 3:
        marks.append(Text(start + 11, y + 15, label, "s k"))
    told = (("event", str(number)), ("start", str(event.start_ps)), ("duration", str(event.duration_ps)))
    return Group(tuple(marks), look="bar", told=told, title=title)
