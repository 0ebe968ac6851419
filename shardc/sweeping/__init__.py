"""One program planned over many sizes, or many splits of its axes: where it becomes communication-bound."""

from shardc.sweeping.points import sweep
from shardc.sweeping.result import Swept
from shardc.sweeping.rows import Crossing, Row

__all__ = ["Crossing", "Row", "Swept", "sweep"]
