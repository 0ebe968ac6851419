"""Links between neighbours: axes of a torus, each a ring or a line.

A ring of n brings a device both directions' bandwidth, 2w, and is ⌈n/2⌉ hops round; a line, as a ring that is
not closed is, has one link at its ends: w, and n−1 hops. Every second, third, … device of a physical axis
(stride s) shares its links with s−1 other such rings. Several axes carry one collective together.
Source: *How To Scale Your Model*, chapter 3, and its appendix on AllToAll.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardc.cost.layout import LINE, ONE_WAY, RING
from shardc.cost.links.level import Factor, total


@dataclass(frozen=True, slots=True)
class Line:
    """One axis, or part of one: `size` devices, `stride` apart, for mesh axis `axis`; `link` is B/s one way."""

    axis: Factor
    shape: str  # one of layout.SHAPES
    link: float
    width_name: str
    stride: int
    lies: int  # the physical axis

    @property
    def size(self) -> int:
        return int(self.axis.value)

    @property
    def width(self) -> Factor:
        both = 2 if self.shape == RING else 1
        return Factor(self.width_name, both * self.link / self.stride)

    @property
    def turns(self) -> Factor:
        """From device to device of this line, on the longest way."""
        n = self.axis.text
        return Factor(f"⌈{n}/2⌉", -(-self.size // 2)) if self.shape == RING else Factor(f"({n}-1)", self.size - 1)

    @property
    def hops(self) -> Factor:
        """From chip to chip."""
        turns = self.turns
        return turns if self.stride == 1 else Factor(f"{self.stride}·{turns.text}", self.stride * turns.value)

    def inner(self, size: int) -> Line:
        """The neighbours among which an axis' minor part runs: a ring is cut open."""
        kept = self.size == size
        return replace(
            self, axis=Factor(str(size), size), shape=LINE if self.shape == RING and not kept else self.shape
        )

    def outer(self, size: int) -> Line:
        """The devices among which the major part runs, which skip over the others and share their links."""
        return replace(self, axis=Factor(str(size), size), stride=self.stride * (self.size // size))

    def joined(self, inner: Line) -> Line:
        """This line and the one inside it, which fills the gaps between its devices."""
        closes = self.shape == RING and inner.shape != RING
        size, width = self.size * inner.size, f"(2·{inner.width_name})" if closes else inner.width_name
        return replace(inner, axis=Factor(str(size), size), shape=self.shape, width_name=width)

    def share(self, book: bool) -> Factor:
        """Of an AllToAll, n times the part of the array that crosses the axis' middle: n/4, (n²−1)/(4n)."""
        n = self.axis
        if self.shape == ONE_WAY:
            return Factor(f"{n.text}/2", n.value / 2) if book else Factor(f"({n.text}-1)/2", (n.value - 1) / 2)
        if self.size % 2 and not book:
            return Factor(f"({n.text}²-1)/(4·{n.text})", (n.value**2 - 1) / (4 * n.value))
        return Factor(f"{n.text}/4", n.value / 4)


@dataclass(frozen=True, slots=True)
class Torus:
    """One or several axes whose links a collective uses at the same time."""

    lines: tuple[Line, ...]
    count: Factor

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
        """A block passes every link of the way: as many times as there are turns, on the longest axis.

        The width of a line that skips chips is already what is left of links shared with the lines between.
        """
        longest = max(self.lines, key=lambda line: line.turns.value / line.width.value)
        turns, width = longest.turns, longest.width
        if turns.value == 1:
            return Factor(f"1 / {width.text}", 1 / width.value)
        return Factor(f"{turns.text} / {width.text}", turns.value / width.value)
