"""Which links join the devices of a group: a chip, a layout and a mesh, made into levels.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shardc.cost.chips import Chip
from shardc.cost.layout import Layout
from shardc.cost.links import Level, Links, links_of
from shardc.cost.links.fabric import Fabric
from shardc.cost.links.level import Factor, Traffic, product
from shardc.cost.links.switch import Switch
from shardc.ir.mesh import Mesh
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Axes

_WAYS_OF = 256  # devices, whose blocks are sent one by one to price a permute


@dataclass(frozen=True, slots=True)
class Network:
    """The links of the chip's kind, and the data-centre network where axes run over it."""

    mesh: Mesh
    chip: Chip
    links: Links
    layout: Layout  # speaks of the axes of `by.coarse` where axes are cut
    by: Refinement | None = None
    _levels: dict[Axes, tuple[Level, ...]] = field(default_factory=dict, init=False, repr=False)

    @property
    def dcn(self) -> Axes:
        return self.layout.dcn if self.by is None else self.by.axes(self.layout.dcn)

    @property
    def fabric(self) -> Fabric | None:
        """The torus under the axes that are not over DCN; none behind a switch."""
        return self.links.fabric

    @property
    def has_ways(self) -> bool:
        """Whether the ways of blocks are followed from device to device."""
        return self.mesh.devices <= _WAYS_OF and self.chip.is_torus and not self.dcn

    def has_parts(self, axis: str) -> bool:
        """Whether parts of a mesh axis have links of their own."""
        return axis not in self.dcn and self.links.has_parts(axis)

    def refined(self, by: Refinement) -> Network | None:
        """The same network under the axes of a finer mesh; None where parts of axes are not parts of links."""
        links = self.links.refined(by)
        return None if links is None else Network(by.fine, self.chip, links, self.layout, by)

    def levels(self, axes: Axes) -> tuple[Level, ...]:
        """The levels of a group over these axes, the innermost first; axes of one device are left out."""
        wide = tuple(axis for axis in axes if self.mesh.size(axis) > 1)
        found = self._levels.get(wide)
        if found is None:
            found = self._levels[wide] = self._make(wide)
        return found

    def _make(self, axes: Axes) -> tuple[Level, ...]:
        if not any(axis in self.dcn for axis in axes):
            return self.links.levels(axes)
        count = product(Factor(axis, self.mesh.size(axis)) for axis in axes)
        return (Switch(count, Factor("W_dcn", self.chip.dcn_bandwidth)),)

    def grouped(self, groups: Sequence[Sequence[int]]) -> Iterator[tuple[Level, ...]]:
        """The levels of groups of devices that communicate at the same time, each kind once."""
        if self.is_far(groups):
            count = max(map(len, groups))
            yield (Switch(Factor(str(count), count), Factor("W_dcn", self.chip.dcn_bandwidth)),)
        else:
            yield from self.links.grouped(self.inside(groups))

    def taken(self, groups: Sequence[Sequence[int]]) -> int:
        """The links on which such groups communicate, a bit each; 0 for the one port of a device."""
        return 0 if self.is_far(groups) else self.links.taken(self.inside(groups))

    def sent(self, pairs: Sequence[Sequence[int]]) -> Traffic | None:
        """A block from the first to the second of each pair; None where that is no matter of routes."""
        return None if self.is_far(pairs) else self.links.sent(self.inside(pairs))

    def closes(self, axis: str) -> bool:
        """Whether the last device of an axis of more than two is a neighbour of the first."""
        size, stride = self.mesh.size(axis), self._stride(axis)
        if size <= 2:
            return False
        last = self.sent([((size - 1) * stride, 0)])
        return last is not None and last.hops == max(self._hops(place * stride, stride) for place in range(size - 1))

    def _hops(self, device: int, step: int) -> int:
        found = self.sent([(device, device + step)])
        return 0 if found is None else found.hops

    def _stride(self, axis: str) -> int:
        return math.prod(self.mesh.sizes[self.mesh.names.index(axis) + 1 :])

    def is_far(self, groups: Sequence[Sequence[int]]) -> bool:
        """Whether some group reaches over the data-centre network."""
        return bool(self.dcn) and any(len({self._slice(device) for device in group}) > 1 for group in groups)

    def _slice(self, device: int) -> int:
        return self._number(device, self.dcn)

    def inside(self, groups: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        """The devices by their numbers in their own slice."""
        if not self.dcn:
            return groups
        near = tuple(axis for axis in self.mesh.names if axis not in self.dcn)
        return list(dict.fromkeys(tuple(self._number(device, near) for device in group) for group in groups))

    def _number(self, device: int, axes: Axes) -> int:
        """The device's number on the mesh of these axes alone."""
        found, stride = 0, 1
        for name, size in reversed(self.mesh.axes):
            device, place = divmod(device, size)
            if name in axes:
                found, stride = found + place * stride, stride * size
        return found

    def symbols(self) -> dict[str, float]:
        """Bandwidths in B/s by their names in formulas."""
        return {"W_dcn": self.chip.dcn_bandwidth} | self.links.symbols()


def network(mesh: Mesh, chip: Chip, layout: Layout | None = None) -> Network:
    """The network of a mesh; SHC224 where layout and mesh disagree."""
    layout = Layout() if layout is None else layout
    layout.check(mesh)
    inside = Mesh(tuple((name, size) for name, size in mesh.axes if name not in layout.dcn))
    return Network(mesh, chip, links_of(inside, chip, layout), layout)
