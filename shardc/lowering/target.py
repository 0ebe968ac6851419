"""What a program is lowered for: its mesh, and the slice of TPUs that it names."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.ir.sharding import Axes

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """`sides` of the slice, those of one chip left out; None where no slice of TPUs is named."""

    mesh: Mesh
    sides: Shape | None = None
    generation: str = ""  # v5p

    @classmethod
    def of(cls, program: Program) -> Target:
        """By the topology that a program names."""
        if program.topology is None or not program.topology.startswith(("v", "tpu")):
            return cls(program.mesh)
        generation, _, sides = program.topology.partition(":")
        return cls(program.mesh, tuple(int(side) for side in sides.split("x") if side != "1"), generation)

    def on(self, mesh: Mesh) -> Target:
        """The same chips under a finer mesh."""
        return replace(self, mesh=mesh)

    @property
    def names_slice(self) -> bool:
        return self.sides is not None

    def is_all(self, axes: Axes) -> bool:
        """Whether a group over these axes has every device."""
        return self.mesh.product(axes) == self.mesh.devices
