"""A torus of one to three axes: devices at their places, between neighbours a line each way, as thick as it is busy.

    across   the last axis        down   the one before        back, up to the right   the first of three

What closes a ring leaves at one side and comes in at the other, dashed. Where every line is like those beside it, bytes
stand at one line of each axis; else at each link of a plane that carries some.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import hypot

from shardc.cost.layout import ONE_WAY
from shardc.cost.links.level import Wire
from shardc.cost.topology import Place
from shardc.cost.wiring import Along, Wiring
from shardc.io.units import in_bytes
from shardc.report.pictures.marks import Anchor, Dot, Group, Line, Mark, Point, Text, extent, width_of
from shardc.report.pictures.picture import Picture

_MOST = {1: (8,), 2: (6, 6), 3: (4, 4, 4)}  # devices that are drawn along an axis: of a longer one as many of each end
_STEPS: dict[int, tuple[Point, ...]] = {
    1: ((112, 0),),
    2: ((0, 76), (112, 0)),
    3: ((38, -28), (0, 132), (186, 0)),
}
_BESIDE: dict[int, tuple[tuple[float, float, Anchor], ...]] = {  # of a link's middle, where its bytes stand
    1: ((0, -8, "middle"),),
    2: ((7, 4, "start"), (0, -8, "middle")),
    3: ((14, 12, "start"), (-9, 4, "end"), (0, 19, "middle")),
}
_ARROWS = {1: ("→←",), 2: ("↓↑", "→←"), 3: ("↗↙", "↓↑", "→←")}
_BOTH = {"→←": "↔", "↓↑": "↕", "↗↙": "⤢"}
_APART, _ROW = 2.8, 14.0
_STUBS = {1: 24.0, 2: 24.0, 3: 17.0}
_THICKEST = 4.0


def torus_picture(wiring: Wiring, over: str) -> Picture:
    """The grid, below lines that say what its axes are."""
    names = {at: _name(device, wiring) for at, device in wiring.devices}
    drawn = [_ends(each.size, most) for each, most in zip(wiring.along, _MOST[len(wiring.along)], strict=True)]
    sheet = _Sheet(wiring, drawn, names)
    said = list(_said(wiring, over, sheet))
    head: list[Mark] = [Text(0, 12 + _ROW * row, line, "s") for row, line in enumerate(said)]
    marks = tuple(sheet.marks())
    left, top, right, bottom = extent(marks)
    above = _ROW * len(said) + 12
    width = max(right - left, *(width_of(line, "s") for line in said))
    return Picture(said[0], width, above + bottom - top, (*head, Group(marks, -left, above - top)))


def thick(count: float, most: float) -> float:
    return 0.8 + (_THICKEST - 0.8) * count / most


def said_of(axis: Along) -> str:
    """`a ring of 4, 45.0 GB/s each way`."""
    skipped = f", past {axis.stride - 1} others" if axis.stride > 1 else ""
    shape = "a ring one way" if axis.shape == ONE_WAY else f"a {axis.shape}"
    return f"{shape} of {axis.size}{skipped}, {in_bytes(int(axis.link))}/s each way"


def _ends(size: int, most: int) -> list[int]:
    return list(range(size)) if size <= most else [*range(most // 2), *range(size - most // 2, size)]


def _said(wiring: Wiring, over: str, sheet: _Sheet) -> Iterator[str]:
    shapes = "×".join(str(each.size) for each in wiring.along)
    alike = "every line as those beside it" if wiring.is_alike else "each block its own way"
    alike += "; bytes at most" if wiring.is_bound else ""
    yield f"{over}: {shapes} devices, numbered along {', '.join(wiring.axes)}; {alike}"
    for axis, arrows in zip(wiring.along, _ARROWS[len(wiring.along)], strict=True):
        yield f"{arrows[0]} {axis.name}: {said_of(axis)}"
    notes = ["dashed: round to the other end"] if any(map(wiring.closes, wiring.wires)) else []
    silent = any(not wire.forward or (wiring.goes_back(wire) and not wire.backward) for wire in wiring.wires)
    notes += ["faint: nothing"] if silent else []
    notes += [f"… {len(wiring.devices)} in all"] if len(sheet.shown) < len(wiring.devices) else []
    groups = wiring.mesh.devices // len(wiring.devices)
    notes += [f"one of {groups} groups"] if groups > 1 else []
    notes += [f"the busiest {in_bytes(round(sheet.busiest))}"] if not wiring.is_alike else []
    if notes:
        yield "; ".join(notes)


def _name(device: int, wiring: Wiring) -> str:
    """Its numbers along the axes: `1,3`; one after another, `13`, where all are digits and there are three."""
    mesh, places = wiring.mesh, dict[str, int]()
    for name, size in reversed(mesh.axes):
        device, places[name] = divmod(device, size)
    wide = [name for name in wiring.axes if mesh.size(name) > 1]
    short = len(wide) > 2 and all(mesh.size(name) <= 10 for name in wide)
    return ("" if short else ",").join(str(places[name]) for name in wide)


class _Sheet:
    """Where everything is."""

    def __init__(self, wiring: Wiring, drawn: list[list[int]], names: Mapping[Place, str]) -> None:
        self.wiring, self.drawn = wiring, drawn
        self.count = len(wiring.along)
        self.shown = {at: name for at, name in names.items() if all(n in d for n, d in zip(at, drawn, strict=True))}
        self.radius = max(12.0, *(width_of(name, "s") / 2 + 3 for name in self.shown.values()))
        self.busiest = max(max(wire.forward, wire.backward) for wire in wiring.wires)
        self.stub = _STUBS[self.count]

    def at(self, place: Place) -> Point:
        x = y = 0.0
        for number, drawn, (right, down) in zip(place, self.drawn, _STEPS[self.count], strict=True):
            x, y = x + drawn.index(number) * right, y + drawn.index(number) * down
        return x, y

    def marks(self) -> Iterator[Mark]:
        for wire in self.wiring.wires:
            if wire.at in self.shown:
                yield from self._wire(wire)
        for at, name in self.shown.items():
            x, y = self.at(at)
            yield Dot(x, y, self.radius, "hollow edge", (("device", name),))
            yield Text(x, y + 4, name, "s", "middle")

    def _wire(self, wire: Wire) -> Iterator[Mark]:
        """Between neighbours; out at the sides where it closes; dots where those between are left out."""
        start, end = wire.at, self.wiring.end(wire)
        step = _STEPS[self.count][wire.along]
        if self.wiring.closes(wire):
            yield self._link(wire, [*self._closing(wire, start, end, step)])
        elif end in self.shown:
            yield self._link(wire, [*self._between(wire, self.at(start), self.at(end)), *self._bytes(wire)])
        elif self._is_told(wire):
            x, y = self.at(start)
            yield Text(x + step[0] / 2, y + step[1] / 2 + 4, "…", "t", "middle")

    def _link(self, wire: Wire, marks: list[Mark]) -> Group:
        one, other = self.shown[wire.at], self.shown[self.wiring.end(wire)]
        title = f"from {one} to {other} {in_bytes(round(wire.forward))}, back {in_bytes(round(wire.backward))}"
        told = {"along": self.wiring.along[wire.along].name, "from": one, "to": other}
        told |= {"forward": str(round(wire.forward)), "backward": str(round(wire.backward))}
        told |= {"closes": "1"} if self.wiring.closes(wire) else {}
        return Group(tuple(marks), look="link", told=tuple(told.items()), title=title)

    def _between(self, wire: Wire, one: Point, other: Point) -> Iterator[Mark]:
        yield from self._arrow(one, other, wire.forward)
        if self.wiring.goes_back(wire):
            yield from self._arrow(other, one, wire.backward)

    def _closing(self, wire: Wire, last: Place, first: Place, step: Point) -> Iterator[Mark]:
        """A stub at either side: the way on goes out at the last and comes in at the first."""
        long = hypot(*step)
        out = (self.radius + self.stub) / long * step[0], (self.radius + self.stub) / long * step[1]
        for place, way in ((last, 1), (first, -1)):
            x, y = self.at(place)
            beyond = (x + way * out[0], y + way * out[1])
            ends = ((x, y), beyond) if way > 0 else (beyond, (x, y))
            yield from self._arrow(*ends, wire.forward, stub=way)
            if self.wiring.goes_back(wire):
                yield from self._arrow(*ends[::-1], wire.backward, stub=-way)

    def _arrow(self, one: Point, other: Point, count: float, stub: int = 0) -> Iterator[Mark]:
        """From device to device, a little to the left. Of a stub (1: out, -1: in) one end is no device."""
        long = hypot(other[0] - one[0], other[1] - one[1])
        right, down = (other[0] - one[0]) / long, (other[1] - one[1]) / long
        begin = 0.0 if stub < 0 else self.radius + 1
        end = long if stub > 0 else long - self.radius - 2

        def along(far: float, aside: float) -> Point:
            return one[0] + right * far + down * aside, one[1] + down * far - right * aside

        look = " dashed" if stub else ""
        if not count:
            yield Line((along(begin, _APART), along(end, _APART)), "grid" + look)
            return
        yield Line((along(begin, _APART), along(end - 5, _APART)), "line" + look, thick=thick(count, self.busiest))
        yield Line((along(end - 6, _APART + 3), along(end, _APART), along(end - 6, _APART - 3)), "arrow")

    def _is_told(self, wire: Wire) -> bool:
        """Whether bytes stand at it: of lines that are alike at the first, of three axes at the lower edges."""
        if not self.wiring.is_alike:
            return self.count < 3
        edges = [0 if self.count < 3 or axis == 0 else self.drawn[axis][-1] for axis in range(self.count)]
        if self.count == 3 and wire.along == 1:
            edges[2] = 0
        return all(n == edges[axis] for axis, n in enumerate(wire.at) if axis != wire.along)

    def _bytes(self, wire: Wire) -> Iterator[Mark]:
        lines = _figures(wire, _ARROWS[self.count][wire.along]) if self._is_told(wire) else []
        (x, y), (right, down) = self.at(wire.at), _STEPS[self.count][wire.along]
        aside, below, anchor = _BESIDE[self.count][wire.along]
        up = 12.0 * (len(lines) - 1) / (1 if below < 0 else 2)
        for row, line in enumerate(lines):
            yield Text(x + right / 2 + aside, y + down / 2 + below - up + 12 * row, line, "s", anchor)


def _figures(wire: Wire, arrows: str) -> list[str]:
    """`↔ 6.29 MB`, or a line for each way that carries some."""
    ways = [in_bytes(round(count)) if count else "" for count in (wire.forward, wire.backward)]
    if ways[0] == ways[1]:
        return [f"{_BOTH[arrows]} {ways[0]}"] if ways[0] else []
    return [f"{arrow} {way}" for arrow, way in zip(arrows, ways, strict=True) if way]
