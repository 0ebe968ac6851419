"""A slice: a chip and the shape of its physical mesh, as in `v5p:4x4x4`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from shardc.cost.chips import Chip, chip
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh

_TOPOLOGY = re.compile(r"([A-Za-z0-9_]+):([1-9][0-9]{0,6}(?:x[1-9][0-9]{0,6})*)")


@dataclass(frozen=True, slots=True)
class Topology:
    """`shape` counts chips along each physical axis."""

    chip: Chip
    shape: tuple[int, ...]

    @property
    def chips(self) -> int:
        return math.prod(self.shape)


def topology(text: str) -> Topology:
    """The slice of that name; SHC224 if it is malformed."""
    found = _TOPOLOGY.fullmatch(text)
    if found is None:
        raise ShardcError("SHC224", f"malformed topology `{text}`", help="write chip and shape, as in v5p:4x4x4")
    return Topology(chip(found[1]), tuple(int(size) for size in found[2].split("x")))


def chip_of(mesh: Mesh, name: str | None, slice_name: str | None) -> Chip | None:
    """The chip that a program names, by itself or by its topology; SHC224 where the two, or the mesh, disagree."""
    if slice_name is None:
        return chip(name) if name is not None else None
    found = topology(slice_name)
    if name is not None and chip(name) is not found.chip:
        raise ShardcError(
            "SHC224", f"chip `{name}` is not the chip of topology `{slice_name}`", help="give one of the two"
        )
    if mesh.devices != found.chips:
        raise ShardcError(
            "SHC224",
            f"topology `{slice_name}` has {found.chips} chips, the mesh {mesh} has {mesh.devices} devices",
            help=f"make the sizes of the mesh multiply to {found.chips}",
        )
    return found.chip
