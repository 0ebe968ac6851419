"""What a plan is judged by, and what it is asked for beside: all that a caller may ask beyond program and model.

A price is one integer: the objective, then the other measure, then the number of steps, packed high to low.
Adding two prices adds each part, comparing them compares the parts in order, and no rounding makes two
equal plans differ. Each part has room for the sum of 2^16 largest terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

_STEP_BITS = 24
_PART_BITS = 96


CLEARLY = (
    0.125  # of the time of steps, that another form of them has to save; replayed, smaller gains were often losses
)


class Overlap(Enum):
    """What is done with products and the collectives beside them."""

    OFF = "off"
    AUTO = "auto"
    ON = "on"


class Objective(Enum):
    """`time`: seconds, then wire bytes. `bytes`: wire bytes, then seconds."""

    TIME = "time"
    BYTES = "bytes"

    def price(self, time_ps: int, wire_bytes: int, steps: int = 1) -> int:
        first, second = (time_ps, wire_bytes) if self is Objective.TIME else (wire_bytes, time_ps)
        return (((first << _PART_BITS) | second) << _STEP_BITS) | steps

    def first(self, price: int) -> int:
        """What the objective counts, of a price: picoseconds or bytes."""
        return price >> (_PART_BITS + _STEP_BITS)

    def wire_bytes(self, price: int) -> int:
        """The wire bytes of a price."""
        return self.measures(price)[1]

    def measures(self, price: int) -> tuple[int, int]:
        """The picoseconds and the wire bytes of a price."""
        first, second = divmod(price >> _STEP_BITS, 1 << _PART_BITS)
        return (first, second) if self is Objective.TIME else (second, first)

    def below(self, first: int) -> int:
        """The highest price of less than so many picoseconds, or bytes."""
        return (first << (_PART_BITS + _STEP_BITS)) - 1

    def clearly_less(self, first: int) -> int:
        """What is less than this is better by a byte, or by a fiftieth of the time: worth longer code."""
        return first - first // 50 if self is Objective.TIME else first

    def clearly_below(self, price: int) -> int:
        """The highest price that is clearly less than this."""
        return self.below(self.clearly_less(self.first(price)))


class Method(Enum):
    """How the way from one sharding to another is found."""

    SEARCH = "search"  # A* over all moves
    ROUTES = "routes"  # the closed routes of `rules.routes`, and few of a product's ways: no search
    ROUTES_IN_DIGITS = "routes in digits"  # these, held against a search over the moves in digits
    UNEQUAL_ROUTES = "unequal routes"  # and those of `rules.unequal`


@dataclass(frozen=True, slots=True)
class Options:
    """The defaults ask for the cheapest plan, whatever it needs."""

    memory: int | None = None  # bytes per device that the last statement keeps, where it can
    memory_before: int | None = None  # the same of the statements before it; None where they may need any
    leaner: bool = False  # whether what needs less memory is listed too, though it costs more
    largest_step: int | None = None  # bytes per device that no step goes above, before and after it together
    below: int | None = None  # one product or reshard is planned only where it costs less: picoseconds or bytes
    most_wire: int | None = None  # wire bytes that the moves of one array may bring
    idle: bool | None = None  # whether axes that nobody wrote move; None: by bytes they do, by time they do not
    is_typed: bool = False  # whether each value's type says along which axes it is equal (`lowering.flow.untyped_by`)
    masks: bool = False  # whether a whole array may be made partial sums: as is asked of what is planned together
    as_asked: bool = False  # whether operations take arrays just as a use asks for them, and move no further
    method: Method = Method.SEARCH
    must_plan: bool = True  # where the budget ends without a plan: one by ROUTES; else Spent is raised

    @property
    def has_limits(self) -> bool:
        """Whether a plan may not be just any."""
        limits = (self.memory, self.memory_before, self.largest_step, self.below, self.most_wire)
        return any(limit is not None for limit in limits)

    @property
    def searches(self) -> bool:
        return self.method is Method.SEARCH


CHEAPEST = Options()
