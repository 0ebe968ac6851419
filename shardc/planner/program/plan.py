"""A program's plan: the best over the axes written, over idle ones, on finer meshes, within a memory limit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from shardc.cost.model import CostModel
from shardc.cost.sums import cost_of
from shardc.errors import ShardcError
from shardc.ir.plan import Schedule
from shardc.ir.program import Program, check_divisible
from shardc.planner.bounds.held import least_held
from shardc.planner.budget import Meter
from shardc.planner.idle import Idle, axes_to_search
from shardc.planner.options import CHEAPEST, Objective, Options
from shardc.planner.planned import (
    PlannedProgram,
    Planning,
    Refused,
    budget_of,
    computed,
    gaps_of,
)
from shardc.planner.problem import Problem, Scratch
from shardc.planner.program import pareto as fronts
from shardc.planner.program.as_given import AsGiven
from shardc.planner.program.finer import Finer
from shardc.planner.program.loops import add_all
from shardc.planner.program.others import strategies
from shardc.planner.program.progress import PartialPlan
from shardc.planner.statement.orders import order_notes

SMALL = 4  # products and functions of a program that is planned in several ways


def planned_at_once(
    program: Program,
    model: CostModel,
    objective: Objective,
    options: Options = CHEAPEST,
    meter: Meter | None = None,
) -> PlannedProgram:
    """The cheapest plan that the options allow.

    SHC220 where there is none. Idle axes are moved by bytes, if nothing else is asked for: what stands along them is
    a copy of the same computation, which takes no time. Raises Spent where the budget ends first, unless `must_plan`.
    """
    check_divisible(program)
    pool, notes = axes_to_search(program, objective is Objective.BYTES if options.idle is None else options.idle)
    scratch = Scratch(budget_of(program).meter() if meter is None else meter)
    start = PartialPlan(Problem(program, model, objective, pool, options, scratch=scratch))
    state, statements = add_all(start, program.statements)
    schedule = state.schedule()
    check_bytes(schedule)
    notes += tuple(str(gap) for statement in statements for gap in gaps_of(statement))
    notes += order_notes(program)
    return PlannedProgram(schedule, statements, cost_of(schedule), notes, peaks=state.peaks)


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


def plan_program(
    program: Program,
    model: CostModel,
    objective: Objective = Objective.TIME,
    memory: int | None = None,
    idle: Idle = Idle.USE,
) -> PlannedProgram:
    """The cheaper of each statement's plan in turn and of all together, within `memory` bytes per device if given.

    Where the budget ends first, the best that is found, with its gap.
    SHC220 if moves cannot reach a sharding asked for, SHC410 if no plan that is found keeps the limit.
    """
    found = AsGiven.of(program, model, Planning(objective, idle, planned_at_once)).within(memory)
    if isinstance(found, Refused):
        assert memory is not None, "nothing is refused without a limit"
        raise too_large(program, memory, found)
    return found


def plan_with_subaxes(
    program: Program,
    model: CostModel,
    objective: Objective = Objective.TIME,
    memory: int | None = None,
    idle: Idle = Idle.USE,
) -> PlannedProgram:
    """As `plan_program`; on a mesh with axes cut where that is cheaper by the objective, or alone keeps the limit.

    By bytes it must save some, by time a hundredth, since the program is longer. Programs that take or give partial
    sums are left on their mesh.
    """
    return _OnAnyMesh.of(program, model, Planning(objective, idle, planned_at_once)).within(memory)


def otherwise(found: PlannedProgram, model: CostModel, idle: Idle) -> Iterator[PlannedProgram]:
    """Other plans of a program, which may be the better ones with products done as one with collectives: strategies of
    its plan; of a small one the plan on the mesh as given, with its strategies, and the plan by bytes there."""
    program = (found.whole or found.schedule).program
    yield from strategies(found)
    if not 0 < computed(program) <= SMALL:
        return
    if found.schedule.by is not None:
        whole = plan_program(program, model, idle=idle)
        yield from (whole, *strategies(whole))
    yield plan_program(program, model, Objective.BYTES, idle=idle)


def pareto(
    program: Program,
    model: CostModel,
    objective: Objective = Objective.TIME,
    memory: int | None = None,
    most: int = fronts.MAX_POINTS,
    idle: Idle = Idle.USE,
) -> fronts.Front:
    """Time against memory: what `plan_with_subaxes` finds under every limit up to `memory`."""
    planned = _OnAnyMesh.of(program, model, Planning(objective, idle, planned_at_once))
    return fronts.front(planned.within, objective, memory, most)


@dataclass(frozen=True)  # without slots: the first leaner plan is kept
class _OnAnyMesh:
    """Plans of a program on its mesh, or on a finer one, under any limit; those without a limit are made once."""

    as_given: AsGiven
    free: PlannedProgram  # on any mesh, without a limit

    @classmethod
    def of(cls, program: Program, model: CostModel, planning: Planning) -> _OnAnyMesh:
        as_given = AsGiven.of(program, model, planning)
        free = Finer(as_given.best, model, planning, None).best(None, as_given.budget)
        assert isinstance(free, PlannedProgram), "nothing is refused without a limit"
        return cls(as_given, free)

    def within(self, memory: int | None) -> PlannedProgram:
        """The plan under a limit: the one without, if that keeps it. SHC410 if no plan that is found does."""
        if memory is None or self.free.cost.peak_bytes <= memory:
            return self.free
        here = self.as_given
        leanest = None if memory >= least_held(here.program) else here.leanest
        found = self._limited(memory) if leanest is None else Refused(leanest.cost.peak_bytes)
        if isinstance(found, Refused):
            found = self._leanest(memory, found)
        found = self._or_leaner(memory, found)
        if isinstance(found, Refused):
            raise too_large(self.as_given.program, memory, found)
        return found

    def _or_leaner(self, memory: int, found: PlannedProgram | Refused) -> PlannedProgram | Refused:
        """The first leaner plan instead, where that keeps the limit too and is cheaper."""
        leaner, objective = self._leaner, self.as_given.planning.objective
        if isinstance(leaner, Refused):
            return found
        keeps = leaner.cost.peak_bytes <= memory
        if isinstance(found, Refused):
            return leaner if keeps else Refused(min(found.smallest, leaner.cost.peak_bytes))
        return leaner if keeps and leaner.measure(objective) < found.measure(objective) else found

    @cached_property
    def _leaner(self) -> PlannedProgram | Refused:
        """What is planned under the first limit that the free plan does not keep. It may keep much smaller ones, where
        what is looked for under those is dearer."""
        return self._limited(self.free.cost.peak_bytes - 1)

    def _limited(self, memory: int) -> PlannedProgram | Refused:
        here, found = self.as_given, self.as_given.within(memory)
        refused = found if isinstance(found, Refused) else None
        whole = here.best if isinstance(found, Refused) else found
        return Finer(whole, here.model, here.planning, memory).best(refused, here.budget)

    def _leanest(self, memory: int, refused: Refused) -> PlannedProgram | Refused:
        """What a refusal names is planned: done at once, the moves of that plan may need less, and keep the limit."""
        found = self._limited(refused.smallest)
        if isinstance(found, Refused):
            return Refused(min(found.smallest, refused.smallest))
        return found if found.cost.peak_bytes <= memory else Refused(min(found.cost.peak_bytes, refused.smallest))


def too_large(program: Program, memory: int, refused: Refused) -> ShardcError:
    held = least_held(program)
    return ShardcError(
        "SHC410",
        f"no plan found keeps {memory} bytes per device; the smallest peak found is {refused.smallest}",
        span=program.statements[0].span if len(program.statements) == 1 else None,
        note=f"its inputs and outputs alone are {held} bytes on each device" if memory < held else "",
        help=f"--memory {refused.smallest}, or shard the arrays over more axes",
    )
