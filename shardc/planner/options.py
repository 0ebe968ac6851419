"""What a plan is asked for, in one value: all that a caller may ask beyond program, model and objective."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Method(Enum):
    """How the way from one sharding to another is found."""

    SEARCH = "search"  # A* over all moves
    ROUTES = "routes"  # the closed routes of `rules.routes`, and few of a product's ways: no search
    ROUTES_IN_DIGITS = "routes in digits"  # these, held against a search over the moves in digits


@dataclass(frozen=True, slots=True)
class Options:
    """The defaults ask for the cheapest plan, whatever it needs."""

    memory: int | None = None  # bytes per device that the last statement keeps, where it can
    memory_before: int | None = None  # the same of the statements before it; None where they may need any
    largest_step: int | None = None  # bytes per device that no step goes above, before and after it together
    below: int | None = None  # one product or reshard is planned only where it costs less: picoseconds or bytes
    most_wire: int | None = None  # wire bytes that the moves of one array may bring
    idle: bool | None = None  # whether axes that nobody wrote move; None: by bytes they do, by time they do not
    method: Method = Method.SEARCH
    must_plan: bool = True  # where the budget ends without a plan: one by ROUTES; else Spent is raised

    @property
    def searches(self) -> bool:
        return self.method is Method.SEARCH


CHEAPEST = Options()
