"""Kinds of link, a file each. What prices a collective asks only what `level` promises."""

from __future__ import annotations

from typing import assert_never

from shardc.cost.chips import Chip, LinkKind
from shardc.cost.layout import Layout
from shardc.cost.links.level import Factor, Level
from shardc.cost.links.links import Links
from shardc.cost.links.switch import SwitchLinks
from shardc.cost.links.torus_links import torus_links
from shardc.ir.mesh import Mesh

__all__ = ["Factor", "Level", "Links", "links_of"]


def links_of(mesh: Mesh, chip: Chip, layout: Layout) -> Links:
    """The links that join chips under the axes of a mesh."""
    match chip.links:
        case LinkKind.TORUS:
            return torus_links(mesh, chip, layout)
        case LinkKind.SWITCH:
            return SwitchLinks.of(mesh, chip, layout)
        case kind:
            assert_never(kind)
