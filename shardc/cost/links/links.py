"""What every kind of links tells of a mesh: `torus_links` and `switch` do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from shardc.cost.links.fabric import Fabric
from shardc.cost.links.level import Level, Traffic
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Axes


class Links(Protocol):
    """All links of one kind of chip, for one mesh."""

    @property
    def fabric(self) -> Fabric | None:
        """The torus, as it is wired; none behind a switch."""
        ...

    def levels(self, axes: Axes) -> tuple[Level, ...]:
        """The levels of a group over mesh axes that all exceed 1, the innermost first."""
        ...

    def symbols(self) -> dict[str, float]:
        """The bandwidths that formulas name, in B/s."""
        ...

    def has_parts(self, axis: str) -> bool:
        """Whether parts of a mesh axis have links of their own: it lies on several lines, or on two kinds of link."""
        ...

    def grouped(self, groups: Sequence[Sequence[int]]) -> Iterator[tuple[Level, ...]]:
        """The levels of groups of devices, whichever they are, that communicate at the same time: each kind once.

        Devices are numbers, with the last axis of the mesh fastest.
        """
        ...

    def taken(self, groups: Sequence[Sequence[int]]) -> int:
        """The links on which such groups communicate, a bit each; 0 where every device has one port for all."""
        ...

    def sent(self, pairs: Sequence[Sequence[int]]) -> Traffic | None:
        """A block from the first to the second of each pair; None where that is no matter of routes."""
        ...

    def refined(self, by: Refinement) -> Links | None:
        """The same links under the axes of a finer mesh; None where parts of axes are not parts of links.

        Parts that are all of an axis are priced as the axis is.
        """
        ...
