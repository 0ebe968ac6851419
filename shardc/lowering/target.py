"""What a program is lowered for: its mesh, and the slice of TPUs that it names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from shardc.ir.mesh import Mesh
from shardc.ir.program import Program
from shardc.ir.sharding import Axes

Shape = tuple[int, ...]
_TPUS = ("v", "tpu")


@dataclass(frozen=True, slots=True)
class Target:
    """`sides` of the slice, those of one chip left out; None where no slice of TPUs is named.

    `is_plain`: every step is one collective, as the books price it, whatever a compiler makes of it.
    """

    mesh: Mesh
    sides: Shape | None = None
    generation: str = ""  # v5p
    is_plain: bool = False

    @classmethod
    def of(cls, program: Program) -> Target:
        """By the topology that a program names. GPUs have another compiler; where nothing is named it is the TPU's."""
        named = program.topology or program.chip or ""
        if named and not named.startswith(_TPUS) and not Path(named).suffix:
            return cls(program.mesh, is_plain=True)
        if program.topology is None or not program.topology.startswith(_TPUS):
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
