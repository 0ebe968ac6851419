"""Moves one after another as one exchange in pieces of unequal sizes, where that is cheaper.

    A[I_X, J_Y] → A[I, J_Y] → A[I_Y, J] → A[I_Y, J_X]      A[I_X, J_Y] → A[I_Y, J_X], X=2, Y=3

Such an exchange leads from any sharding to any other and brings what the busiest device needs and does not hold. A
search would have to price one between every two shardings; of a plan only the few between its moves are to be looked
at, and those alone that bring more. What the objective counts has to become less: plans that are as cheap without stay
as they are. In a loop's body it is done once for each trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from shardc.cost.bounds import reshard_bound
from shardc.cost.model import CostModel
from shardc.ir.collectives import UnevenExchange, in_one_round, uneven_exchange
from shardc.ir.digits import Reshape
from shardc.ir.plan import Block, Loop, Schedule, Step
from shardc.ir.sharding import Array
from shardc.lowering.flow import untyped_by
from shardc.planner.options import Objective
from shardc.planner.planned import PlannedProgram
from shardc.planner.program.runs import Instead, Run, counted, ends, move_cost, with_runs


@dataclass(frozen=True, slots=True)
class Directly:
    """The plan with runs of moves as one each; None where none is cheaper so. And what the objective counts that
    exchanges would save at most which are too long to be written."""

    planned: PlannedProgram | None
    unwritten: int


def directly(planned: PlannedProgram, model: CostModel, objective: Objective) -> Directly:
    schedule = planned.schedule
    found = [(chain.times, *_best(chain, schedule, model, objective)) for chain in chains(schedule)]
    runs = [run for _, run, _ in found if run is not None]
    return Directly(
        with_runs(runs, planned, objective, model) if runs else None,
        sum(times * unwritten for times, _, unwritten in found),
    )


@dataclass(frozen=True, slots=True)
class Chain:
    """Moves of one array, one after another, in a block that is done so often."""

    steps: tuple[Step, ...]
    block: Block
    times: int


def chains(schedule: Schedule) -> Iterator[Chain]:
    """The longest of which nothing on the way is used elsewhere, of each block."""
    for block, times in _blocks(schedule.block):
        for steps in _in_block(block):
            yield Chain(steps, block, times)


def _blocks(block: Block, times: int = 1) -> Iterator[tuple[Block, int]]:
    """The block and the bodies of its loops, each with how often it is done."""
    yield block, times
    for step in block.steps:
        if isinstance(step.op, Loop) and not step.op.is_of_chunks:
            yield from _blocks(step.op.body, times * step.op.trips)


def _in_block(block: Block) -> Iterator[tuple[Step, ...]]:
    uses = [operand for step in block.steps for operand in step.operands] + list(block.outputs)
    by_operand = {step.operands[0]: step for step in block.steps if _may_go(step)}
    inner = {step.result for step in by_operand.values() if uses.count(step.result) == 1 and step.result in by_operand}
    for step in block.steps:
        if _may_go(step) and step.operands[0] not in inner:
            chain = [step]
            while chain[-1].result in inner:
                chain.append(by_operand[chain[-1].result])
            yield tuple(chain)


def _may_go(step: Step) -> bool:
    """Whether a step is a move, or of digits, that nobody named, of an array under its own dims."""
    return (step.is_collective or isinstance(step.op, Reshape)) and not step.rule.is_named and not step.seen


@dataclass(frozen=True, slots=True)
class Part:
    """Some steps of a chain as one change of a sharding, whether that ends in an output, and what one exchange in one
    round saves each time, which is most."""

    steps: tuple[Step, ...]
    before: Array
    after: Array
    is_output: bool
    at_best: int


def parts(chain: Chain, schedule: Schedule, model: CostModel, objective: Objective) -> Iterator[Part]:
    """The parts of a chain that one move may do, and save what is worth it."""
    values = chain.block.values
    for start, end in combinations(range(len(chain.steps) + 1), 2):
        steps = chain.steps[start:end]
        before, after = values[steps[0].operands[0]], values[steps[-1].result]
        if before.dims != after.dims or before.sharding.unreduced or after.sharding.unreduced:
            continue
        if not {*before.dims} <= {*schedule.program.dims}:
            continue  # digits of dims: the moves around them lead from dims to dims
        if sum(step.cost.wire_bytes for step in steps) <= reshard_bound(before, after.sharding, schedule.mesh):
            continue  # links of one move carry as much: also by time an AllGather is no exchange of pieces
        ideal = in_one_round(before.sharding, after.sharding.dims, schedule.mesh)
        is_output = chain.block is schedule.block and ends(steps, chain.block)
        spent = counted(objective, (step.cost for step in steps))
        at_best = 0 if ideal is None else spent - counted(objective, [move_cost(ideal, before, is_output, model)])
        if at_best > spent - objective.clearly_less(spent):
            yield Part(steps, before, after, is_output, at_best)


def _best(chain: Chain, schedule: Schedule, model: CostModel, objective: Objective) -> tuple[Run | None, int]:
    """The part of a chain that saves most as one move, and what others would save beyond it that are too long to be
    written. Rounds are worked out of those alone that may save more."""
    best, saved, unwritten = None, 0, 0
    for part in sorted(parts(chain, schedule, model, objective), key=lambda part: part.at_best, reverse=True):
        if saved >= part.at_best:
            break
        move = uneven_exchange(part.before.sharding, part.after.sharding.dims, schedule.mesh)
        if move is None:
            unwritten = max(unwritten, part.at_best)
            continue
        found = _run(part, move, schedule, model, objective)
        if found is not None and found.saved(objective) > saved:
            best, saved = found, found.saved(objective)
    return best, max(0, unwritten - saved)


def _run(part: Part, move: UnevenExchange, schedule: Schedule, model: CostModel, objective: Objective) -> Run | None:
    """These steps as one move, if it is cheaper."""
    before = part.before
    if untyped_by(move, before.sharding) and any(isinstance(step.op, Loop) for step in schedule.steps):
        return None  # what a loop takes has to say where it is equal
    rule = replace(part.steps[-1].rule, rounds=len(move.rounds))
    made = Instead(move, part.after, move_cost(move, before, part.is_output, model), rule)
    found = Run(part.steps, (made,))
    spent = counted(objective, (step.cost for step in part.steps))
    return found if found.saved(objective) > spent - objective.clearly_less(spent) else None
