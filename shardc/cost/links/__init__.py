"""Kinds of link, a file each. What prices a collective asks only what `level.Level` promises."""

from shardc.cost.links.level import Factor, Level
from shardc.cost.links.switch import Switch
from shardc.cost.links.torus import Line, Shape, Torus

__all__ = ["Factor", "Level", "Line", "Shape", "Switch", "Torus"]
