"""How the plans of one program are made, and what planning gives: of each statement what was chosen and what else there
is, of the program the steps and costs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

from shardc.cost.model import CostModel
from shardc.cost.rate import picoseconds
from shardc.errors import ShardcError
from shardc.ir.expressions import Call, Expr, Pattern, Product, operands, uses
from shardc.ir.plan import Cost, Op, Schedule, Strategy
from shardc.ir.program import For, Program, Statement, axes_in, every_statement, patterns_of, read_by
from shardc.ir.sharding import Array, Axes
from shardc.planner.bounds.bound import lower_bound
from shardc.planner.budget import Budget, Meter, Spent
from shardc.planner.idle import Idle, axes_to_search, has_idle
from shardc.planner.options import Objective, Options


@dataclass(frozen=True, slots=True)
class Planning:
    """By what objective to plan, over which axes, and what makes one plan: its statements one after another, as
    `program.loops.planned_at_once`. `is_typed`: whether each value's type has to say along which axes it is equal."""

    objective: Objective
    idle: Idle
    make: Callable[[Program, CostModel, Objective, Options, Meter], PlannedProgram]
    is_typed: bool = False

    @property
    def may_use_idle(self) -> bool:
        return self.idle is Idle.USE

    @property
    def uses_idle_first(self) -> bool:
        """Whether the first plan is searched over idle axes as well: what stands along them is a copy of the same
        computation, so that to move them saves bytes, and takes time."""
        return self.may_use_idle and self.objective is Objective.BYTES

    def axes(self, program: Program, with_idle: bool = True) -> Axes:
        """Those to search over, with idle ones only if they may be used."""
        return axes_to_search(program, with_idle and self.may_use_idle)[0]

    def has_idle(self, program: Program) -> bool:
        """Whether there are idle axes to search over."""
        return self.may_use_idle and has_idle(program)

    def planned(self, program: Program, model: CostModel, options: Options, meter: Meter) -> PlannedProgram:
        """A plan. Where the options leave idle axes open, they move by bytes; never if they are to be kept."""
        with_idle = self.uses_idle_first if options.idle is None else options.idle and self.may_use_idle
        options = replace(options, idle=with_idle, is_typed=self.says_types(program))
        return self.make(program, model, self.objective, options, meter)

    def says_types(self, program: Program) -> bool:
        """Whether each value's type has to say along which axes it is equal, as of what goes into a loop."""
        return self.is_typed or any(isinstance(each, For) for each in program.statements)

    def attempt(self, program: Program, model: CostModel, options: Options, budget: Budget | None = None) -> Attempt:
        """A plan; None where there is none with these options, or its search would be too much."""
        meter = (budget_of(program) if budget is None else budget).meter()
        try:
            return Attempt(self.planned(program, model, options, meter), meter.budget)
        except (ShardcError, Spent):
            return Attempt(None, meter.budget)


def settled(schedule: Schedule, model: CostModel) -> Schedule:
    """A schedule priced as all of its steps together let it be."""
    if model.alone.measured is None:
        return schedule
    from shardc.cost.settled import settled_block  # with what a plan for no slice needs not

    dims = {dim for dim, _ in schedule.program.sizes}
    return replace(schedule, block=settled_block(schedule.block, dims, model))


def check_bytes(schedule: Schedule) -> None:
    """SHC406 for an array of 2^63 bytes or more."""
    for array in schedule.values:
        size = math.prod(array.shape) * array.dtype.bytes
        if size >= 2**63:
            raise ShardcError(
                "SHC406",
                f"`{array.name}` has {array.dtype.bytes}·{'·'.join(map(str, array.shape))} bytes; the limit is 2^63",
                help="make its dims smaller",
            )


class Attempt(NamedTuple):
    """A plan, if there is one, and what is left of the budget."""

    planned: PlannedProgram | None
    budget: Budget


def budget_of(program: Program) -> Budget:
    """For all plans of a program that answer one question."""
    return Budget.of(len(list(every_statement(program))))


FEW = 1  # operation, of which a statement's plan alone is the best
MOST = 64  # operations of a program that is planned in several ways
MOST_AXES = 3  # on more, the tables of a statement of several operations may outgrow time and memory


def may_gain(program: Program, planning: Planning) -> bool:
    """Whether statements planned together may cost less than one after another.

    Where one leaves open how its result lies for a later one, or several use an array; where there is more than one
    operation, on a few axes; and by time, where something lies open and some axes are written nowhere, but may be
    used: what is shared over those takes less.
    """
    several = computed(program) > FEW and len(program.mesh.axes) <= MOST_AXES
    if several or any(_shared(each) or _open_between(each) for each in _blocks(program)):
        return True
    if planning.objective is not Objective.TIME or not computed(program):
        return False
    return _has_holes(program) and planning.has_idle(program)


def may_repeat(program: Program) -> bool:
    """Whether a program that is not long may write a product, or the sum of an array, of what is all read again."""
    return any(map(_shared, _blocks(program))) and computed(program) <= MOST and any(map(_repeats, _blocks(program)))


def _repeats(program: Program) -> bool:
    every = [each for each in program.statements if isinstance(each, Statement)]
    counts = Counter(name for each in every for name in read_by(each))
    parts = (part for each in every for part in _every(each.expr) if isinstance(part, Product))
    return any(all(counts[use.name] > 1 for use in uses(part)) for part in parts)


def computed(program: Program) -> int:
    """How many products and functions a program has."""
    return sum(
        isinstance(expr, Product | Call) for statement in every_statement(program) for expr in _every(statement.expr)
    )


def _every(expr: Expr) -> Iterator[Expr]:
    waiting = [expr]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += operands(found)


def _blocks(program: Program) -> Iterator[Program]:
    """The program, and the bodies of its loops as programs of their own."""
    yield program
    for each in program.statements:
        if isinstance(each, For):
            yield from _blocks(program.inside(each))


def _shared(program: Program) -> bool:
    names = [name for each in program.statements for name in read_by(each)]
    return len(names) > len(set(names))


def _open_between(program: Program) -> bool:
    return any(
        bound.pattern.exact is None and number not in program.outputs for number, bound in enumerate(program.results)
    )


def _has_holes(program: Program) -> bool:
    patterns: list[Pattern] = [array.pattern for array in program.inputs]
    return any(pattern.exact is None for pattern in (*patterns, *(made.pattern for made in program.results)))


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
        built: int = 0,
        gap: Gap | None = None,
    ) -> None:
        self.text = text
        self.cases = cases
        self._find = find
        self._rank = rank
        self._built = built  # before they are listed: each by what its steps take; of none their order is known
        self.gap = gap  # None where the plan is the cheapest
        self._found: list[Strategy] = []

    def led_by(self, own: Strategy, gap: Gap | None) -> PlannedStatement:
        """The same with another strategy before all."""
        return PlannedStatement(self.text, self.cases, partial(self._after, own), self._rank, gap=gap)

    def told_by(self, told: Callable[[Strategy], Strategy]) -> PlannedStatement:
        """The same with each strategy told in another way."""
        return PlannedStatement(self.text, self.cases, partial(self._told, told), self._rank, gap=self.gap)

    def __getstate__(self) -> dict[str, object]:
        """Without what was listed so far, which is found again: an iterator cannot be handed over."""
        return {name: value for name, value in vars(self).items() if name not in ("_more", "alternatives")} | {
            "_found": []
        }

    def _after(self, own: Strategy) -> Iterator[Strategy]:
        yield own
        done = done_by(own)
        yield from (each for each in self._every() if done_by(each) != done)

    def _told(self, told: Callable[[Strategy], Strategy]) -> Iterator[Strategy]:
        return map(told, self._every())

    def _every(self) -> Iterator[Strategy]:
        return chain(self.cheapest(self._built), self._more) if self._built else self._find()

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
        looked_at = max(count, self._built)
        self._found += islice(self._more, max(0, looked_at - len(self._found)))
        return (self._sorted(self._found) if self._built else tuple(self._found))[:count]

    def _sorted(self, found: Iterable[Strategy]) -> tuple[Strategy, ...]:
        return tuple(sorted(found, key=self._rank))


def done_by(strategy: Strategy) -> list[tuple[Op, tuple[Array, ...]]]:
    """Its operations, each with what it is done to."""
    return [(step.op, tuple(strategy.values[value] for value in step.operands)) for step in strategy.steps]


class PlannedLoop:
    """A loop as written, and its statements."""

    def __init__(self, text: str, statements: tuple[PlannedStatement | PlannedLoop, ...]) -> None:
        self.text = text
        self.statements = statements


@dataclass(frozen=True)
class PlannedProgram:
    """The steps, their cost, and what each statement could do instead, which follows from what was asked."""

    schedule: Schedule
    statements: tuple[PlannedStatement | PlannedLoop, ...] = field(compare=False)
    cost: Cost
    notes: tuple[str, ...] = ()
    whole: Schedule | None = None  # of a plan on a finer mesh, the one on the mesh as given
    peaks: tuple[int, ...] = ()  # up to each statement but the last, where memory is limited

    @cached_property
    def bound_bytes(self) -> int:
        """The wire bytes below which no method gets."""
        return lower_bound(self.whole or self.schedule)

    def price(self, objective: Objective) -> int:
        """What plans are compared by: of all steps, whichever came first, less what the compiler hides of them."""
        steps = self.schedule.steps
        every = sum(objective.price(picoseconds(step.cost.time_s), step.cost.wire_bytes) for step in steps)
        return every - objective.price(picoseconds(self.cost.prefetched_s), 0, steps=0)

    def measure(self, objective: Objective) -> int:
        """What the objective counts. Time in whole picoseconds: sums of floats differ in their last bits by order."""
        return picoseconds(self.cost.time_s) if objective is Objective.TIME else self.cost.wire_bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """No plan that was found keeps a memory limit; `smallest` is the smallest peak of those that were met, in bytes."""

    smallest: int


Within: TypeAlias = Callable[[int | None], PlannedProgram | Refused]  # a plan under a limit of memory, if any


def gaps_of(planned: PlannedStatement | PlannedLoop) -> Iterator[Gap]:
    """Of each statement whose plan may not be the cheapest."""
    if isinstance(planned, PlannedLoop):
        yield from (gap for each in planned.statements for gap in gaps_of(each))
    elif planned.gap is not None:
        yield planned.gap


def ranking(objective: Objective) -> Callable[[Strategy], tuple[float, float]]:
    """What strategies are ordered by."""
    return _by_time if objective is Objective.TIME else _by_bytes


def _by_time(strategy: Strategy) -> tuple[float, float]:
    return strategy.time_s, strategy.wire_bytes


def _by_bytes(strategy: Strategy) -> tuple[float, float]:
    return strategy.wire_bytes, strategy.time_s


def shares(statement: Statement) -> bool:
    """Whether a statement uses an array more than once."""
    names = [use.name for use in uses(statement.expr)]
    return len(set(names)) < len(names)


def shown_cases(cases: dict[str, int], statement: Statement, program: Program) -> dict[str, int]:
    """The cases of the axes that the statement writes; of all axes if it writes none."""
    if not cases:
        return {}
    axes = program.mesh.ordered(axes_in(patterns_of((statement,)))) or program.mesh.names
    return {axis: cases.get(axis, 1) for axis in axes}
