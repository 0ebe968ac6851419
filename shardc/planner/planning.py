"""How the plans of one program are made: by what objective, over which axes, and with what for a plan of statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from shardc.cost.model import CostModel
from shardc.errors import ShardcError
from shardc.ir.expressions import Call, Expr, Pattern, Product, operands
from shardc.ir.program import For, Program, every_statement, read_by
from shardc.ir.sharding import Axes
from shardc.planner.budget import Budget, Spent
from shardc.planner.meshes.idle import Idle, axes_to_search, has_idle
from shardc.planner.options import CHEAPEST, Objective, Options
from shardc.planner.planned import PlannedProgram


@dataclass(frozen=True, slots=True)
class Planning:
    """By what objective to plan, over which axes, and what makes one plan: its statements one after another, as
    `program.in_turn`."""

    objective: Objective
    idle: Idle
    make: Callable[[Program, CostModel, Objective, Options, Budget | None], PlannedProgram]

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

    def planned(
        self, program: Program, model: CostModel, options: Options = CHEAPEST, budget: Budget | None = None
    ) -> PlannedProgram:
        """A plan. Where the options leave idle axes open, they move by bytes; never if they are to be kept."""
        with_idle = self.uses_idle_first if options.idle is None else options.idle and self.may_use_idle
        return self.make(program, model, self.objective, replace(options, idle=with_idle), budget)

    def attempt(
        self, program: Program, model: CostModel, options: Options, budget: Budget | None = None
    ) -> PlannedProgram | None:
        """A plan; None where there is none with these options, or its search would be too much."""
        try:
            return self.planned(program, model, options, budget)
        except (ShardcError, Spent):
            return None


FEW = 1  # operation, of which a statement's plan alone is the best
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
