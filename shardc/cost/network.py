"""Which links join the devices of a group: a chip, a topology and a mesh, made into levels.

    v5p:4x4x4, mesh X=4, Y=16          {X}: a ring;  {Y}: a torus of two;  {X, Y}: a torus of three
    v5e, mesh X=8, Y=4                 lines, since v5e axes close at 16 only
    mesh P=2, X=4, P over DCN          {P}: a switch of two;  {P, X}: a switch of eight
    H100, mesh X=4, Y=16               {Y}: 8 through NVLink, 2 through the nodes' network

Inner levels come first. Without a topology every mesh axis is a physical axis of its own. One collective over
DCN and inner links together is flat: all that a device takes in comes through its own DCN port. To do the inner
part first is for the plan to say, and it does, since that is cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardc.cost.chips import Chip
from shardc.cost.links import Factor, Level, Line, Shape, Switch, Torus
from shardc.cost.links.level import product
from shardc.cost.topology import Topology, place
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes


@dataclass(frozen=True, slots=True)
class Layout:
    """What a user may say of how a mesh lies on hardware; see `network`."""

    topology: Topology | None = None
    dcn: Axes = ()
    map: tuple[tuple[str, tuple[int, ...]], ...] = ()
    wraparound: tuple[tuple[str, Shape], ...] = ()


@dataclass(frozen=True, slots=True)
class Network:
    """Per mesh axis the lines of a torus, or the parts of it inside and outside an NVLink domain."""

    mesh: Mesh
    chip: Chip
    lines: Mapping[str, tuple[Line, ...]]
    domains: Mapping[str, tuple[int, int]]  # GPU: how much of the axis is inside a domain, and outside
    dcn: Axes
    _levels: dict[Axes, tuple[Level, ...]] = field(default_factory=dict, init=False, repr=False)

    def levels(self, axes: Axes) -> tuple[Level, ...]:
        """The levels of a group over these axes, the innermost first; axes of one device are left out."""
        wide = tuple(axis for axis in axes if self.mesh.size(axis) > 1)
        found = self._levels.get(wide)
        if found is None:
            found = self._levels[wide] = tuple(self._make(wide))
        return found

    def _make(self, axes: Axes) -> list[Level]:
        if any(axis in self.dcn for axis in axes):
            count = product(Factor(axis, self.mesh.size(axis)) for axis in axes)
            return [Switch(count, Factor("W_dcn", self.chip.dcn_bandwidth))]
        return self._torus(axes) if self.chip.is_torus else self._domains(axes)

    def _torus(self, axes: Axes) -> list[Level]:
        lines = tuple(line for axis in axes for line in self.lines[axis])
        return [Torus(lines)] if lines else []

    def _domains(self, axes: Axes) -> list[Level]:
        inner = math.prod(self.domains[axis][0] for axis in axes)
        outer = math.prod(self.domains[axis][1] for axis in axes)
        levels: list[Level] = []
        if inner > 1:
            levels.append(Switch(self._count(axes, inner), Factor("W_nvlink", self.chip.link_bandwidth)))
        if outer > 1:
            levels.append(Switch(self._count(axes, outer), Factor("W_node", self.chip.dcn_bandwidth)))
        return levels

    def _count(self, axes: Axes, count: int) -> Factor:
        """The axes by name if they are all of it, else a number."""
        whole = self.mesh.product(axes) == count
        return product(Factor(axis, self.mesh.size(axis)) for axis in axes) if whole else Factor(str(count), count)


def network(mesh: Mesh, chip: Chip, layout: Layout | None = None) -> Network:
    """The network of a mesh; SHC224 where layout and mesh disagree."""
    layout = Layout() if layout is None else layout
    _check_axes(mesh, layout)
    inside = Mesh(tuple((name, size) for name, size in mesh.axes if name not in layout.dcn))
    lines = _lines(inside, chip, layout) if chip.is_torus else {}
    if not chip.is_torus and layout.topology is not None and layout.topology.chips != inside.devices:
        place(inside, layout.topology.shape, (), {})
    return Network(mesh, chip, lines, {} if chip.is_torus else _inside_domain(inside, chip), layout.dcn)


def _check_axes(mesh: Mesh, layout: Layout) -> None:
    said = [*layout.dcn, *(name for name, _ in layout.map), *(name for name, _ in layout.wraparound)]
    for name in said:
        if name not in mesh:
            raise ShardcError("SHC224", f"no axis `{name}` in the mesh {mesh}", help="name an axis of the mesh")


def _lines(mesh: Mesh, chip: Chip, layout: Layout) -> dict[str, tuple[Line, ...]]:
    given: dict[str, tuple[int, ...]]
    if layout.topology is None:  # every mesh axis is a physical axis; those of one device are none
        shape = tuple(size for size in mesh.sizes if size > 1)
        given = {name: (number,) for number, name in enumerate(n for n, size in mesh.axes if size > 1)}
    else:
        shape, given = layout.topology.shape, dict(layout.map)
    wraps = chip.wraps(shape)
    placement = place(mesh, shape, wraps, given)
    told = dict(layout.wraparound)
    found = {}
    for name, parts in placement.items():
        lines: list[Line] = []
        for part in parts:
            closed = wraps[part.axis] and part.size * part.stride == part.whole
            kind = told.get(name, Shape.RING if closed else Shape.LINE)
            axis = Factor(name if len(parts) == 1 else str(part.size), part.size)
            width = f"W_{name}" + (str(len(lines) + 1) if len(parts) > 1 else "")
            lines.append(Line(axis, kind, chip.link_bandwidth, width, part.stride))
        found[name] = tuple(lines)
    return found


def _inside_domain(mesh: Mesh, chip: Chip) -> dict[str, tuple[int, int]]:
    """The last axes of a mesh count neighbours, so they fill the domain first."""
    found = {}
    room = chip.domain
    for name, size in reversed(mesh.axes):
        inner = math.gcd(size, room) if room > 1 else 1
        found[name] = (inner, size // inner)
        room = room // inner if inner == size else 1
    return found
