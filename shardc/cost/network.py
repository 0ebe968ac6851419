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

from dataclasses import dataclass, field

from shardc.cost.chips import Chip
from shardc.cost.layout import Layout
from shardc.cost.links import KINDS, Level, Links
from shardc.cost.links.level import Factor, product
from shardc.cost.links.switch import Switch
from shardc.ir.mesh import Mesh
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Axes


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

    def symbols(self) -> dict[str, float]:
        """Bandwidths in B/s by their names in formulas."""
        return {"W_dcn": self.chip.dcn_bandwidth} | self.links.symbols()


def network(mesh: Mesh, chip: Chip, layout: Layout | None = None) -> Network:
    """The network of a mesh; SHC224 where layout and mesh disagree."""
    layout = Layout() if layout is None else layout
    layout.check(mesh)
    inside = Mesh(tuple((name, size) for name, size in mesh.axes if name not in layout.dcn))
    return Network(mesh, chip, KINDS[chip.links](inside, chip, layout), layout)
