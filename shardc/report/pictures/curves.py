"""Times over a size, by logarithms: a curve for each, a line where two of them cross."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardc.io.units import in_seconds
from shardc.report.pictures import style
from shardc.report.pictures.marks import Dot, Group, Line, Mark, Point, Rect, Text
from shardc.report.pictures.picture import Picture, framed
from shardc.report.pictures.scale import Scale, apart

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT = 460.0, 240.0, 66.0, 30.0, 116.0
_MARK = 3.5


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds at sizes. A chart's first has dots and a line, its second squares and dashes, its third a thin line."""

    name: str
    points: tuple[Point, ...]

    @property
    def seen(self) -> tuple[Point, ...]:
        """What logarithms can show."""
        return tuple(point for point in self.points if point[1] > 0)


def curves_picture(title: str, across: str, curves: Sequence[Curve], crossings: Sequence[float]) -> Picture:
    """At most three curves over sizes named `across`; `crossings` are sizes."""
    shown = [point for curve in curves for point in curve.seen]
    if not shown:
        return framed(Picture(title, 260, 20, (Text(0, 13, f"{title}: nothing takes time"),)))
    sizes, times = zip(*shown, strict=True)
    x = Scale(min(sizes), max(max(sizes), min(sizes) * 1.01), _LEFT, _LEFT + _WIDTH, log=True)
    y = Scale(min(times) / 1.5, max(times) * 1.5, _TOP + _HEIGHT, _TOP, log=True)
    marks: list[Mark] = [Text(0, 12, title, "s"), *_grid(x, y, across), *_crossed(crossings, x, y)]
    for number, curve in enumerate(curves):
        marks += _curve(number, curve, x, y)
    marks += _names(curves, x, y)
    return framed(Picture(title, _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + 38, tuple(marks)))


def _grid(x: Scale, y: Scale, across: str) -> Iterator[Mark]:
    for value in x.ticks(7):
        yield Line(((x(value), y.start), (x(value), y.end)), "grid")
        yield Text(x(value), y.start + 15, f"{value:,.0f}", "s soft", "middle")
    for value in y.ticks(6):
        yield Line(((x.start, y(value)), (x.end, y(value))), "grid")
        yield Text(x.start - 6, y(value) + 4, in_seconds(value), "s soft", "end")
    yield Text((x.start + x.end) / 2, y.start + 32, across, "s", "middle")


def _crossed(crossings: Sequence[float], x: Scale, y: Scale) -> Iterator[Mark]:
    for at in crossings:
        said = f"equal at {at:,.0f}" if at >= 1000 else f"equal at {at:.4g}"
        line = Line(((x(at), y.start), (x(at), y.end)), "alarm dashed", told=(("crossing", repr(at)),), title=said)
        yield line
        yield Text(min(max(x(at), x.start + 40), x.end - 40), y.end - 4, said, "s alarm", "middle")


def _curve(number: int, curve: Curve, x: Scale, y: Scale) -> Iterator[Mark]:
    places = [(x(size), y(time)) for size, time in curve.seen]
    looks = (("line", 2.0), ("line dashed", 2.0), ("line", 0.8))
    look, thick = looks[number % len(looks)]
    marks: list[Mark] = [Line(tuple(places), look, thick=thick)] if len(places) > 1 else []
    for (size, time), (across, up) in zip(curve.seen, places, strict=True):
        told = (("curve", curve.name), ("size", repr(size)), ("time", repr(time)))
        title = f"{curve.name} at {size:,.0f}: {in_seconds(time)}"
        marks.append(_marker(number, across, up, told, title))
    yield Group(tuple(marks), look="curve", told=(("name", curve.name),), title=curve.name)


def _marker(number: int, x: float, y: float, told: tuple[tuple[str, str], ...], title: str) -> Mark:
    if number == 1:
        return Rect(x - _MARK, y - _MARK, 2 * _MARK, 2 * _MARK, f"{style.fill(1)} edge", told, title)
    return Dot(x, y, _MARK if number == 0 else 1.5, f"{style.fill(0)} edge", told, title)


def _names(curves: Sequence[Curve], x: Scale, y: Scale) -> Iterator[Mark]:
    """Beside where each curve ends, one below the other."""
    ends = sorted((y(curve.seen[-1][1]), curve.name) for curve in curves if curve.seen)
    places = apart([place for place, _ in ends], 14)
    shift = max(0.0, places[-1] - y.start)
    for place, (_, name) in zip(places, ends, strict=True):
        yield Text(x.end + 10, place - shift + 4, name, "s")
