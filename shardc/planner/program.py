"""A program's plan: its statements one after another, each the cheapest given what the ones before left."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from shardc.cost.memory import peak_bytes
from shardc.cost.model import CostModel, picoseconds
from shardc.errors import ShardcError
from shardc.ir.digits import Reshape
from shardc.ir.plan import Cost, Schedule, Step
from shardc.ir.program import Program, check_divisible
from shardc.planner.bounds import lower_bound
from shardc.planner.budget import Budget, Spent
from shardc.planner.idle import only_moves
from shardc.planner.limits import axes_to_search, check_bytes
from shardc.planner.nodes import Planner
from shardc.planner.objective import Objective
from shardc.planner.orders import order_notes
from shardc.planner.progress import Progress
from shardc.planner.statement import PlannedStatement


@dataclass(frozen=True)
class PlannedProgram:
    """The steps, their cost, and what each statement could do instead."""

    schedule: Schedule
    statements: tuple[PlannedStatement, ...]
    cost: Cost
    notes: tuple[str, ...] = ()
    whole: Schedule | None = None  # of a plan on a finer mesh, the one on the mesh as given

    @cached_property
    def bound_bytes(self) -> int:
        """The wire bytes below which no method gets."""
        return lower_bound(self.whole or self.schedule)


def plan_program(
    program: Program,
    model: CostModel,
    objective: Objective = Objective.TIME,
    memory: int | None = None,
    budget: Budget | None = None,
) -> PlannedProgram:
    """The cheapest plan of each statement in turn, within `memory` bytes per device if that is given.

    Where the budget ends first, the best that is found, with its gap.
    SHC220 if moves cannot reach a sharding asked for, SHC410 if no strategy of a statement keeps the limit.
    """
    budget = Budget.of(len(program.statements)) if budget is None else budget
    free = planned_at_once(program, model, objective, budget=budget)
    wide = _over_idle_axes(program, model, free, budget) if objective is Objective.TIME else None
    found = [free] if wide is None else [wide, free]
    for planned in found:
        if memory is None or planned.cost.peak_bytes <= memory:
            return planned
    assert memory is not None
    least = min(planned.cost.peak_bytes for planned in found)
    return _within(program, model, objective, memory, free, least, budget)


def _over_idle_axes(program: Program, model: CostModel, plain: PlannedProgram, budget: Budget) -> PlannedProgram | None:
    """Of arrays that only move, a plan that also moves axes written nowhere, if it takes clearly less time, and no
    more bytes.

    `A[I_X, J] → A[I_Y, J]` on X=4, Y=4, Z=4: sliced over Z, 1/16 of A is permuted instead of 1/4, and gathered over the
    links of X and Z. But `A[I_X, J] → A[I, J]` stays one AllGather over X: over Y and Z as well it takes a third of
    the time, and brings more.
    """
    axes, wire = axes_to_search(program, with_idle=True)[0], plain.cost.wire_bytes
    if not wire or not only_moves(program) or axes == axes_to_search(program, with_idle=False)[0]:
        return None
    time = Objective.TIME
    limit = time.clearly_less(picoseconds(plain.cost.time_s))
    alone = limit if len(program.statements) == 1 else None
    try:
        wide = planned_at_once(
            program, model, time, limit=alone, with_idle=True, most_wire=wire, budget=budget, hurried=False
        )
    except (ShardcError, Spent):  # nothing faster with no more bytes, or too wide to search
        return None
    return wide if picoseconds(wide.cost.time_s) < limit and wide.cost.wire_bytes <= wire else None


def _within(
    program: Program,
    model: CostModel,
    objective: Objective,
    memory: int,
    free: PlannedProgram,
    least: int,
    budget: Budget,
) -> PlannedProgram:
    """A plan that keeps the limit: among the strategies, then again without the largest steps.

    `least` is the smallest peak that is known.
    """
    cap, refusal = None, None
    while True:
        largest = _largest_on_the_way(free)
        if not largest or (cap is not None and largest > cap):
            break
        try:
            found = planned_at_once(program, model, objective, memory=memory, cap=cap, budget=budget)
            if found.cost.peak_bytes <= memory:
                return found
            least = min(least, found.cost.peak_bytes)
        except ShardcError as error:
            refusal = error
            if error.code == "SHC410":
                least = min(least, int(error.note))
        try:
            cap = largest - 1
            free = planned_at_once(program, model, objective, cap=cap, budget=budget, hurried=False)
        except (ShardcError, Spent):
            break
        least = min(least, free.cost.peak_bytes)
        if free.cost.peak_bytes <= memory:
            return free
    raise ShardcError(
        "SHC410",
        f"no plan found keeps {memory} bytes per device; the smallest peak found is {least}",
        span=refusal.span if refusal is not None else None,
        help=f"--memory {least}, or shard the arrays over more axes",
    )


def _largest_on_the_way(planned: PlannedProgram) -> int:
    """The bytes per device of the largest step: what it leaves and, of a move, what it moves if that is not given."""
    schedule = planned.schedule
    sizes = [array.local_bytes(schedule.mesh) for array in schedule.values]
    found = [
        sizes[step.result] + sum(sizes[n] for n in step.operands if _moves(step) and n not in schedule.inputs)
        for step in schedule.steps
    ]
    return max(found, default=0)


def _moves(step: Step) -> bool:
    """Whether a step is part of a reshard: the search then knows what it holds meanwhile."""
    return step.is_collective or isinstance(step.op, Reshape)


def planned_at_once(
    program: Program,
    model: CostModel,
    objective: Objective,
    *,
    memory: int | None = None,
    cap: int | None = None,
    limit: int | None = None,
    with_idle: bool | None = None,
    most_wire: int | None = None,
    budget: Budget | None = None,
    hurried: bool = True,
    quick: bool = False,
    deep: bool = False,
) -> PlannedProgram:
    """The plan within `memory` among the strategies, no step larger than `cap`.

    Of one product or reshard, SHC220 where none costs less than `limit`, in picoseconds or bytes. No array's moves
    bring more than `most_wire` bytes. Idle axes are moved by bytes, if nothing else is asked for: what stands along
    them is a copy of the same computation, which takes no time. Raises Spent where the budget ends first, unless a
    hurried plan will do.
    """
    check_divisible(program)
    pool, notes = axes_to_search(program, objective is Objective.BYTES if with_idle is None else with_idle)
    most = None if limit is None else objective.below(limit)
    budget = Budget.of(len(program.statements)) if budget is None else budget
    planner = Planner(
        program, model, objective, pool, cap=cap, limit=most, most_wire=most_wire, budget=budget, quick=quick, deep=deep
    )
    state = Progress(planner, memory, hurried=hurried)
    statements = tuple(state.add(number, statement) for number, statement in enumerate(program.statements))
    schedule = Schedule(program, tuple(state.values), state.inputs(), state.outputs(), state.needed_steps())
    check_bytes(schedule)
    notes += tuple(str(statement.gap) for statement in statements if statement.gap is not None)
    return PlannedProgram(schedule, statements, cost_of(schedule), notes + order_notes(program))


def cost_of(schedule: Schedule) -> Cost:
    """The sums over the steps, without overlap."""
    steps = schedule.steps
    compute = sum(step.cost.time_s for step in steps if not step.is_collective)
    communication = sum(step.cost.time_s for step in steps if step.is_collective)
    return Cost(
        sum(step.cost.wire_bytes for step in steps),
        sum(step.cost.flops for step in steps),
        compute,
        communication,
        compute + communication,
        peak_bytes(schedule.values, schedule.inputs, schedule.outputs, steps, schedule.mesh),
    )
