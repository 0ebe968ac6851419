"""Moves of one array beside other statements, each as it is planned alone, on a mesh that is finer than all of these
need.

    A[I_YX] → A[I_W]; C[J] = relu(D[J])        alone: exchange A[I_{W,Y1,X1}], gather A[I_W], with X = 2·5, Y = 3·5

What else there is stays as it is, each of its axes spelled by the parts that the moves cut it into (`ir.finer`). Where
two cut an axis in ways that no mesh has both, 6 = 2·3 and 6 = 3·2, one is planned anew, cut as the other needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

from shardc.cost.copied import copy_cost
from shardc.cost.model import CostModel
from shardc.ir.collectives import Move
from shardc.ir.digits import Reshape
from shardc.ir.expressions import Pattern, Use
from shardc.ir.finer import OnFiner, further, in_common
from shardc.ir.plan import Block, Loop, Schedule, Step, StepCost, every_block, every_step
from shardc.ir.program import Input, Program, Statement
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Array, Sharding, spell
from shardc.lowering.copies import copies_to_reshape
from shardc.lowering.flow import untyped_along
from shardc.planner.options import Objective
from shardc.planner.planned import PlannedProgram
from shardc.planner.program.directly import chains, parts
from shardc.planner.program.respelled import on_finer
from shardc.planner.program.runs import Instead, Run, counted, ends, move_cost, with_runs

# Plans a program of one array that moves, on meshes of which one is known that is finer than both, this one and they.
Alone: TypeAlias = Callable[[Program, Refinement | None], PlannedProgram]


@dataclass(frozen=True, slots=True)
class _Moved:
    """Steps that move an array, from where it lies by whole axes to where."""

    steps: tuple[Step, ...]
    times: int
    before: Array
    after: Sharding


@dataclass(frozen=True, slots=True)
class _Found:
    """What moves, the steps that do the same alone, on which mesh, and what they save."""

    moved: _Moved
    block: Block
    by: Refinement
    saved: int


@dataclass(frozen=True, slots=True)
class _OnMesh:
    """A mesh, what is done on it, and what had to be planned anew for it, or stays as it is."""

    by: Refinement
    kept: tuple[_Found, ...] = ()
    left: tuple[_Found, ...] = ()

    @property
    def saved(self) -> int:
        return sum(each.saved for each in self.kept)


@dataclass(frozen=True, slots=True)
class Reshards:
    """Of a plan on the mesh as given, what moves beside other statements."""

    whole: Schedule
    model: CostModel  # of that mesh
    objective: Objective
    alone: Alone
    _known: dict[object, PlannedProgram] = field(default_factory=dict, init=False, repr=False)

    def apart(self, planned: PlannedProgram) -> PlannedProgram | None:
        """The plan, on any mesh, with the moves of each array as they are planned alone; None if that saves nothing."""
        here = planned.schedule.by or Refinement(planned.schedule.mesh, ())
        found = [self._planned(moved, None) for moved in self._moved(planned.schedule, here)]
        in_order = sorted(filter(None, found), key=lambda each: each.saved, reverse=True)
        first = self._together(in_order, planned, here)
        orders = ([each, *(other for other in in_order if other is not each)] for each in first.left)
        ways = [first, *(self._together(each, planned, here) for each in orders)]
        best = max(ways, key=lambda way: way.saved)
        return self._with(best, planned, here) if best.kept else None

    def _together(self, found: Sequence[_Found], planned: PlannedProgram, here: Refinement) -> _OnMesh:
        """One after another, each as it is alone if there is a mesh for it and those before."""
        blocks = (block for _, block in every_block(planned.schedule.block))
        taken = {*self.whole.program.dims, *(dim for block in blocks for array in block.values for dim in array.dims)}
        way = _OnMesh(here)
        for each in found:
            made, finer = each, self._in_common(way.by, each, taken)
            if finer is None:
                way = replace(way, left=(*way.left, each))
                again = self._planned(each.moved, way.by)
                made, finer = again or each, None if again is None else self._in_common(way.by, again, taken)
            if finer is not None:
                way = replace(way, by=finer, kept=(*way.kept, made))
        return way

    def _in_common(self, by: Refinement, found: _Found, taken: Set[str]) -> Refinement | None:
        finer = in_common(by, found.by, taken)
        return None if finer is None or self.model.refined(finer) is None else finer

    def _moved(self, schedule: Schedule, here: Refinement) -> Iterator[_Moved]:
        """Of each run of moves the part that may save most."""
        model = self._on(here)
        for chain in chains(schedule):
            for part in sorted(parts(chain, schedule, model, self.objective), key=lambda part: -part.at_best):
                before, after = here.whole(part.before.sharding), here.whole(part.after.sharding)
                if before is not None and after is not None:
                    yield _Moved(part.steps, chain.times, replace(part.before, sharding=before), after)
                    break

    def _planned(self, moved: _Moved, beside: Refinement | None) -> _Found | None:
        """Alone; None where it is not clearly cheaper so, or no type says where what it leaves is equal, as a loop asks
        for."""
        key = replace(moved.before, name=""), moved.after, beside
        if key not in self._known:
            self._known[key] = self.alone(self._reshard(moved), beside)
        schedule = self._known[key].schedule
        both = moved.steps, schedule.steps
        spent, costs = (counted(self.objective, (step.cost for step in steps)) for steps in both)
        loops = any(isinstance(step.op, Loop) for step in self.whole.steps)
        untyped = loops and untyped_along(schedule.block)[schedule.outputs[0]]
        if untyped or costs >= self.objective.clearly_less(spent):
            return None
        return _Found(
            moved, schedule.block, schedule.by or Refinement(schedule.mesh, ()), moved.times * (spent - costs)
        )

    def _on(self, by: Refinement) -> CostModel:
        model = self.model.refined(by) if by.parts else self.model
        assert model is not None, "the plan is priced by it"
        return model

    def _reshard(self, moved: _Moved) -> Program:
        """The one array that moves, among the dims of all, whose names its digits do not take."""
        name, dims, dtype = moved.before.name, moved.before.dims, moved.before.dtype
        before, after = Pattern.exactly(moved.before.sharding), Pattern.exactly(moved.after)
        text = f"{name}{spell(dims, moved.before.sharding)} → {name}{spell(dims, moved.after)}"
        statement = Statement(name, dims, after, Use(name, dims, before, dtype), dtype, text)
        inputs = (Input(name, dims, before, dtype),)
        return replace(self.whole.program, inputs=inputs, statements=(statement,), returns=None, warn=tuple, spans=())

    def _with(self, way: _OnMesh, planned: PlannedProgram, here: Refinement) -> PlannedProgram:
        """The plan on the finer mesh, with these in place of what moves."""
        by, model = way.by, self._on(way.by)
        after = planned if by == here else on_finer(planned, self.whole, OnFiner(further(here, by)), by, model)
        there = {
            id(done.step): other
            for done, other in zip(every_step(planned.schedule.block), every_step(after.schedule.block), strict=True)
        }
        runs = list[Run]()
        for each in way.kept:
            made = OnFiner(further(each.by, by)).block(each.block)
            moved = [there[id(step)] for step in each.moved.steps]
            block = moved[0].block
            steps = tuple(done.step for done in moved)
            is_output = block is after.schedule.block and ends(steps, block)
            runs.append(_run(steps, made, block, is_output, model))
        return with_runs(runs, after, self.objective, model)


def _run(steps: tuple[Step, ...], alone: Block, block: Block, is_output: bool, model: CostModel) -> Run:
    """Steps of a block, and the others in their place; `is_output`: these lead to one of the program's."""
    rule = next(step.rule for step in reversed(steps) if step.is_collective)
    first, last = block.values[steps[0].operands[0]], block.values[steps[-1].result]
    found = list[Instead]()
    for step in alone.steps:
        before = replace(alone.values[step.operands[0]], name=first.name)
        after = replace(alone.values[step.result], name=last.name)
        is_last = step is alone.steps[-1]
        if isinstance(step.op, Reshape):
            found.append(Instead(step.op, after, _reshape_cost(step.op, before, after, model), step.rule))
        else:
            move = cast(Move, step.op)
            cost = move_cost(move, before, is_last and is_output, model, replace(before, dims=first.dims))
            found.append(Instead(move, after, cost, replace(rule, rounds=step.rule.rounds)))
    return Run(steps, tuple(found))


def _reshape_cost(op: Reshape, before: Array, after: Array, model: CostModel) -> StepCost:
    """Of dims seen as digits, or as dims again, where that copies."""
    copies = copies_to_reshape(before, after, model.mesh)
    return copy_cost(after if op.joins else before, model) if copies else StepCost()
