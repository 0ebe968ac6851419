"""Links between neighbours: axes of a torus, each a ring or a line.

A ring of n brings a device both directions' bandwidth, 2w, and is ⌈n/2⌉ hops round; a line, as a ring that is
not closed is, has one link at its ends: w, and n−1 hops. Every second, third, … device of a physical axis
(stride s) shares its links with s−1 other such rings. Several axes carry one collective together.
Source: *How To Scale Your Model*, chapter 3, and its appendix on AllToAll.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from shardc.cost.links.level import Factor, product, total


class Shape(Enum):
    """How the members of one axis are joined."""

    RING = "ring"
    LINE = "line"
    ONE_WAY = "one-way ring"


@dataclass(frozen=True, slots=True)
class Line:
    """One axis, or part of one: `size` devices, `stride` apart, for mesh axis `axis`; `link` is B/s one way."""

    axis: Factor
    shape: Shape
    link: float
    width_name: str
    stride: int = 1

    @property
    def size(self) -> int:
        return int(self.axis.value)

    @property
    def width(self) -> Factor:
        both = 2 if self.shape is Shape.RING else 1
        return Factor(self.width_name, both * self.link / self.stride)

    @property
    def hops(self) -> Factor:
        n, stride = self.axis.text, f"{self.stride}·" if self.stride > 1 else ""
        if self.shape is Shape.RING:
            return Factor(f"{stride}⌈{n}/2⌉", self.stride * -(-self.size // 2))
        return Factor(f"{stride}({n}-1)", self.stride * (self.size - 1))

    def share(self, book: bool) -> Factor:
        """Of an AllToAll, n times the part of the array that crosses the axis' middle: n/4, (n²−1)/(4n)."""
        n = self.axis
        if self.shape is Shape.ONE_WAY:
            return Factor(f"{n.text}/2", n.value / 2) if book else Factor(f"({n.text}-1)/2", (n.value - 1) / 2)
        if self.size % 2 and not book:
            return Factor(f"({n.text}²-1)/(4·{n.text})", (n.value**2 - 1) / (4 * n.value))
        return Factor(f"{n.text}/4", n.value / 4)


@dataclass(frozen=True, slots=True)
class Torus:
    """One or several axes whose links a collective uses at the same time."""

    lines: tuple[Line, ...]

    @property
    def count(self) -> Factor:
        return product(line.axis for line in self.lines)

    @property
    def width(self) -> Factor:
        return total(line.width for line in self.lines)

    @property
    def hops(self) -> Factor:
        return total(line.hops for line in self.lines)

    def exchange(self, book: bool) -> Factor:
        """V·nᵢ/(4·N·Wᵢ) for the axis where that is longest; V/(4W) on a single even ring."""
        slowest = max(self.lines, key=lambda line: line.share(book).value / line.width.value)
        share, n, width = slowest.share(book), self.count, slowest.width
        if len(self.lines) == 1 and share.text == f"{n.text}/4":
            return Factor(f"1/4 / {width.text}", 0.25 / width.value)
        return Factor(f"{share.text}/{n.text} / {width.text}", share.value / n.value / width.value)

    def route(self) -> Factor:
        """A block passes every link of the way: as many times as there are hops, on the longest axis."""
        longest = max(self.lines, key=lambda line: line.hops.value / line.width.value)
        hops, width = longest.hops, longest.width
        if hops.value == 1:
            return Factor(f"1 / {width.text}", 1 / width.value)
        return Factor(f"{hops.text} / {width.text}", hops.value / width.value)
