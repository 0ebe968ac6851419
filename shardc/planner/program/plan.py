"""A program's plan: its statements one after another, or all of them together where that is cheaper."""

from __future__ import annotations

from collections.abc import Iterator

from shardc.cost.model import CostModel, picoseconds
from shardc.errors import ShardcError
from shardc.ir.digits import Reshape
from shardc.ir.folds import single_steps
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Block, Step
from shardc.ir.program import Program, every_statement
from shardc.lowering.target import Target
from shardc.planner.budget import Budget, Spent
from shardc.planner.meshes.idle import only_moves
from shardc.planner.objective import Objective
from shardc.planner.program.at_once import PlannedProgram, planned_at_once, price_of
from shardc.planner.program.choices import may_gain
from shardc.planner.program.limits import MAX_LEANER, TooLarge, axes_to_search, is_alone


def plan_program(
    program: Program,
    model: CostModel,
    objective: Objective = Objective.TIME,
    memory: int | None = None,
    budget: Budget | None = None,
) -> PlannedProgram:
    """The cheaper of each statement's plan in turn and of all together, within `memory` bytes per device if given.

    Where the budget ends first, the best that is found, with its gap.
    SHC220 if moves cannot reach a sharding asked for, TooLarge (SHC410) if no plan that is found keeps the limit.
    """
    budget = Budget.of(len(list(every_statement(program)))) if budget is None else budget
    free = planned_at_once(program, model, objective, budget=budget)
    wide = _over_idle_axes(program, model, free, budget) if objective is Objective.TIME else None
    found = [free] if wide is None else [wide, free]
    if may_gain(program, objective):
        from shardc.planner.whole.plan import plan_whole  # with NumPy, which nothing else here needs

        whole = plan_whole(program, model, objective)
        found = sorted([*found, *([] if whole is None else [whole])], key=lambda each: price_of(each, objective))
    for planned in found:
        if memory is None or planned.cost.peak_bytes <= memory:
            return planned
    assert memory is not None
    return _within(program, model, objective, memory, free, min(planned.cost.peak_bytes for planned in found))


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
    alone = limit if is_alone(program) else None
    try:
        wide = planned_at_once(
            program, model, time, limit=alone, with_idle=True, most_wire=wire, budget=budget, hurried=False
        )
    except (ShardcError, Spent):  # nothing faster with no more bytes, or too wide to search
        return None
    return wide if picoseconds(wide.cost.time_s) < limit and wide.cost.wire_bytes <= wire else None


def _within(
    program: Program, model: CostModel, objective: Objective, memory: int, free: PlannedProgram, least: int
) -> PlannedProgram:
    """A plan that keeps the limit: among the strategies, then again without the largest steps.

    `least` is the smallest peak that is known. What is tried does not depend on the limit, but where it ends: so a
    larger limit finds a plan as well, and what a refusal names as the smallest is found under it.
    """
    for found in _leaner(program, model, objective, memory, free):
        if found.cost.peak_bytes <= memory:
            return found
        least = min(least, found.cost.peak_bytes)
    raise TooLarge(program, memory, least)


def _leaner(
    program: Program, model: CostModel, objective: Objective, memory: int, free: PlannedProgram
) -> Iterator[PlannedProgram]:
    """What may keep a limit: over the axes of the search, then over all."""
    yield from _smaller_steps(program, model, objective, memory, free)
    pools = [axes_to_search(program, with_idle)[0] for with_idle in (objective is Objective.BYTES, True)]
    if pools[0] != pools[1]:
        try:
            free = planned_at_once(program, model, objective, with_idle=True, hurried=False)
        except (ShardcError, Spent):  # too wide to search
            return
        yield free
        yield from _smaller_steps(program, model, objective, memory, free, with_idle=True)


def _smaller_steps(
    program: Program,
    model: CostModel,
    objective: Objective,
    memory: int,
    free: PlannedProgram,
    with_idle: bool | None = None,
) -> Iterator[PlannedProgram]:
    """Plans that may keep the limit, with steps ever smaller than the largest of the one before."""
    cap = None
    while True:
        yield from keeping(program, model, objective, memory, cap=cap, with_idle=with_idle)
        largest = _largest_on_the_way(free)
        if not largest or (cap is not None and largest > cap):
            return
        try:
            cap = largest - 1
            free = planned_at_once(program, model, objective, cap=cap, with_idle=with_idle, hurried=False)
        except (ShardcError, Spent):
            return
        yield free


def keeping(
    program: Program,
    model: CostModel,
    objective: Objective,
    memory: int,
    *,
    cap: int | None = None,
    limit: int | None = None,
    with_idle: bool | None = None,
) -> Iterator[PlannedProgram]:
    """Plans whose last statement keeps the limit if it can, each leaner before that than the one before.

    What is alive before the last statement bounds the whole where no slice is named; there what is above the limit
    is left out. Nothing where `cap` leaves no plan, or none costs less than `limit`.
    """
    early = None if Target.of(program).names_slice else memory
    for _ in range(MAX_LEANER):
        try:
            found = planned_at_once(
                program, model, objective, memory=memory, early=early, cap=cap, limit=limit, with_idle=with_idle
            )
        except (ShardcError, Spent):
            return
        yield found
        to_lower = [peak for peak in found.peaks if early is None or peak <= early]
        if not to_lower:
            return
        early = max(to_lower) - 1


def _largest_on_the_way(planned: PlannedProgram) -> int:
    """The bytes per device of the largest step: what it leaves and, of a move, what it moves if that is not given."""
    mesh = planned.schedule.mesh
    return max((_size(done.step, done.block, mesh) for done in single_steps(planned.schedule.block)), default=0)


def _size(step: Step, block: Block, mesh: Mesh) -> int:
    held = [n for n in step.operands if _moves(step) and n not in block.inputs]
    return sum(block.values[number].local_bytes(mesh) for number in (step.result, *held))


def _moves(step: Step) -> bool:
    """Whether a step is part of a reshard: the search then knows what it holds meanwhile."""
    return step.is_collective or isinstance(step.op, Reshape)
