"""What pictures are made of, as data: rectangles, texts, lines, groups. `drawing` makes SVG of them.

A mark's `look` names classes of `style`; `told` are facts that a reader of the SVG finds as `data-…` attributes, a
test for one; `title` is what a screen reader says of the mark, and what a pointer shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

Told: TypeAlias = tuple[tuple[str, str], ...]
Point: TypeAlias = tuple[float, float]
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Rect:
    x: float
    y: float
    width: float
    height: float
    look: str
    told: Told = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """One line; (x, y) is on its baseline."""

    x: float
    y: float
    text: str
    look: str = "t"
    anchor: Anchor = "start"
    told: Told = ()


@dataclass(frozen=True, slots=True)
class Line:
    """From point to point. `thick` is its width, if it tells."""

    points: tuple[Point, ...]
    look: str = "line"
    thick: float | None = None
    told: Told = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    radius: float
    look: str
    told: Told = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Marks that are one thing, moved by (x, y)."""

    marks: tuple[Mark, ...]
    x: float = 0.0
    y: float = 0.0
    look: str = ""
    told: Told = ()
    title: str = ""


Mark: TypeAlias = Rect | Text | Line | Dot | Group

_WIDE = 0.62  # of a letter's height: the mean width of a sans-serif letter, and somewhat more
SIZES = {"h": 14.0, "t": 12.0, "m": 12.0, "s": 10.5}  # of the looks of texts, in pixels


def width_of(text: str, look: str = "t") -> float:
    """About as wide as a text is; rather more than less, since fonts differ."""
    size = next((SIZES[name] for name in look.split() if name in SIZES), SIZES["t"])
    return len(text) * size * _WIDE


def shortened(text: str, width: float, look: str = "t") -> str:
    """As much of a text as the width holds."""
    room = int(width / width_of("x", look))
    return text if len(text) <= room else text[: max(room - 1, 1)] + "…"


def every(marks: Iterable[Mark]) -> Iterator[Mark]:
    """The marks, and those inside groups."""
    for mark in marks:
        yield mark
        if isinstance(mark, Group):
            yield from every(mark.marks)


def extent(marks: Iterable[Mark]) -> tuple[float, float, float, float]:
    """What marks cover: left, top, right, bottom."""
    boxes = [_box(mark) for mark in marks]
    return min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)


def _box(mark: Mark) -> tuple[float, float, float, float]:
    match mark:
        case Rect(x, y, width, height):
            return x, y, x + width, y + height
        case Text(x, y, text, look, anchor):
            wide = width_of(text, look)
            left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
            return left, y - 12, left + wide, y + 4
        case Line(points):
            xs, ys = zip(*points, strict=True)
            return min(xs), min(ys), max(xs), max(ys)
        case Dot(x, y, radius):
            return x - radius - 1, y - radius - 1, x + radius + 1, y + radius + 1
        case Group(inner, x, y):
            left, top, right, bottom = extent(inner)
            return left + x, top + y, right + x, bottom + y
        case _:
            assert_never(mark)
