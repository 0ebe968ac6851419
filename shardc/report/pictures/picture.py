"""A picture: marks on a sheet, with a title. It is SVG when asked, and shows itself in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.io.files import check_output, write_output
from shardc.report.pictures.drawing import svg
from shardc.report.pictures.marks import Group, Mark, Text, width_of

_GAP = 18.0
_MARGIN = 10.0


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A drawing of so many pixels; any size when shown, since it is SVG."""

    title: str
    width: float
    height: float
    marks: tuple[Mark, ...]

    @property
    def svg(self) -> str:
        """A whole SVG file."""
        return svg(self.title, self.width, self.height, self.marks)

    @property
    def inside(self) -> str:
        """The SVG for a page that has style and patterns."""
        return svg(self.title, self.width, self.height, self.marks, alone=False)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture: {self.title}; {self.width:.0f}×{self.height:.0f}, .svg, .save(path)>"

    def save(self, path: str, *, force: bool = False) -> None:
        """Writes the SVG file, whole or not at all; one that exists only by `force`. SHC502, SHC504, SHC506."""
        check_output(path, sources=(), force=force)
        write_output(self.svg + "\n", path, sources=(), force=force)

    @property
    def group(self) -> Group:
        return Group(self.marks)


def above(title: str, pictures: Sequence[Picture], *, gap: float = _GAP) -> Picture:
    """One below the other, left edges in line."""
    marks: list[Mark] = []
    y = 0.0
    for picture in pictures:
        marks.append(Group(picture.marks, 0, y))
        y += picture.height + gap
    return Picture(title, max((p.width for p in pictures), default=0.0), max(y - gap, 0.0), tuple(marks))


def beside(title: str, pictures: Sequence[Picture], *, gap: float = _GAP) -> Picture:
    """One right of the other, middles in line."""
    height = max((picture.height for picture in pictures), default=0.0)
    marks: list[Mark] = []
    x = 0.0
    for picture in pictures:
        marks.append(Group(picture.marks, x, (height - picture.height) / 2))
        x += picture.width + gap
    return Picture(title, max(x - gap, 0.0), height, tuple(marks))


def framed(picture: Picture) -> Picture:
    """With a margin all round."""
    size = (picture.width + 2 * _MARGIN, picture.height + 2 * _MARGIN)
    return Picture(picture.title, *size, (Group(picture.marks, _MARGIN, _MARGIN),))


def line_of(text: str, look: str = "t") -> Picture:
    """A line of text as a picture, to stand among others."""
    return Picture(text, width_of(text, look), 18.0, (Text(0, 13, text, look),))
