"""Moves one after another as one exchange in pieces of unequal sizes, where that is cheaper.

    A[I_X, J_Y] → A[I, J_Y] → A[I_Y, J] → A[I_Y, J_X]      A[I_X, J_Y] → A[I_Y, J_X], X=2, Y=3

Such an exchange leads from any sharding to any other and brings what the busiest device needs and does not hold. A
search would have to price one between every two shardings; of a plan only the few between its moves are to be looked
at, and those alone that bring more, or take longer. What the objective counts has to become less: plans that are as
cheap without stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardc.cost.model import CostModel, picoseconds
from shardc.cost.sums import cost_of
from shardc.ir.collectives import UnevenExchange, uneven_exchange, wire_bytes
from shardc.ir.digits import Reshape
from shardc.ir.plan import Loop, Schedule, Step, StepCost, Strategy
from shardc.lowering.flow import untyped_by
from shardc.planner.bounds.bound import reshard_bound
from shardc.planner.objective import Objective
from shardc.planner.program.at_once import PlannedProgram
from shardc.planner.statement.build import NAMED
from shardc.planner.statement.gaps import Gap
from shardc.planner.statement.planned import PlannedStatement


@dataclass(frozen=True, slots=True)
class _Run:
    """Steps one after another, each of what the one before left, that are to be one move."""

    steps: tuple[Step, ...]
    move: UnevenExchange
    cost: StepCost
    saved: int  # what the objective counts


def directly(planned: PlannedProgram, model: CostModel, objective: Objective) -> PlannedProgram | None:
    """The plan with runs of moves as one each; None where none is cheaper so."""
    schedule = planned.schedule
    runs = [run for chain in _chains(schedule) if (run := _best(chain, schedule, model, objective)) is not None]
    if not runs:
        return None
    changed = _replaced(schedule, runs)
    statements = tuple(
        _led_by(changed, each, number, objective) if any(run.steps[0].statement == number for run in runs) else each
        for number, each in enumerate(planned.statements)
    )
    notes = tuple(note for note in planned.notes if note not in {str(each.gap) for each in planned.statements})
    notes += tuple(str(each.gap) for each in statements if each.gap is not None)
    return replace(planned, schedule=changed, statements=statements, cost=cost_of(changed), notes=notes)


def _chains(schedule: Schedule) -> Iterator[tuple[Step, ...]]:
    """The longest runs of moves of one array of which nothing on the way is used elsewhere."""
    uses = [operand for step in schedule.steps for operand in step.operands] + list(schedule.outputs)
    by_operand = {step.operands[0]: step for step in schedule.steps if _may_go(step)}
    inner = {step.result for step in by_operand.values() if uses.count(step.result) == 1 and step.result in by_operand}
    for step in schedule.steps:
        if _may_go(step) and step.operands[0] not in inner:
            chain = [step]
            while chain[-1].result in inner:
                chain.append(by_operand[chain[-1].result])
            yield tuple(chain)


def _may_go(step: Step) -> bool:
    """Whether a step is a move, or of digits, that nobody named, of an array under its own dims."""
    return (step.is_collective or isinstance(step.op, Reshape)) and step.rule != NAMED and not step.seen


def _best(chain: Sequence[Step], schedule: Schedule, model: CostModel, objective: Objective) -> _Run | None:
    """The part of a chain that saves most as one move."""
    parts = (chain[start:end] for start in range(len(chain)) for end in range(start + 1, len(chain) + 1))
    found = [run for part in parts if (run := _run(part, schedule, model, objective)) is not None]
    return max(found, key=lambda run: run.saved, default=None)


def _run(part: Sequence[Step], schedule: Schedule, model: CostModel, objective: Objective) -> _Run | None:
    """These steps as one move, if that is possible and cheaper."""
    before, after = schedule.values[part[0].operands[0]], schedule.values[part[-1].result]
    if before.dims != after.dims or before.sharding.unreduced or after.sharding.unreduced:
        return None
    if not {*before.dims} <= {*schedule.program.dims}:
        return None  # digits of dims: the moves around them lead from dims to dims
    size, wire = before.local_bytes(schedule.mesh), sum(step.cost.wire_bytes for step in part)
    if objective is Objective.BYTES and wire <= reshard_bound(before, after.sharding, schedule.mesh):
        return None
    move = uneven_exchange(before.sharding, after.sharding.dims, schedule.mesh)
    if move is None or (
        untyped_by(move, before.sharding) and any(isinstance(step.op, Loop) for step in schedule.steps)
    ):
        return None  # what a loop takes has to say where it is equal
    cost = StepCost(
        wire_bytes(move, before.sharding, schedule.mesh, size),
        0,
        model.rate(move).seconds(size),
        model.formula(move, before),
    )
    spent = _counted(objective, (step.cost for step in part))
    saved = spent - _counted(objective, [cost])
    least = spent - objective.clearly_less(spent)
    return _Run(tuple(part), move, cost, saved) if saved > least else None


def _counted(objective: Objective, costs: Iterator[StepCost] | Sequence[StepCost]) -> int:
    """What the objective counts of some steps."""
    return sum(picoseconds(cost.time_s) if objective is Objective.TIME else cost.wire_bytes for cost in costs)


def _replaced(schedule: Schedule, runs: Sequence[_Run]) -> Schedule:
    """Each run one step, in place of its last; values on the way are no more."""
    ends = {id(run.steps[-1]): run for run in runs}
    gone = {id(step) for run in runs for step in run.steps[:-1]}
    steps = [_as_one(ends[id(step)]) if id(step) in ends else step for step in schedule.steps if id(step) not in gone]
    kept = sorted({*schedule.inputs, *(number for step in steps for number in (*step.operands, *step.results))})
    new = {number: place for place, number in enumerate(kept)}
    block = replace(
        schedule.block,
        values=tuple(schedule.values[number] for number in kept),
        inputs=tuple(new[number] for number in schedule.inputs),
        outputs=tuple(new[number] for number in schedule.outputs),
        steps=tuple(
            replace(
                step,
                operands=tuple(new[number] for number in step.operands),
                results=tuple(new[number] for number in step.results),
            )
            for step in steps
        ),
    )
    return replace(schedule, block=block)


def _as_one(run: _Run) -> Step:
    rule = run.steps[-1].rule.partition(",")[0]
    rounds = f"{len(run.move.rounds)} round" + ("s" if len(run.move.rounds) > 1 else "")
    return replace(run.steps[-1], op=run.move, operands=run.steps[0].operands, cost=run.cost, rule=f"{rule}, {rounds}")


def _led_by(schedule: Schedule, planned: PlannedStatement, number: int, objective: Objective) -> PlannedStatement:
    """A statement with what it has become as the first of its strategies."""
    steps = tuple(step for step in schedule.steps if step.statement == number)
    own = Strategy(
        schedule.values, steps, sum(step.cost.wire_bytes for step in steps), sum(step.cost.time_s for step in steps)
    )
    gap = planned.gap
    if gap is not None:
        price = _counted(objective, [step.cost for step in steps])
        gap = Gap(gap.name, price, min(price, gap.bound))
    return planned.led_by(own, gap)
