"""A mesh on a torus: what its axes, their parts and any other groups of devices have of the links.

Where mesh axes lie on parts of physical axes (`TorusLinks`) each has its lines by name. Where the mesh is a walk
through the chips (`WalkedLinks`), as `jax.make_mesh` lays some on small slices, that follows from where the chips of a
group are. A compiled program's groups, which need not be axes, are asked for alike on both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from shardc.cost.chips import Chip
from shardc.cost.layout import LINE, RING, Layout
from shardc.cost.links.fabric import Fabric, Groups, Run
from shardc.cost.links.level import Factor, Level, Traffic, product
from shardc.cost.links.routed import Routed, routed, ways
from shardc.cost.links.torus import Line, Torus
from shardc.cost.topology import Laid, lay, place
from shardc.ir.mesh import Mesh
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Axes
from shardc.lowering.pairs import numbers_in_order

# Devices of a mesh whose blocks are sent one by one to price parts of a physical axis with others between them. On a
# larger mesh such parts count as lines beside each other, which takes no longer.
_ROUTED = 256


def torus_links(mesh: Mesh, chip: Chip, layout: Layout) -> TorusLinks | WalkedLinks:
    """By the slice and the map of the layout; without a slice every mesh axis is a physical axis."""
    fabric = Fabric.of(_laid(mesh, chip, layout), chip, dict(layout.wraparound))
    return WalkedLinks(fabric, mesh) if fabric.laid.walk else TorusLinks.of(fabric)


@dataclass(frozen=True, slots=True)
class _OnFabric:
    """What groups of devices have of the links, however the mesh lies on them."""

    fabric: Fabric

    def grouped(self, groups: Groups) -> Iterator[tuple[Level, ...]]:
        return grouped(groups, self.fabric)

    def taken(self, groups: Groups) -> int:
        return taken(groups, self.fabric)

    def sent(self, pairs: Groups) -> Traffic:
        return self.fabric.traffic(pairs)


@dataclass(frozen=True, slots=True)
class TorusLinks(_OnFabric):
    """The lines on which each mesh axis lies, or each run of sub-axes, if axes are cut (`refined`)."""

    mesh: Mesh  # without axes over DCN
    lines: Mapping[str, tuple[Line, ...]]
    by: Refinement | None = None

    @classmethod
    def of(cls, fabric: Fabric) -> TorusLinks:
        found = {}
        for name, parts in fabric.laid.parts.items():
            lines: list[Line] = []
            for number, part in enumerate(parts, 1):
                kind, several = fabric.kinds[part.axis], len(parts) > 1
                if kind == RING and part.size * part.stride < part.whole:
                    kind = LINE
                axis = Factor(str(part.size) if several else name, part.size)
                width = f"W_{name}" + (str(number) if several else "")
                lines.append(Line(axis, kind, fabric.link, width, part.stride, part.axis))
            found[name] = tuple(lines)
        return cls(fabric, fabric.laid.mesh, found)

    def levels(self, axes: Axes) -> tuple[Level, ...]:
        names = axes if self.by is None else tuple(_spelled(*run, self.by) for run in self.by.runs(axes))
        lines = tuple(line for name in names for line in self.lines[name])
        count = product(Factor(name, math.prod(line.size for line in self.lines[name])) for name in names)
        if not lines:
            return ()
        whole = _joined(lines)
        if whole is None and self.mesh.devices <= _ROUTED:
            return (self._routed(axes, count, lines[0].width),)
        return (Torus(whole or lines, count),)

    def _routed(self, axes: Axes, count: Factor, known: Factor) -> Level:
        """Parts of one physical axis with others between them; widths are told by one that has a name."""
        found = routed(groups_of(self.mesh, axes), self.fabric, count, "")

        def told(width: Factor) -> Factor:
            return Factor(f"({width.value / known.value!r}·{known.text})", width.value)

        return Routed(count, told(found.width), told(found.spread), told(found.far), found.hops)

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
        return TorusLinks(self.fabric, _inside(self.mesh, by), lines, by)


@dataclass(frozen=True, slots=True)
class WalkedLinks(_OnFabric):
    """A mesh laid on a walk through a slice: what axes have of the links follows from where their groups are."""

    mesh: Mesh
    by: Refinement | None = None
    _known: dict[Axes, Level] = field(default_factory=dict, init=False, repr=False, compare=False)

    def levels(self, axes: Axes) -> tuple[Level, ...]:
        wide = self.mesh.ordered(axes)
        if wide and wide not in self._known:
            self._known[wide] = self._level(wide)
        return (self._known[wide],) if wide else ()

    def _level(self, axes: Axes) -> Level:
        names = axes if self.by is None else tuple(_spelled(*run, self.by) for run in self.by.runs(axes))
        sizes = map(self.mesh.product, self._runs(axes))
        count = product(Factor(name, size) for name, size in zip(names, sizes, strict=True))
        label = "_".join(part for name in names for part in name.strip("()").split("·"))
        groups = groups_of(self.mesh, axes)
        boxes = list(dict.fromkeys(self.fabric.box(group) for group in groups))
        if None in boxes:
            return routed(groups, self.fabric, count, label)
        lines = (_lines(box, self.fabric, label) for box in boxes if box is not None)
        return min((Torus(each, count) for each in lines), key=lambda torus: torus.width.value)

    def _runs(self, axes: Axes) -> Iterator[Axes]:
        if self.by is None:
            yield from ((axis,) for axis in axes)
        else:
            yield from (run for _, run in self.by.runs(axes))

    def symbols(self) -> dict[str, float]:
        wide = [axis for axis in self.mesh.names if self.mesh.size(axis) > 1]
        chosen = (axes for count in range(1, len(wide) + 1) for axes in combinations(wide, count))
        return {factor.text: factor.value for axes in chosen for factor in _widths(self.levels(axes)[0])}

    def has_parts(self, axis: str) -> bool:
        level = self.levels((axis,))[0] if self.mesh.size(axis) > 1 else None
        return isinstance(level, Torus) and len(level.lines) > 1

    def refined(self, by: Refinement) -> WalkedLinks:
        return WalkedLinks(self.fabric, _inside(self.mesh, by), by)


def grouped(groups: Groups, fabric: Fabric) -> Iterator[tuple[Level, ...]]:
    """Of groups of chips on a torus: as boxes, each shape once; all together by routes where one is no box."""
    boxes = list(dict.fromkeys(map(fabric.box, groups)))
    if None in boxes:
        yield (routed(groups, fabric, Factor("n", len(groups[0])), "n"),)
        return
    for box in boxes:
        lines = _lines(box or (), fabric, "n")
        yield (Torus(lines, Factor("n", math.prod(line.size for line in lines))),)


def taken(groups: Groups, fabric: Fabric) -> int:
    """All links between the chips of boxes; of other groups those of the ways on which `routed` sends."""
    found = 0
    for group in groups:
        box = fabric.box(group)
        if box is None:
            found |= fabric.traffic(ways(group, len(groups))).links
        else:
            found |= fabric.links(group, box)
    return found


def _inside(mesh: Mesh, by: Refinement) -> Mesh:
    """The finer mesh of these axes, without those over DCN."""
    names = by.axes(mesh.names)
    return Mesh(tuple((name, size) for name, size in by.fine.axes if name in names))


def _joined(lines: tuple[Line, ...]) -> tuple[Line, ...] | None:
    """The outer and the inner part of a physical axis as one; None where others are between them.

    X the outer and Y the inner half of a line of four: each device of both has the one link that the ends have.
    """
    if len({line.lies for line in lines}) == len(lines):
        return lines
    found: dict[int, Line] = {}
    for line in sorted(lines, key=lambda line: -line.stride):
        outer = found.get(line.lies)
        if outer is None:
            found[line.lies] = line
        elif outer.stride == line.size * line.stride:
            found[line.lies] = outer.joined(line)
        else:
            return None
    return tuple(found[lies] for lies in dict.fromkeys(line.lies for line in lines))


def groups_of(mesh: Mesh, axes: Axes) -> list[list[int]]:
    """The devices that differ along these axes alone, in order of the mesh."""
    along = mesh.ordered(axes)
    others = tuple(name for name in mesh.names if name not in along)
    numbers, count = numbers_in_order(mesh.names, (*others, *along), mesh), mesh.product(along)
    return [numbers[start : start + count] for start in range(0, len(numbers), count)]


def _laid(mesh: Mesh, chip: Chip, layout: Layout) -> Laid:
    if layout.topology is not None:
        return lay(mesh, layout.topology, dict(layout.map))
    shape = tuple(size for size in mesh.sizes if size > 1)  # axes of one device are none
    given = {name: (number,) for number, name in enumerate(n for n, size in mesh.axes if size > 1)}
    return place(mesh, shape, chip.wraps(shape), given)


def _lines(box: tuple[Run, ...], fabric: Fabric, label: str) -> tuple[Line, ...]:
    several = len(box) > 1
    return tuple(
        Line(
            Factor(str(run.size), run.size),
            run.shape,
            fabric.link,
            f"W_{label}" + (f"_{number}" if several else ""),
            run.stride,
            run.axis,
        )
        for number, run in enumerate(box, 1)
    )


def _widths(level: Level) -> Iterator[Factor]:
    match level:
        case Torus(lines=lines):
            yield from (line.width for line in lines)
        case Routed():
            yield from (level.width, level.spread, level.far)


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
