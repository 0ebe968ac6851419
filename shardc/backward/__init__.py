"""A program's backward program, in the notation: one statement for each gradient."""

from shardc.backward.gradients import grad, with_backward
from shardc.backward.walk import REMATS, Remat

__all__ = ["REMATS", "Remat", "grad", "with_backward"]
