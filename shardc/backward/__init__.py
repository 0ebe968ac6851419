"""A program's backward program, in the notation: one statement for each gradient."""

from shardc.backward.gradients import grad

__all__ = ["grad"]
