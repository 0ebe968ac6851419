"""Links through a switch: NVLink inside a domain, InfiniBand between nodes, the data-centre network.

Every member reaches every other at the bandwidth of its own port, in one hop.
Source: *How To Scale Your Model*, chapter 12 (GPUs).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shardc.cost.chips import Chip
from shardc.cost.layout import Layout
from shardc.cost.links.level import Factor, Level, less_one, product
from shardc.cost.topology import place
from shardc.ir.mesh import Mesh
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Axes


@dataclass(frozen=True, slots=True)
class Switch:
    """`count` members; `width` is the egress of one device in B/s."""

    count: Factor
    width: Factor

    @property
    def hops(self) -> Factor:
        return Factor("1", 1)

    def exchange(self, book: bool) -> Factor:
        """V(n−1)/(n²W): of its n-th part a device sends all but one n-th."""
        less = Factor("1", 1.0) if book else less_one(self.count)
        return Factor(
            f"{less.text}/{self.count.text} / {self.width.text}", less.value / self.count.value / self.width.value
        )

    def route(self) -> Factor:
        return Factor(f"1 / {self.width.text}", 1 / self.width.value)


@dataclass(frozen=True, slots=True)
class SwitchLinks:
    """NVLink inside domains, and each device's part of its node's egress between them."""

    mesh: Mesh
    chip: Chip
    parts: Mapping[str, tuple[int, int]]  # how much of each axis is inside a domain, and how much outside

    @classmethod
    def of(cls, mesh: Mesh, chip: Chip, layout: Layout) -> SwitchLinks:
        """The last axes of a mesh count neighbours, so they fill a domain first."""
        if layout.topology is not None:
            place(mesh, (layout.topology.chips,), (False,), {})  # as many devices as the slice has
        parts, room = {}, chip.domain
        for name, size in reversed(mesh.axes):
            inner = max(part for part in range(1, min(size, room) + 1) if size % part == 0)
            parts[name] = (inner, size // inner)
            room = room // inner if inner == size else 1
        return cls(mesh, chip, parts)

    def levels(self, axes: Axes) -> tuple[Level, ...]:
        inner = math.prod(self.parts[axis][0] for axis in axes)
        outer = math.prod(self.parts[axis][1] for axis in axes)
        widths = ((inner, "W_nvlink", self.chip.link_bandwidth), (outer, "W_node", self.chip.dcn_bandwidth))
        return tuple(
            Switch(self._count(axes, count), Factor(name, width)) for count, name, width in widths if count > 1
        )

    def _count(self, axes: Axes, count: int) -> Factor:
        """The axes by name if they are all of it, else a number."""
        if self.mesh.product(axes) != count:
            return Factor(str(count), count)
        return product(Factor(axis, self.mesh.size(axis)) for axis in axes)

    def has_parts(self, axis: str) -> bool:
        return min(self.parts[axis]) > 1

    def refined(self, by: Refinement) -> SwitchLinks | None:
        """A sub-axis is inside a domain as far as the axis is: X=16 with 8 inside as X0=4, X1=4 has 2·2 and 4."""
        parts = {}
        for axis, (inside, _) in self.parts.items():
            for name in by.axes((axis,)):
                size, after = by.fine.size(name), by.around(axis, (name,))[1]
                near = 1 if after >= inside else min(size, inside // after)
                if max(after, inside) % min(after, inside) or size % near or (inside // after or 1) % near:
                    return None
                parts[name] = (near, size // near)
        return SwitchLinks(by.fine, self.chip, parts)

    def symbols(self) -> dict[str, float]:
        return {"W_nvlink": self.chip.link_bandwidth, "W_node": self.chip.dcn_bandwidth}
