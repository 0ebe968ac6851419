"""What planning gives: of each statement what was chosen and what else there is, of the program the steps and costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice

from shardc.cost.model import picoseconds
from shardc.ir.expressions import uses
from shardc.ir.plan import Cost, Schedule, Strategy
from shardc.ir.program import Statement
from shardc.planner.bounds.bound import lower_bound
from shardc.planner.options import Objective

SHARED = 64  # strategies of a statement that uses an array twice, of which the cheapest are listed: built, their order
# is another than that in which they are found


@dataclass(frozen=True, slots=True)
class Gap:
    """A statement's name, its price and what no plan that the search may find is below: picoseconds, or bytes."""

    name: str
    price: int
    bound: int

    @property
    def ratio(self) -> float | None:
        """None where no bound is known."""
        if not self.bound:
            return None if self.price else 1.0
        return self.price / self.bound

    def __str__(self) -> str:
        if self.ratio is None:
            return f"`{self.name}`: the search ended with its budget; gap unknown, since no bound is proved"
        return f"`{self.name}`: the search ended with its budget; gap {self.ratio:.2f}, its price over the proved bound"


class PlannedStatement:
    """A statement as written, the case of each mesh axis, and every strategy, the cheapest first."""

    def __init__(
        self,
        text: str,
        cases: dict[str, int],
        find: Callable[[], Iterator[Strategy]],
        rank: Callable[[Strategy], tuple[float, float]],
        shared: bool,
        gap: Gap | None = None,
    ) -> None:
        self.text = text
        self.cases = cases
        self._find = find
        self._rank = rank
        self._shared = shared
        self.gap = gap  # None where the plan is the cheapest
        self._found: list[Strategy] = []

    def led_by(self, own: Strategy, gap: Gap | None) -> PlannedStatement:
        """The same with another strategy before all."""
        return PlannedStatement(
            self.text, self.cases, lambda: chain([own], self._find()), self._rank, self._shared, gap
        )

    @cached_property
    def _more(self) -> Iterator[Strategy]:
        return self._find()

    @cached_property
    def alternatives(self) -> tuple[Strategy, ...]:
        """Found when first asked for: the plan itself does not need them."""
        self._found += self._more
        return self._sorted(self._found)

    def cheapest(self, count: int | None) -> tuple[Strategy, ...]:
        """The first `count` of them, or all."""
        if count is None:
            return self.alternatives
        looked_at = max(count, SHARED) if self._shared else count
        self._found += islice(self._more, max(0, looked_at - len(self._found)))
        return (self._sorted(self._found) if self._shared else tuple(self._found))[:count]

    def _sorted(self, found: Iterable[Strategy]) -> tuple[Strategy, ...]:
        return tuple(sorted(found, key=self._rank))


class PlannedLoop:
    """A loop as written, and its statements."""

    def __init__(self, text: str, statements: tuple[PlannedStatement | PlannedLoop, ...]) -> None:
        self.text = text
        self.statements = statements


@dataclass(frozen=True)
class PlannedProgram:
    """The steps, their cost, and what each statement could do instead."""

    schedule: Schedule
    statements: tuple[PlannedStatement | PlannedLoop, ...]
    cost: Cost
    notes: tuple[str, ...] = ()
    whole: Schedule | None = None  # of a plan on a finer mesh, the one on the mesh as given
    peaks: tuple[int, ...] = ()  # up to each statement but the last, where memory is limited

    @cached_property
    def bound_bytes(self) -> int:
        """The wire bytes below which no method gets."""
        return lower_bound(self.whole or self.schedule)

    def price(self, objective: Objective) -> int:
        """What plans are compared by: of all steps, whichever came first."""
        steps = self.schedule.steps
        return sum(objective.price(picoseconds(step.cost.time_s), step.cost.wire_bytes) for step in steps)

    def measure(self, objective: Objective) -> int:
        """What the objective counts. Time in whole picoseconds: sums of floats differ in their last bits by order."""
        return picoseconds(self.cost.time_s) if objective is Objective.TIME else self.cost.wire_bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """No plan that was found keeps a memory limit; `least` is the smallest peak of those that were met, in bytes."""

    least: int


def gaps_of(planned: PlannedStatement | PlannedLoop) -> Iterator[Gap]:
    """Of each statement whose plan may not be the cheapest."""
    if isinstance(planned, PlannedLoop):
        yield from (gap for each in planned.statements for gap in gaps_of(each))
    elif planned.gap is not None:
        yield planned.gap


def ranking(objective: Objective) -> Callable[[Strategy], tuple[float, float]]:
    """What strategies are ordered by."""
    if objective is Objective.TIME:
        return lambda strategy: (strategy.time_s, strategy.wire_bytes)
    return lambda strategy: (strategy.wire_bytes, strategy.time_s)


def shares(statement: Statement) -> bool:
    """Whether a statement uses an array more than once."""
    names = [use.name for use in uses(statement.expr)]
    return len(set(names)) < len(names)
