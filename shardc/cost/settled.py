"""What steps cost once all of them stand, where a slice is named: by the types to which its compiler rounds, and with
what loops do to rows. A step is priced where it is planned; who reads what it leaves is not known there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shardc.cost.model import CostModel
from shardc.cost.rounded import Rounded
from shardc.cost.rows import Rows
from shardc.cost.sums import loop_cost
from shardc.ir.digits import Reshape
from shardc.ir.plan import Block, Loop, Step, ValueNumber
from shardc.lowering.rounded import kept, rounded, rounded_ends


def settled_block(block: Block, dims: Collection[str], model: CostModel) -> Block:
    """A block of a program with these dims, its steps priced so; twice is as once."""
    return _in_block(block, Rows((), model), (), model, dims) if _has_more(block) else block


def _has_more(block: Block) -> bool:
    """Whether there is anything to price again."""
    return any(isinstance(step.op, Loop) for step in block.steps) or any(a.dtype.name == "f32" for a in block.values)


def _in_block(
    block: Block, rows: Rows, ends: Collection[ValueNumber], model: CostModel, dims: Collection[str]
) -> Block:
    """`ends` are the outputs that are rounded where they are read."""
    found = rounded(block, ends)
    digits = {step.result: step.operands[0] for step in block.steps if isinstance(step.op, Reshape)}
    around = Rounded(block.values, kept(block, ends), digits, model, dims)

    def again(step: Step) -> Step:
        if isinstance(step.op, Loop):
            if step.op.is_of_chunks:  # its steps are parts of what was priced so
                return step
            inside = rounded_ends(step, step.op, found)
            body = _in_block(step.op.body, Rows.of(step.op, model), inside, model, dims)
            loop = replace(step.op, body=body)
            return replace(step, op=loop, cost=loop_cost(loop))
        written = step.cost if step.cost.as_written is None else step.cost.as_written
        cost = rows.cost(step, around.cost(step, written))
        return replace(step, cost=cost if cost is written else replace(cost, as_written=written))

    return replace(block, steps=tuple(map(again, block.steps)))
