"""Kinds of link, a file each, and one row each here. What prices a collective asks only what `level` promises."""

from __future__ import annotations

from collections.abc import Callable

from shardc.cost.chips import Chip
from shardc.cost.layout import Layout
from shardc.cost.links.level import Factor, Level, Links
from shardc.cost.links.switch import SwitchLinks
from shardc.cost.links.torus_links import torus_links
from shardc.ir.mesh import Mesh

# By the kind that a chip's row names.
KINDS: dict[str, Callable[[Mesh, Chip, Layout], Links]] = {"torus": torus_links, "switch": SwitchLinks.of}

__all__ = ["KINDS", "Factor", "Level", "Links"]
