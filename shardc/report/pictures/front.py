"""Time, or wire bytes, against memory: a dot for each plan of a front."""

from __future__ import annotations

from itertools import pairwise

from shardc.io.units import in_bytes, in_seconds
from shardc.planner import Objective
from shardc.report.front import FrontView
from shardc.report.pictures import style
from shardc.report.pictures.marks import Dot, Group, Line, Mark, Text
from shardc.report.pictures.picture import Picture, framed
from shardc.report.pictures.scale import Scale

_WIDTH, _HEIGHT, _LEFT, _TOP = 460.0, 230.0, 76.0, 26.0


def front_picture(front: FrontView) -> Picture:
    """The best by the objective on the left, the leanest on the right and low; nothing lies below the stairs."""
    by_time = front.objective is Objective.TIME
    values = [point.cost.time_s if by_time else float(point.cost.wire_bytes) for point in front.points]
    peaks = [float(point.cost.peak_bytes) for point in front.points]
    x = Scale(*_around(values), _LEFT, _LEFT + _WIDTH)
    y = Scale(*_around(peaks), _TOP + _HEIGHT, _TOP)
    marks: list[Mark] = [Text(0, 12, "peak memory of a device", "s")]
    for value in x.ticks(5):
        marks.append(Line(((x(value), _TOP), (x(value), y.start)), "grid"))
        said = in_seconds(value) if by_time else in_bytes(round(value))
        marks.append(Text(x(value), y.start + 15, said, "s soft", "middle"))
    for value in y.ticks(5):
        marks.append(Line(((_LEFT, y(value)), (x.end, y(value))), "grid"))
        marks.append(Text(_LEFT - 6, y(value) + 4, in_bytes(round(value)), "s soft", "end"))
    marks.append(Text(_LEFT + _WIDTH / 2, y.start + 32, "time" if by_time else "wire bytes", "s", "middle"))
    places = [(x(value), y(peak)) for value, peak in zip(values, peaks, strict=True)]
    if len(places) > 1:
        marks.append(Line(tuple(_stairs(places)), "line dashed"))
    marks += [_dot(number, front, place) for number, place in enumerate(places)]
    return framed(
        Picture(
            "time against memory" if by_time else "wire bytes against memory",
            _LEFT + _WIDTH + 30,
            _TOP + _HEIGHT + 40,
            tuple(marks),
        )
    )


def _around(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * 0.12 or high * 0.1 or 1.0
    return max(low - room, 0.0), high + room


def _stairs(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """From each plan at its memory until the next is reached."""
    found = [places[0]]
    for (_, before), (x, y) in pairwise(places):
        found += [(x, before), (x, y)]
    return found


def _dot(number: int, front: FrontView, at: tuple[float, float]) -> Group:
    cost = front.points[number].cost
    sizes = f"{in_bytes(cost.wire_bytes)} of wire, {in_bytes(cost.peak_bytes)} of memory"
    said = f"plan {number + 1}: {in_seconds(cost.time_s)}, {sizes}"
    told = (("plan", str(number)), ("peak", str(cost.peak_bytes)), ("wire", str(cost.wire_bytes)))
    look = f"{style.fill(1 if not number else 0)} edge"
    return Group(
        (Dot(*at, 9, look), Text(at[0], at[1] + 4, str(number + 1), "s k", "middle")), look="dot", told=told, title=said
    )
