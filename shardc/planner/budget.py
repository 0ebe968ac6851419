"""How much work a search may do: counted, never timed, so that the same input gives the same plan everywhere.

A budget is a value, handed on from one plan to the next. While one plan is made, a meter counts; it is made for that
one call, and nothing else of a search changes what another one finds.

A unit is about a microsecond of one core that does nothing else, and two where others share it: the two seconds which
a statement may take, printed as JSON and all, are a million units. What is counted is what the input asks for, whether
or not an earlier search left it in a cache. Whoever is about to work says so first:

    meter.spend(ways * WAY)      raises Spent where that is more than is left; what is known by then is the answer
"""

from __future__ import annotations

from dataclasses import dataclass

STATEMENT = 600_000  # for a statement's plan, and its plans on finer meshes
PLAN = 450_000  # of these for its plan alone
DEEP = 60_000  # for a search in digits on one finer mesh
QUICK = 100_000  # for a plan without a search, where one was too much
LISTED = 350_000  # for what is listed beside a plan

MOVE = 9  # to find a move from a sharding
EDGE = 1  # to take it, once found
NODE = 12  # to settle a sharding
ROUTE = 130  # to work out a route
UNEQUAL = 6000  # the same with one exchange in unequal pieces, of some hundred ways
WAY = 14  # to find a local product
BOUND = 5  # to bound what one costs
APPLIED = 10  # to apply a function to what its operands' strategies leave
CUT = 4000  # to see a program on another mesh
PLACED = 5  # to put axes on digits and bound what that costs
PRICED = 150  # to price such a product
STRATEGY = 800  # to build a strategy and to print it, and each of its steps
STEP = 500


class Spent(Exception):
    """The budget is used up: whoever has found something gives it, others pass this on.

    `bound` is a price that what was looked for is proved not to be below.
    """

    def __init__(self, bound: int = 0) -> None:
        super().__init__()
        self.bound = bound


@dataclass(frozen=True, slots=True)
class Budget:
    """What is left for all that is planned to answer one question."""

    total: int

    @classmethod
    def of(cls, statements: int) -> Budget:
        return cls(STATEMENT * statements)

    def less(self, units: int) -> Budget:
        return Budget(self.total - units)

    def meter(self) -> Meter:
        """For one plan."""
        return Meter(self.total)


@dataclass(slots=True)
class Meter:
    """The count of one call's work: `left` for the statement at hand, `total` for all of the call."""

    total: int
    left: int = 0
    is_soft: bool = False  # whether whoever spends looks for himself

    @classmethod
    def unlimited(cls) -> Meter:
        """For those who ask a planner one thing, and wait."""
        return cls(1 << 62, 1 << 62)

    def begin(self, units: int) -> None:
        """The next statement."""
        self.left = min(units, self.total)

    def spend(self, units: int) -> None:
        self.pay(units)
        if self.left < 0 and not self.is_soft:
            raise Spent

    def begin_on(self, units: int) -> None:
        """For what is only the beginning: raises Spent where it alone is more than half of what is left."""
        if 2 * units > self.left and not self.is_soft:
            self.pay(self.left + 1)
            raise Spent
        self.pay(units)

    def pay(self, units: int) -> None:
        """For what is done already: whoever is next finds less."""
        self.left -= units
        self.total -= units

    @property
    def is_spent(self) -> bool:
        return self.left < 0

    @property
    def budget(self) -> Budget:
        """What the call leaves."""
        return Budget(self.total)
