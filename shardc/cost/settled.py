"""What steps cost once all of them stand, where a slice is named: by the types to which its compiler rounds, with what
loops do to rows, and with what collectives tell apart. A step is priced where it is planned; who reads what it leaves,
and what comes between, is not known there.

    z = x + o · W                  added to the tiles as they are made: x is read
    z = x + AllReduce_X(o · W)     x and the sum are read, and z is written; so of relu(x + AllReduce_X(o · W))
    for M { G = G + AllReduce_X(dW[M]) }      added up as it is made, and reduced after the loop
    z = AllGather_X(x · W[K, D_X])            copied at the end: from the chip if x leaves it room (`cost.crowded`)
    s = sum_J(x ⊙ x)               a product with ones, where it stands by itself: x is read (`lowering.ones`)
    p = softmax_J(ReduceScatter_X(q · k)); AllGather_X(p) · v      the largest as it lies, the sum, and shares, written
    z = x · W                      after W was brought to the chip, as a whole (`cost.awaited`)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from shardc.cost.alone import Amount
from shardc.cost.awaited import Awaited
from shardc.cost.crowded import NOT, Crowded
from shardc.cost.formulas import longer, one_after_another
from shardc.cost.model import CostModel
from shardc.cost.near import Near
from shardc.cost.on_chip import shares_of
from shardc.cost.rounded import Rounded
from shardc.cost.rows import Rows
from shardc.cost.sums import loop_cost
from shardc.ir.digits import Reshape
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Block, Loop, Step, StepCost, ValueNumber, operands_of
from shardc.ir.sharding import Array
from shardc.lowering.ones import by_ones
from shardc.lowering.rounded import kept, rounded, rounded_ends
from shardc.lowering.timed import by_ones_takes
from shardc.lowering.tpu import cuts_what_it_reads


def settled_block(block: Block, dims: Collection[str], model: CostModel) -> Block:
    """A block of a program with these dims, its steps priced so; twice is as once."""
    return _in_block(block, Rows((), model), (), model, dims)


def _by_ones(step: Step, read: Collection[int], values: Sequence[Array], model: CostModel) -> StepCost:
    """Of a sum that is done by a product, which reads so much."""
    result, arrays = values[step.result], [values[value] for value in sorted(read)]
    (summed,), sizes = operands_of(step, values), [array.local_bytes(model.mesh) for array in arrays]
    times, dtype = by_ones_takes(summed.dims[-1] not in result.dims), summed.dtype
    amount = Amount(0, sum(sizes), result.local_bytes(model.mesh), dtype, leaves=result.dtype)
    formula = partial(model.alone.memory_formula, arrays, [result], amount)
    spelled = formula if times == 1 else partial(_longer, formula, times)
    found = replace(_written(step), time_s=model.alone.product_s(amount) * times, spelled=spelled)
    return model.alone.product_started(found)


def _longer(formula: Callable[[], str], times: float) -> str:
    return longer(formula(), times)


def _written(step: Step) -> StepCost:
    """The cost by the text alone."""
    return step.cost if step.cost.as_written is None else step.cost.as_written


def _in_block(
    block: Block,
    rows: Rows,
    ends: Collection[ValueNumber],
    model: CostModel,
    dims: Collection[str],
    loop: Loop | None = None,
    made: Collection[bool] = (),
) -> Block:
    """`ends` are the outputs that are rounded where they are read; `loop` is that of which this is the body,
    of whose fixed values some are `made` before it."""
    found = rounded(block, ends)
    digits = {step.result: step.operands[0] for step in block.steps if isinstance(step.op, Reshape)}
    around = Rounded(block.values, kept(block, ends), digits, model, dims)
    sent, left, shares = _sent(block.steps), _left(block.steps), shares_of(block.steps)
    summed = by_ones(block, model.target)
    crowded = NOT if loop is not None else Crowded.of(block, model)
    near = Near.of(block, model) if loop is None else Near.in_trip(loop, made, model)

    def again(step: Step) -> Step:
        if isinstance(step.op, Loop):
            if step.op.is_of_chunks:  # its steps are parts of what was priced so
                return step
            inside = rounded_ends(step, step.op, found)
            before = [value not in block.inputs for value in step.operands[: step.op.fixed]]
            body = _in_block(step.op.body, Rows.of(step.op, model), inside, model, dims, step.op, before)
            priced = replace(step.op, body=body)
            return replace(step, op=priced, cost=loop_cost(priced))
        written = cost = _written(step)
        if step.results[0] in summed:
            cost = _by_ones(step, summed[step.results[0]], block.values, model)
        elif not _adds_up(step, loop):
            cost = _told_apart(step, written, sent, left, shares)
        cost = near.cost(step, rows.cost(step, around.cost(step, cost)), block.values, model)
        for more in crowded.more(step, around, model):
            cost = one_after_another(cost, more)
        return replace(step, cost=cost if cost is written else replace(cost, as_written=written))

    steps = [*map(again, block.steps)]
    awaited = None if loop is not None else Awaited.of(block, model, summed)
    if awaited is not None:
        steps[awaited.place] = awaited.by(steps, block.values, model)
    return replace(block, steps=tuple(steps))


def _is_sent(step: Step) -> bool:
    """Whether a collective leaves what a step does."""
    return not isinstance(step.op, Loop) and step.op.facts.communicates


def _is_moved(step: Step) -> bool:
    """Whether a step leaves what it is given, or shares of it."""
    return not isinstance(step.op, Loop) and (step.op.facts.is_move or isinstance(step.op, Reshape))


def told_apart(steps: Sequence[Step], first: int) -> list[StepCost]:
    """The costs of steps in no loop, from the first of these on, by what collectives among them tell apart alone."""
    new = steps[first:]
    sent = _sent(steps) if any(step.cost.if_sent is not None for step in new) else frozenset[ValueNumber]()
    left, shares = _left(new), shares_of(steps)
    return [_told_apart(step, step.cost, sent, left, shares) for step in new]


def _told_apart(
    step: Step,
    cost: StepCost,
    sent: Collection[ValueNumber],
    left: set[ValueNumber],
    shares: Collection[int],
) -> StepCost:
    """The cost of a step, where collectives leave some of these, and read others, and these are shares."""
    to_lie = None if left.isdisjoint(step.results) else cost.to_lie
    found = cost if cost.if_sent is None or _tiles(step).isdisjoint(sent) else cost.if_sent
    if found is cost and cost.if_cut is not None and step.operands[0] in shares:
        found = cost.if_cut
    return found if to_lie is None else one_after_another(found, to_lie)


def _left(steps: Sequence[Step]) -> set[ValueNumber]:
    """What collectives read, as it lies or in digits; of shares what has to lie to be read, as one that is cut again
    has not."""
    sent, lying = set[ValueNumber](), set[ValueNumber]()
    for step in reversed(steps):
        in_digits = isinstance(step.op, Reshape)
        if _is_sent(step) or (in_digits and not sent.isdisjoint(step.results)):
            sent.update(step.operands)
        reads_whole = step.op.facts.kind is not Kind.LOCAL and not cuts_what_it_reads(step.op)
        if reads_whole or (in_digits and not lying.isdisjoint(step.results)):
            lying.update(step.operands)
    shares = {value for step in steps if step.op.facts.kind is Kind.SLICE for value in step.results}
    return (sent - shares) | (lying & shares)


def _sent(steps: Sequence[Step]) -> set[ValueNumber]:
    """What collectives leave, shares and digits of it, and what is computed of tiles as they left them, and lies
    nowhere."""
    found = set[ValueNumber]()
    for step in steps:
        read = {*step.operands} if _is_moved(step) else _tiles(step)
        if _is_sent(step) or (_written(step).if_sent is None and not found.isdisjoint(read)):
            found.update(step.results)
    return found


def _tiles(step: Step) -> set[ValueNumber]:
    """The operands that the text has with a product's tiles."""
    return {step.operands[place] for place in _written(step).in_tiles}


def _adds_up(step: Step, loop: Loop | None) -> bool:
    """Whether a step of a trip adds to what is carried, which nothing else reads, nor what it leaves."""
    if loop is None:
        return False
    body, first = loop.body, loop.fixed
    before = [
        number
        for number, after in zip(body.inputs[first : first + loop.carried], body.outputs, strict=False)
        if after in step.results and body.outputs.count(after) == 1
    ]
    read = [other for other in body.steps if {*before, *step.results} & {*other.operands}]
    return step.op == Apply("add") and bool(before) and read == [step]
