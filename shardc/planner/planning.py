"""How the plans of one program are made: by what objective, over which axes, and with what for a plan of statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from shardc.cost.model import CostModel
from shardc.errors import ShardcError
from shardc.ir.program import Program
from shardc.ir.sharding import Axes
from shardc.planner.budget import Budget, Spent
from shardc.planner.meshes.idle import Idle, axes_to_search, has_idle
from shardc.planner.objective import Objective
from shardc.planner.options import CHEAPEST, Options
from shardc.planner.planned import PlannedProgram


@dataclass(frozen=True, slots=True)
class Planning:
    """By what objective to plan, over which axes, and what makes one plan: its statements one after another, as
    `program.at_once`."""

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
