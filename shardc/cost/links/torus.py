"""Links between neighbours: axes of a torus, each a ring or a line.

A ring of n brings a device both directions' bandwidth, 2w, and is ⌈n/2⌉ hops round; a line, as a ring that is
not closed is, has one link at its ends: w, and n−1 hops. Every second, third, … device of a physical axis
(stride s) shares its links with s−1 other such rings. Several axes carry one collective together.
Source: *How To Scale Your Model*, chapter 3, and its appendix on AllToAll.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from shardc.cost.chips import Chip
from shardc.cost.layout import LINE, ONE_WAY, RING, Layout
from shardc.cost.links.level import Factor, Level, product, total
from shardc.cost.topology import place
from shardc.ir.mesh import Mesh
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Axes


@dataclass(frozen=True, slots=True)
class Line:
    """One axis, or part of one: `size` devices, `stride` apart, for mesh axis `axis`; `link` is B/s one way."""

    axis: Factor
    shape: str  # one of layout.SHAPES
    link: float
    width_name: str
    stride: int = 1

    @property
    def size(self) -> int:
        return int(self.axis.value)

    @property
    def width(self) -> Factor:
        both = 2 if self.shape is RING else 1
        return Factor(self.width_name, both * self.link / self.stride)

    @property
    def turns(self) -> Factor:
        """From device to device of this line, on the longest way."""
        n = self.axis.text
        return Factor(f"⌈{n}/2⌉", -(-self.size // 2)) if self.shape is RING else Factor(f"({n}-1)", self.size - 1)

    @property
    def hops(self) -> Factor:
        """From chip to chip."""
        turns = self.turns
        return turns if self.stride == 1 else Factor(f"{self.stride}·{turns.text}", self.stride * turns.value)

    def inner(self, size: int) -> Line:
        """The neighbours among which an axis' minor part runs: a ring is cut open."""
        kept = self.size == size
        return replace(
            self, axis=Factor(str(size), size), shape=LINE if self.shape is RING and not kept else self.shape
        )

    def outer(self, size: int) -> Line:
        """The devices among which the major part runs, which skip over the others and share their links."""
        return replace(self, axis=Factor(str(size), size), stride=self.stride * (self.size // size))

    def share(self, book: bool) -> Factor:
        """Of an AllToAll, n times the part of the array that crosses the axis' middle: n/4, (n²−1)/(4n)."""
        n = self.axis
        if self.shape is ONE_WAY:
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


@dataclass(frozen=True, slots=True)
class TorusLinks:
    """The lines on which each mesh axis lies, or each run of sub-axes, if axes are cut (`refined`)."""

    lines: Mapping[str, tuple[Line, ...]]
    by: Refinement | None = None

    @classmethod
    def of(cls, mesh: Mesh, chip: Chip, layout: Layout) -> TorusLinks:
        """By the slice and the map of the layout; without a slice every mesh axis is a physical axis."""
        given: dict[str, tuple[int, ...]]
        if layout.topology is None:  # axes of one device are none
            shape = tuple(size for size in mesh.sizes if size > 1)
            given = {name: (number,) for number, name in enumerate(n for n, size in mesh.axes if size > 1)}
        else:
            shape, given = layout.topology.shape, dict(layout.map)
        wraps, told = chip.wraps(shape), dict(layout.wraparound)
        found = {}
        for name, parts in place(mesh, shape, wraps, given).items():
            lines: list[Line] = []
            for number, part in enumerate(parts, 1):
                closed = wraps[part.axis] and part.size * part.stride == part.whole
                kind = told.get(name, RING if closed else LINE)
                several = len(parts) > 1
                axis = Factor(str(part.size) if several else name, part.size)
                width = f"W_{name}" + (str(number) if several else "")
                lines.append(Line(axis, kind, chip.link_bandwidth, width, part.stride))
            found[name] = tuple(lines)
        return cls(found)

    def levels(self, axes: Axes) -> tuple[Level, ...]:
        names = axes if self.by is None else tuple(_spelled(*run, self.by) for run in self.by.runs(axes))
        lines = tuple(line for name in names for line in self.lines[name])
        sizes = (Factor(name, math.prod(line.size for line in self.lines[name])) for name in names)
        return (Torus(lines, product(sizes)),) if lines else ()

    def symbols(self) -> dict[str, float]:
        widths = (line.width for lines in self.lines.values() for line in lines)
        return {width.text: width.value for width in widths}

    def has_parts(self, axis: str) -> bool:
        return len(self.lines[axis]) > 1

    def refined(self, by: Refinement) -> TorusLinks | None:
        lines: dict[str, tuple[Line, ...]] = {}
        for axis, run in _every_run(by, self.lines):
            before, after = by.around(axis, run)
            size = by.fine.product(run)
            cut = self.lines[axis] if before == after == 1 else _between(self.lines[axis], size, after)
            if cut is None:
                return None
            name = _spelled(axis, run, by)
            lines[name] = tuple(_renamed(line, name, number, len(cut)) for number, line in enumerate(cut, 1))
        return TorusLinks(lines, by)


def _every_run(by: Refinement, axes: Iterable[str]) -> Iterator[tuple[str, Axes]]:
    for axis in axes:
        names = by.axes((axis,))
        for start, end in combinations(range(len(names) + 1), 2):
            yield axis, names[start:end]


def _spelled(axis: str, run: Axes, by: Refinement) -> str:
    """`X` for all its parts, `X0`, `(X0·X1)` for some."""
    if run == by.axes((axis,)):
        return axis
    return run[0] if len(run) == 1 else f"({'·'.join(run)})"


def _renamed(line: Line, name: str, number: int, count: int) -> Line:
    """Under a name that no sub-axis has: X on two lines has W_X1 and W_X2 where it is not cut, here W_X_1, W_X_2."""
    plain = "_".join(name.strip("()").split("·"))
    axis = line.axis if count > 1 else Factor(name, line.axis.value)
    return replace(line, axis=axis, width_name=f"W_{plain}" + (f"_{number}" if count > 1 else ""))


def _between(lines: tuple[Line, ...], size: int, after: int) -> tuple[Line, ...] | None:
    """Of an axis on some lines, major to minor, the lines of a part of so many devices, `after` of them in each step.

    X=16 on 4·4: X0=4 is the first line, X1=4 the second; X0=2 is the outer half of the first.
    """
    found: list[Line] = []
    for line in reversed(lines):
        if after > 1:
            if max(after, line.size) % min(after, line.size):
                return None
            skipped = min(after, line.size)
            after //= skipped
            if skipped == line.size:
                continue
            line = line.outer(line.size // skipped)
        if size == 1:
            break
        if max(size, line.size) % min(size, line.size):
            return None
        taken = min(size, line.size)
        size //= taken
        found.append(line.inner(taken))
    return tuple(reversed(found))
