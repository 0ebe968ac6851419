"""Whether products and the collectives beside them are done as one.

off    every step by itself; tuning tries no forms
auto   every step by itself; tuning tries forms, and keeps what replays fastest
on     each product in the form of the least price, where that is less than its steps'
"""

from __future__ import annotations

from enum import Enum

from shardc.cost.model import CostModel
from shardc.planner.planned import PlannedProgram


class Overlap(Enum):
    """What is done with products and the collectives beside them."""

    OFF = "off"
    AUTO = "auto"
    ON = "on"


def overlapped(found: PlannedProgram, model: CostModel, overlap: Overlap) -> PlannedProgram:
    """The plan with its products done as one with collectives, where that is asked for and costs less."""
    if overlap is not Overlap.ON:
        return found
    from shardc.planner.program.as_one import as_one  # only who asks for rings waits for what prices them

    return as_one(found, model)
