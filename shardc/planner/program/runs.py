"""Steps of a plan, one after another, that are done as one move instead, or as others: the plan so, told as before. In
a loop's body they are done so in each trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from shardc.cost.copied import copy_cost
from shardc.cost.formulas import one_after_another
from shardc.cost.model import CostModel
from shardc.cost.rate import picoseconds
from shardc.cost.sums import cost_of, loop_cost
from shardc.cost.sums import move_cost as sent_cost
from shardc.ir.collectives import Move
from shardc.ir.digits import Reshape
from shardc.ir.plan import Block, Loop, Rule, Step, StepCost, Strategy, ValueNumber
from shardc.ir.sharding import Array
from shardc.planner.options import Objective
from shardc.planner.planned import Gap, PlannedLoop, PlannedProgram, PlannedStatement, gaps_of, settled

Planned: TypeAlias = PlannedStatement | PlannedLoop


@dataclass(frozen=True, slots=True)
class Instead:
    """A step that is to be: its operation, what it leaves, its cost, and why it is done."""

    op: Move | Reshape
    after: Array
    cost: StepCost
    rule: Rule


@dataclass(frozen=True, slots=True)
class Run:
    """Steps one after another, each of what the one before left, and those that do the same."""

    steps: tuple[Step, ...]
    instead: tuple[Instead, ...]

    def saved(self, objective: Objective) -> int:
        """What the objective counts."""
        return counted(objective, (step.cost for step in self.steps)) - counted(
            objective, (step.cost for step in self.instead)
        )


def ends(steps: Sequence[Step], block: Block) -> bool:
    """Whether steps lead to an output."""
    return steps[-1].result in block.outputs


def move_cost(move: Move, before: Array, is_output: bool, model: CostModel, named: Array | None = None) -> StepCost:
    """Of a move of an array, which its formula names so, and of what it leaves laid anew as an output."""
    found = sent_cost(move, before, model, named)
    if not is_output or not model.leaves_output_apart(move, len(before.dims)):
        return found
    return one_after_another(found, copy_cost(before, model))


def with_runs(runs: Sequence[Run], planned: PlannedProgram, objective: Objective, model: CostModel) -> PlannedProgram:
    """The plan with the others in place of each run."""
    block, statements = in_block(runs, planned.schedule.block, planned.statements, objective)
    changed = settled(replace(planned.schedule, block=_compact(block)), model)
    gaps = {str(gap) for each in planned.statements for gap in gaps_of(each)}
    notes = tuple(note for note in planned.notes if note not in gaps)
    notes += tuple(str(gap) for each in statements for gap in gaps_of(each))
    return replace(planned, schedule=changed, statements=statements, cost=cost_of(changed, model), notes=notes)


def in_block(
    runs: Sequence[Run], block: Block, planned: Sequence[Planned], objective: Objective
) -> tuple[Block, tuple[Planned, ...]]:
    """A block with the others in place of each run, its own and those of its loops, and its statements, told so; the
    block itself where it has none."""
    block, told = _in_loops(runs, block, planned, objective)
    here = {id(step) for step in block.steps}
    own = [run for run in runs if id(run.steps[0]) in here]
    if not own:
        return block, told
    changed, moved = _replaced(block, own), {step.statement for run in own for step in run.steps}
    statements = (
        _led_by(changed, each, number, objective) if isinstance(each, PlannedStatement) and number in moved else each
        for number, each in enumerate(told)
    )
    return changed, tuple(statements)


def _in_loops(
    runs: Sequence[Run], block: Block, planned: Sequence[Planned], objective: Objective
) -> tuple[Block, tuple[Planned, ...]]:
    steps, told = list(block.steps), list(planned)
    for place, step in enumerate(block.steps):
        loop = planned[step.statement]
        if isinstance(step.op, Loop) and isinstance(loop, PlannedLoop):
            body, inside = in_block(runs, step.op.body, loop.statements, objective)
            if body is not step.op.body:
                op = replace(step.op, body=_compact(body))
                steps[place] = replace(step, op=op, cost=loop_cost(op))
                told[step.statement] = PlannedLoop(loop.text, inside)
    return (block if steps == list(block.steps) else replace(block, steps=tuple(steps))), tuple(told)


def counted(objective: Objective, costs: Iterable[StepCost]) -> int:
    """What the objective counts of some steps."""
    return sum(picoseconds(cost.time_s) if objective is Objective.TIME else cost.wire_bytes for cost in costs)


def _replaced(block: Block, runs: Sequence[Run]) -> Block:
    """The others where the first of each run was: of the statement that leaves what is moved."""
    starts = {id(run.steps[0]): run for run in runs}
    gone = {id(step) for run in runs for step in run.steps}
    values, steps = list(block.values), list[Step]()
    for step in block.steps:
        if id(step) in starts:
            steps += _instead(starts[id(step)], values)
        elif id(step) not in gone:
            steps.append(step)
    return replace(block, values=tuple(values), steps=tuple(steps))


def _instead(run: Run, values: list[Array]) -> Iterator[Step]:
    """The steps in place of a run; what they leave on the way is added to the values."""
    value = run.steps[0].operands
    for place, each in enumerate(run.instead):
        left = run.steps[-1].results
        if place < len(run.instead) - 1:
            left = (ValueNumber(len(values)),)
            values.append(each.after)
        yield replace(run.steps[0], op=each.op, operands=value, results=left, cost=each.cost, rule=each.rule)
        value = left


def _compact(block: Block) -> Block:
    """The same without values that no step has."""
    kept = sorted({*block.inputs, *(number for step in block.steps for number in (*step.operands, *step.results))})
    new = {number: ValueNumber(place) for place, number in enumerate(kept)}
    return Block(
        tuple(block.values[number] for number in kept),
        tuple(new[number] for number in block.inputs),
        tuple(new[number] for number in block.outputs),
        tuple(
            replace(
                step,
                operands=tuple(new[number] for number in step.operands),
                results=tuple(new[number] for number in step.results),
            )
            for step in block.steps
        ),
    )


def _led_by(block: Block, planned: PlannedStatement, number: int, objective: Objective) -> PlannedStatement:
    """A statement with what it has become as the first of its strategies."""
    steps = tuple(step for step in block.steps if step.statement == number)
    own = Strategy(
        block.values, steps, sum(step.cost.wire_bytes for step in steps), sum(step.cost.time_s for step in steps)
    )
    gap = planned.gap
    if gap is not None:
        price = counted(objective, [step.cost for step in steps])
        gap = Gap(gap.name, price, min(price, gap.bound))
    return planned.led_by(own, gap)
