"""A plan as it is on a finer mesh: each axis spelled by the parts that it is cut into.

A gather over all of a large slice is done in rounds, since at once the compiler makes it a sum of blocks among zeros,
in twice the bytes. A round is over axes, or over a part of one; of the latter JAX's types do not say that what it
leaves is equal, which an output has to be. So the one axis of such a mesh is cut as the rounds are:

    A[I] = AllGather_X A[I_X]       AllGather_{X0,X1} A[I_{X0,X1}], X=64 as 16·4: over X1, then over X0
"""

from __future__ import annotations

from dataclasses import replace

from shardc.cost.model import CostModel
from shardc.cost.sums import cost_of
from shardc.ir.finer import OnFiner
from shardc.ir.plan import Schedule
from shardc.ir.refine import Refinement, refined, refinement
from shardc.planner.planned import PlannedLoop, PlannedProgram, PlannedStatement, settled


def on_finer(planned: PlannedProgram, whole: Schedule, on: OnFiner, by: Refinement, model: CostModel) -> PlannedProgram:
    """The plan on the fine mesh of `by`, whose model this is; `whole` is one on the mesh as given, and `on` leads from
    the plan's own mesh to the fine one."""
    inputs, outputs = ([whole.values[n].sharding for n in ends] for ends in (whole.inputs, whole.outputs))
    program, block = refined(whole.program, by, inputs, outputs), on.block(planned.schedule.block)
    schedule = settled(replace(planned.schedule, program=program, block=block, by=by), model)
    notes = dict.fromkeys((*(note for note in planned.notes if note != str(planned.schedule.by)), str(by)))
    return replace(
        planned,
        schedule=schedule,
        statements=tuple(_told(each, on) for each in planned.statements),
        cost=cost_of(schedule, model),
        notes=tuple(notes),
        whole=whole,
    )


def in_rounds(planned: PlannedProgram, model: CostModel) -> PlannedProgram:
    """The plan, on a mesh of two axes where one is gathered over that is all of a large slice, and what that leaves has
    to be equal. Programs that take or give partial sums are left on their mesh."""
    schedule = planned.schedule
    ends = (schedule.values[value].sharding for value in (*schedule.inputs, *schedule.outputs))
    axes = schedule.mesh.nontrivial(schedule.mesh.names)
    if schedule.by is not None or len(axes) != 1 or any(sharding.unreduced for sharding in ends):
        return planned
    from shardc.lowering.lower import lower  # few meshes are one axis of so many devices

    cut = next(lower(schedule).unwritten, None)
    if cut is None:
        return planned
    by = refinement(schedule.mesh, {axes[0]: cut}, [dim for dim, _ in schedule.program.sizes])
    finer = model.refined(by)
    return planned if finer is None else on_finer(planned, schedule, OnFiner(by), by, finer)


def _told(planned: PlannedStatement | PlannedLoop, on: OnFiner) -> PlannedStatement | PlannedLoop:
    if isinstance(planned, PlannedLoop):
        return PlannedLoop(planned.text, tuple(_told(each, on) for each in planned.statements))
    return planned.told_by(on.strategy)
