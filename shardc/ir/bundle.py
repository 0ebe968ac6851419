"""A mesh seen as a coarser one: several axes move as one, under the name of the first.

    mesh X=2, S=2, T=4      seen as X=2, S=8
    A[I_XS, J]              stands for A[I_XST, J]

The other way about, an axis seen as several, is `ir.refine`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shardc.ir.collectives import Move
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding


@dataclass(frozen=True, slots=True)
class Bundle:
    """Axes of `mesh` that move as one; on the `coarse` mesh the first stands for all."""

    mesh: Mesh
    axes: Axes

    @property
    def coarse(self) -> Mesh:
        first, *others = self.axes
        sizes = ((name, self.mesh.product(self.axes) if name == first else size) for name, size in self.mesh.axes)
        return Mesh(tuple((name, size) for name, size in sizes if name not in others))

    def coarse_axes(self, axes: Axes) -> Axes:
        """`IST` as `IS`."""
        return tuple(axis for axis in axes if axis not in self.axes[1:])

    def all_axes(self, axes: Iterable[str]) -> Axes:
        """`IS` as `IST`."""
        return tuple(name for axis in axes for name in (self.axes if axis == self.axes[0] else (axis,)))

    def coarsened(self, sharding: Sharding) -> Sharding | None:
        """On the coarse mesh; None if the axes do not stand together."""
        found = Sharding(tuple(map(self.coarse_axes, sharding.dims)), sharding.unreduced.difference(self.axes[1:]))
        return found if self.refined(found) == sharding else None

    def refined(self, sharding: Sharding) -> Sharding:
        """A sharding of the coarse mesh on the mesh itself."""
        return Sharding(tuple(map(self.all_axes, sharding.dims)), frozenset(self.all_axes(sharding.unreduced)))

    def move(self, move: Move) -> Move:
        """A move of the coarse mesh on the mesh itself."""
        return move.over(self.all_axes, self.mesh)
