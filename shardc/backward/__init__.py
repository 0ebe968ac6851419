"""A program's backward program, in the notation: one statement for each gradient."""

from shardc.backward.gradients import grad
from shardc.backward.walk import REMATS, Remat

__all__ = ["REMATS", "Remat", "grad"]
