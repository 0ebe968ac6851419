"""The move from a whole value to partial sums, beside which nothing is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shardc.ir.mesh import Mesh
from shardc.ir.operations import AT_ONCE, Facts, Kind, Renaming, Turns, require
from shardc.ir.sharding import SUM, Axes, Sharding


@dataclass(frozen=True, slots=True)
class Mask:
    """`A[I] → A[I]{U_X}`: the first device along X keeps its copy, the others have zeros. 0.

    So a whole value is added to partial sums, and they are reduced once: `G[I] + T[I]{U_X} → G[I]{U_X}`. No text asks
    for it: what is whole is made partial sums where that saves a reduction.
    """

    facts: ClassVar[Facts] = Facts(Kind.MASK, "Mask", is_named=False)
    on: ClassVar[tuple[int, ...]] = ()
    turns: ClassVar[Turns] = AT_ONCE

    axes: Axes

    def over(self, renamed: Renaming, _: Mesh) -> Mask:
        return Mask(renamed(self.axes))

    def check(self, before: Sharding, _: Mesh) -> None:
        require(not before.used & set(self.axes), "only along an axis that holds copies one of them can be kept")
        require(before.reduction == SUM, "the value is no partial sum")

    def leaves(self, before: Sharding) -> Sharding:
        return Sharding(before.dims, before.unreduced.union(self.axes))

    def wire_bytes(self, _: Sharding, __: Mesh, ___: int) -> int:
        return 0
