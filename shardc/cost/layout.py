"""What a user may say of how a mesh lies on hardware."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.cost.topology import Topology
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes

RING, LINE, ONE_WAY = "ring", "line", "one-way"
SHAPES = (RING, LINE, ONE_WAY)


@dataclass(frozen=True, slots=True)
class Layout:
    """A slice; the axes over DCN; the physical axes of mesh axes; and which are of another of SHAPES than they are."""

    topology: Topology | None = None
    dcn: Axes = ()
    map: tuple[tuple[str, tuple[int, ...]], ...] = ()
    wraparound: tuple[tuple[str, str], ...] = ()

    def check(self, mesh: Mesh) -> None:
        """SHC224 if it speaks of an axis that the mesh does not have."""
        for name in (*self.dcn, *(name for name, _ in self.map), *(name for name, _ in self.wraparound)):
            if name not in mesh:
                raise ShardcError("SHC224", f"no axis `{name}` in the mesh {mesh}", help="name an axis of the mesh")
