"""What the steps of a statement are built from."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardc.planner.digits.chosen import Chosen
from shardc.planner.paths.tables import Table


@dataclass(frozen=True, slots=True)
class Candidate:
    """The table of a statement's expression, a sharding of its result, and which products are done in digits."""

    root: Table
    goal: int
    in_digits: Chosen = field(default_factory=dict)
