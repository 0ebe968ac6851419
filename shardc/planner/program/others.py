"""Other plans of a program, which may be the better ones in another form than step by step.

A product beside its collectives takes as long as the longer of the two (`cost.together`): where the plan of the least
time saves bytes by more collectives, one of fewer may take less as a ring.

    A[I, J_X] · B[J_X, K] → C[I, K_X], X=16 on v5e:4x4      five steps on a finer mesh, 1,554 µs as compiled; a product
                                                            and a ReduceScatter, 2,156 step by step, 1,125 as a ring
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shardc.cost.sums import cost_of
from shardc.ir.legal import faults_of
from shardc.ir.plan import Block
from shardc.planner.planned import PlannedProgram, PlannedStatement

FAR = 1.5  # a strategy of a price so many times the plan's is not looked at


def strategies(found: PlannedProgram) -> Iterator[PlannedProgram]:
    """Other ways to do the one statement of a program, the cheapest first."""
    if len(found.statements) != 1 or not isinstance(found.statements[0], PlannedStatement) or found.schedule.by:
        return
    schedule = found.schedule
    for strategy in found.statements[0].cheapest(4)[1:]:
        if not strategy.steps or strategy.time_s > FAR * found.cost.time_s:
            continue
        block = Block(strategy.values, schedule.inputs, (strategy.steps[-1].result,), strategy.steps)
        other = replace(schedule, block=block)
        if not list(faults_of(other)):
            yield replace(found, schedule=other, cost=cost_of(other))
