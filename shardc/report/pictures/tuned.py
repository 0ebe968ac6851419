"""What tuning tried: how long the replay of each candidate takes, how much waits for links, and what was promised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shardc.io.units import in_seconds
from shardc.report.pictures import style
from shardc.report.pictures.marks import Group, Line, Mark, Rect, Text, shortened, width_of
from shardc.report.pictures.picture import Picture, framed
from shardc.report.pictures.scale import Scale

if TYPE_CHECKING:
    from shardc.compiled.tune.tuned import Tried, Tuned

_WIDTH, _ROW, _LONGEST = 380.0, 26.0, 300.0
LEGEND = "A bar is the replay; what is striped, at its end, waits for links; a dashed mark is the price."


def tuned_picture(tuned: Tuned) -> Picture:
    """A bar for each candidate, in the order of trying; that of the kept one is told by its look and a word."""
    title = f"{len(tuned.tried)} candidates compiled and replayed"
    prices = [each.candidate.predicted_s for each in tuned.tried]
    longest = max([each.replayed_s for each in tuned.tried if each.side is not None] + [p for p in prices if p])
    names = [shortened(each.candidate.label, _LONGEST, "s") for each in tuned.tried]
    left = max(width_of(name, "s") for name in names) + 10
    scale, bottom = Scale(0, longest, left, left + _WIDTH), len(tuned.tried) * _ROW + 6
    marks: list[Mark] = []
    for value in scale.ticks(5):
        marks.append(Line(((scale(value), 2), (scale(value), bottom)), "grid"))
        marks.append(Text(scale(value), bottom + 14, in_seconds(value), "s soft", "middle"))
    for row, (each, name) in enumerate(zip(tuned.tried, names, strict=True)):
        marks.append(Text(0, row * _ROW + 20, name, "s"))
        inside = tuple(_bar(each, row * _ROW + 6, scale, row == tuned.kept))
        marks.append(Group(inside, look="tried", told=_told(each, row == tuned.kept), title=_said(each)))
    marks.append(Text(0, bottom + 32, LEGEND, "s soft"))
    width = max(left + _WIDTH + 110, width_of(LEGEND, "s"))
    return framed(Picture(title, width, bottom + 38, tuple(marks)))


def _bar(each: Tried, y: float, scale: Scale, is_kept: bool) -> Iterator[Mark]:
    if each.side is None:
        yield Text(scale.start + 4, y + 14, "refused by the compiler", "s soft")
        return
    end, high = scale(each.replayed_s), _ROW - 8
    yield Rect(scale.start, y, end - scale.start, high, f"{style.fill(0 if is_kept else 3)} edge")
    waits = scale(each.side.timeline.exposed_s) - scale.start
    yield Rect(end - waits, y, waits, high, "x4")
    price = each.candidate.predicted_s
    if price is not None:
        yield Line(((scale(price), y - 3), (scale(price), y + high + 3)), "line dashed", thick=2.0)
    yield Text(max(end, scale(price or 0)) + 6, y + 14, in_seconds(each.replayed_s) + ", kept" * is_kept, "s")


def _told(each: Tried, is_kept: bool) -> tuple[tuple[str, str], ...]:
    told = [("candidate", each.candidate.label), ("kept", str(is_kept).lower())]
    if each.side is not None:
        told += [("replayed", repr(each.replayed_s)), ("exposed", repr(each.side.timeline.exposed_s))]
    if each.candidate.predicted_s is not None:
        told.append(("predicted", repr(each.candidate.predicted_s)))
    return tuple(told)


def _said(each: Tried) -> str:
    replayed = "refused" if each.side is None else f"{in_seconds(each.replayed_s)} in replay"
    return f"{each.candidate.label}: {replayed}"
