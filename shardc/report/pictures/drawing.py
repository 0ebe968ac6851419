"""Marks made into SVG, by drawsvg; nowhere else is it known. It escapes texts; attributes are escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import ceil
from typing import Any, assert_never
from xml.sax.saxutils import escape

from shardc.errors import ShardcError
from shardc.report.pictures import style
from shardc.report.pictures.marks import Dot, Group, Line, Mark, Rect, Text, Told

_NO_XML = re.compile("[^\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def svg(title: str, width: float, height: float, marks: Iterable[Mark], *, alone: bool = True) -> str:
    """The SVG text; `alone` with its style and its patterns, which pictures on one page share."""
    draw = _drawsvg()
    name = _attribute(title)
    drawing = draw.Drawing(ceil(width), ceil(height), class_="shardc-picture", role="img", aria_label=name)
    drawing.append_title(_sayable(title))
    if alone:
        drawing.append_css(style.css())
        drawing.append(draw.Raw(patterns()))
        drawing.append(draw.Rectangle(0, 0, "100%", "100%", class_="hollow"))
    for mark in marks:
        drawing.append(_drawn(draw, mark))
    return str(drawing.as_svg(header="")).replace("<defs>\n</defs>\n", "")


def patterns() -> str:
    """The definitions that fills with a pattern name."""
    tiles = [(f"x{row}", lines) for row, lines in enumerate(style.TEXTURES) if lines] + [("plus", style.PLUS)]
    found = (
        f'<pattern id="{style.ID}{name}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<path d="{lines}" fill="none" stroke="{style.ON_FILL}" stroke-width="1" stroke-opacity="0.8"/></pattern>'
        for name, lines in tiles
    )
    return f"<defs>{''.join(found)}</defs>"


def _drawsvg() -> Any:
    try:
        import drawsvg
    except ImportError:
        raise ShardcError("SHC313", "pictures need the package drawsvg", help="pip install 'shardc[report]'") from None
    return drawsvg


def _drawn(draw: Any, mark: Mark) -> Any:
    match mark:
        case Rect(x, y, width, height, look, told, title):
            size = (_number(each) for each in (x, y, max(width, 0), max(height, 0)))
            return _titled(draw, draw.Rectangle(*size, class_=look, **_told(told)), title)
        case Text(x, y, text, look, anchor, told):
            at = None if anchor == "start" else anchor
            return draw.Text(_sayable(text), None, _number(x), _number(y), class_=look, text_anchor=at, **_told(told))
        case Line(look=look, told=told, title=title, thick=thick):
            return _titled(draw, draw.Path(_way(mark), class_=look, style=_thick(thick), **_told(told)), title)
        case Dot(x, y, radius, look, told, title):
            return _titled(draw, draw.Circle(_number(x), _number(y), radius, class_=look, **_told(told)), title)
        case Group(marks, x, y, look, told, title):
            moved = f"translate({_number(x)},{_number(y)})" if x or y else None
            group = _titled(draw, draw.Group(transform=moved, class_=look or None, **_told(told)), title)
            for inner in marks:
                group.append(_drawn(draw, inner))
            return group
        case _:
            assert_never(mark)


def _way(line: Line) -> str:
    first, *others = [f"{_number(x)} {_number(y)}" for x, y in line.points]
    return f"M{first}L{' '.join(others)}"


def _titled(draw: Any, element: Any, title: str) -> Any:
    if title:
        element.append_title(_sayable(title))
    return element


def _told(told: Told) -> dict[str, str]:
    return {f"data-{name}": _attribute(value) for name, value in told}


def _attribute(text: str) -> str:
    return escape(_sayable(text), {'"': "&quot;"})


def _sayable(text: str) -> str:
    """One line, of characters that XML has: drawsvg makes elements of several lines."""
    return _NO_XML.sub("\ufffd", " ".join(text.expandtabs(1).splitlines()))


def _number(value: float) -> float | int:
    """To a hundredth of a pixel."""
    rounded = round(value, 2)
    return int(rounded) if rounded == int(rounded) else rounded


def _thick(width: float | None) -> str | None:
    """As a style, which comes before that of a class."""
    return None if width is None else f"stroke-width:{_number(width)}"
