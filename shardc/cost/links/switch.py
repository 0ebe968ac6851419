"""Links through a switch: NVLink inside a domain, InfiniBand between nodes, the data-centre network.

Every member reaches every other at the bandwidth of its own port, in one hop.
Source: *How To Scale Your Model*, chapter 12 (GPUs).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardc.cost.chips import Chip
from shardc.cost.layout import Layout
from shardc.cost.links.level import Factor, Level, less_one, product
from shardc.cost.topology import check_fits
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
            check_fits(mesh, (layout.topology.chips,))
        parts, room = {}, chip.domain
        for name, size in reversed(mesh.axes):
            inner = max(part for part in range(1, min(size, room) + 1) if size % part == 0)
            parts[name] = (inner, size // inner)
            room = room // inner if inner == size else 1
        return cls(mesh, chip, parts)

    @property
    def fabric(self) -> None:
        return None

    def levels(self, axes: Axes) -> tuple[Level, ...]:
        inner = math.prod(self.parts[axis][0] for axis in axes)
        outer = math.prod(self.parts[axis][1] for axis in axes)
        return self._both(self._count(axes, inner), self._count(axes, outer))

    def _both(self, inner: Factor, outer: Factor) -> tuple[Level, ...]:
        widths = ((inner, "W_nvlink", self.chip.link_bandwidth), (outer, "W_node", self.chip.dcn_bandwidth))
        return tuple(Switch(count, Factor(name, width)) for count, name, width in widths if count.value > 1)

    def grouped(self, groups: Sequence[Sequence[int]]) -> Iterator[tuple[Level, ...]]:
        """A group is as many domains as its devices are in, and as many devices inside as most of these have."""
        sizes: dict[tuple[int, int], None] = {}
        for group in groups:
            domains = Counter(self._domain(device) for device in group)
            sizes[max(domains.values()), len(domains)] = None
        for inner, outer in sizes:
            yield self._both(Factor(str(inner), inner), Factor(str(outer), outer))

    def _domain(self, device: int) -> tuple[int, ...]:
        found, left = [], device
        for name, size in reversed(
            [axis for axis in self.mesh.axes if axis[0] in self.parts]
        ):  # without those over DCN
            left, place = divmod(left, size)
            found.append(place // self.parts[name][0])
        return tuple(found)

    def taken(self, groups: Sequence[Sequence[int]]) -> int:
        return 0

    def sent(self, pairs: Sequence[Sequence[int]]) -> None:
        """A block is through a switch in one hop, wherever it goes."""
        return None

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
