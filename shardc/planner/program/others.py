"""Other plans of a program, which may be the better ones in another form than step by step.

A product beside its collectives takes as long as the longer of the two (`cost.together`): where the plan of the least
time saves bytes by more collectives, one of fewer may take less as a ring.

    A[I, J_X] · B[J_X, K] → C[I, K_X], X=16 on v5e:4x4      five steps on a finer mesh, 1,554 µs as compiled; a product
                                                            and a ReduceScatter, 2,156 step by step, 1,125 as a ring
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shardc.cost.model import CostModel
from shardc.cost.sums import cost_of
from shardc.ir.legal import faults_of
from shardc.ir.plan import Block
from shardc.lowering.tpu import on_chip
from shardc.planner.options import Objective, Overlap
from shardc.planner.planned import PlannedProgram, PlannedStatement, computed, settled

NEAR = 1.01  # of the least price, within which a plan is taken that has fewer collectives
FAR = 1.5  # a strategy of a price so many times the plan's is not looked at


def fastest(
    found: PlannedProgram, model: CostModel, overlap: Overlap, objective: Objective, memory: int | None
) -> PlannedProgram:
    """By time the least, unless some of its steps are done as one; and with steps in chunks of a dim where it takes
    clearly less time so, unless every step is to be done by itself."""
    best = found if found.schedule.together else least(found, model, objective, memory)
    is_asked = overlap is not Overlap.OFF and objective is Objective.TIME and not best.schedule.together
    if not is_asked or not on_chip(model.target):
        return best
    from shardc.planner.program.chunked import faster  # only where some chips gain by it

    return faster(best, model)


def least(found: PlannedProgram, model: CostModel, objective: Objective, memory: int | None) -> PlannedProgram:
    """Of a statement's first strategies that of the least time; of those as fast, that of the fewest collectives.

    A search adds up steps by themselves; what they copy, or wait for, because of one another is priced once they stand
    in order, where it is known.
    """
    if objective is not Objective.TIME or model.alone.measured is None or not computed(found.schedule.program):
        return found
    fits = [each for each in strategies(found, model) if memory is None or each.cost.peak_bytes <= memory]
    limit = NEAR * min(each.cost.time_s for each in (found, *fits))
    near = (each for each in (found, *fits) if each.cost.time_s <= limit)
    return min(near, key=lambda each: (sum(step.is_collective for step in each.schedule.steps), each.cost.time_s))


def strategies(found: PlannedProgram, model: CostModel) -> Iterator[PlannedProgram]:
    """Other ways to do the one statement of a program, the cheapest first."""
    if len(found.statements) != 1 or not isinstance(found.statements[0], PlannedStatement):
        return
    schedule = found.schedule
    on_mesh = model if schedule.by is None else model.refined(schedule.by)
    assert on_mesh is not None, "the plan is priced by it"
    for strategy in found.statements[0].cheapest(4)[1:]:
        if not strategy.steps or strategy.time_s > FAR * found.cost.time_s:
            continue
        block = Block(strategy.values, schedule.inputs, (strategy.steps[-1].result,), strategy.steps)
        other = settled(replace(schedule, block=block), on_mesh)
        if not list(faults_of(other)):
            statement = found.statements[0].led_by(strategy, found.statements[0].gap)
            yield replace(found, schedule=other, cost=cost_of(other, on_mesh), statements=(statement,))


def with_others(whole: PlannedProgram, in_turn: PlannedProgram) -> PlannedProgram:
    """Of a program of one statement, what else it could do: all that is known of the statement alone, on this mesh."""
    if whole.schedule.by != in_turn.schedule.by:  # whose axes, if it cuts any, the plan does not have
        return whole
    match whole.statements, in_turn.statements:
        case (PlannedStatement() as own,), (PlannedStatement() as others,):
            return replace(whole, statements=(others.led_by(own.cheapest(1)[0], own.gap),))
        case _:
            return whole
