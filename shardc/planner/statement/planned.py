"""A statement's part of a plan, and what else it could be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain, islice

from shardc.ir.plan import Strategy
from shardc.ir.program import Statement, uses
from shardc.planner.meshes.idle import mentioned
from shardc.planner.objective import Objective
from shardc.planner.statement.gaps import Gap
from shardc.planner.statement.nodes import Planner


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
        if count is None or self._shared:
            return self.alternatives[:count]
        self._found += islice(self._more, max(0, count - len(self._found)))
        return tuple(self._found[:count])

    def _sorted(self, found: Iterable[Strategy]) -> tuple[Strategy, ...]:
        return tuple(sorted(found, key=self._rank))


class PlannedLoop:
    """A loop as written, and its statements."""

    def __init__(self, text: str, statements: tuple[PlannedStatement | PlannedLoop, ...]) -> None:
        self.text = text
        self.statements = statements


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


def shown_cases(cases: dict[str, int], statement: Statement, planner: Planner) -> dict[str, int]:
    """The cases of the axes that the statement writes; of all axes if it writes none."""
    if not cases:
        return {}
    axes = mentioned(planner.program, statement) or planner.mesh.names
    return {axis: cases.get(axis, 1) for axis in axes}
