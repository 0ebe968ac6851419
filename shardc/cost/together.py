"""The time of a product done as one with collectives beside it.

    ring       what is not hidden + max(partial products, what is hidden + the last of them) + one hop; what is
               scattered is added up at last
    chunks     max(products, gather) + a chunk of the shorter, which nothing hides + copies

In a ring hidden is one collective, that next to the product; of a sum for all the half that scatters. What partial
products take is in `cost.rings`, as are rings over several axes, or over one that lies on several physical ones, which
are priced by the ways of their blocks. None is chosen over an axis that is laid so that neighbours on it are none on
the slice.

On v5e:4x4 and v5e:2x4 forms are replayed within an eighth of these prices (`tests/cost/test_as_one.py`), but for sums
that do not fit on the chip, of which some take 0.72 of it. On v5p:4x4x4 rings that gather take 0.9 to 1.3 of the price,
and those that scatter 1.4 to 1.5, so that none is chosen there by itself: one that is asked for (`--overlap on`) may be
slower than its steps, and `shardc tune` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardc.cost.alone import Amount
from shardc.cost.copied import copy_cost, laid_cost
from shardc.cost.model import CostModel
from shardc.cost.rings import (
    LAID,
    Beside,
    Turn,
    added_s,
    around,
    block_round,
    both_around,
    keeps_up,
    parts_of,
    turning_s,
    turns_round,
    turns_to_meet,
)
from shardc.cost.stored import made_before_s, read_again_s
from shardc.ir.collectives import AllGather
from shardc.ir.operations import Kind
from shardc.ir.plan import Einsum, How, Schedule, Step, Together
from shardc.ir.sharding import Axes
from shardc.lowering.as_one import LeftToXla, as_one
from shardc.lowering.chunks import Chunks
from shardc.lowering.forms import Laid
from shardc.lowering.meeting import Meeting
from shardc.lowering.rings import Ring
from shardc.lowering.rounded import as_sent
from shardc.lowering.timed import hides_permutes


def time_together(schedule: Schedule, model: CostModel) -> float:
    """Seconds of all steps, those of each group as one."""
    grouped = {place for group in schedule.together for place in group.places}
    alone = sum(step.cost.time_s for place, step in enumerate(schedule.steps) if place not in grouped)
    return alone + sum(group_s(schedule, group, model) for group in schedule.together)


def group_s(schedule: Schedule, group: Together, model: CostModel) -> float:
    """Seconds of a group."""
    before, computing, hidden, left = beside(schedule, group, model)
    at_once = group.how is How.CHUNKS or hides_permutes(model.target)
    return before + (max(computing, hidden) if at_once else computing + hidden) + left


def beside(schedule: Schedule, group: Together, model: CostModel) -> Beside:
    """What of a group is done at the same time. A sum that a ring gathers is copied to become an output, as what any
    gather leaves; a product that is put together from parts is read again by what would have been done beside it, and
    what any in parts would have computed as it reads is made before."""
    found, last = _beside(schedule, group, model), schedule.steps[group.last]
    if group.how is not How.PARTITIONER:
        product = next(schedule.steps[place] for place in group.places if isinstance(schedule.steps[place].op, Einsum))
        found = found._replace(before=found.before + made_before_s(schedule, product, model))
    if isinstance(last.op, Einsum) and group.how is not How.PARTITIONER:
        return found._replace(left=found.left + read_again_s(schedule, last, model))
    if group.how is not How.RING or last.op.facts.kind is not Kind.SUM or last.result not in schedule.outputs:
        return found
    return found._replace(left=found.left + copy_cost(schedule.values[last.result], model).time_s)


def _beside(schedule: Schedule, group: Together, model: CostModel) -> Beside:
    """The same, but for an output. What is left to XLA counts as a ring: it makes such windows."""
    steps, hop_s = schedule.steps[group.first : group.last + 1], model.chip.hop_latency
    if model.alone.measured is not None:
        schedule = replace(schedule, block=as_sent(schedule.block, steps))
    product = sum(step.cost.time_s for step in steps if isinstance(step.op, Einsum))
    moves = [step.cost.time_s for step in steps if not isinstance(step.op, Einsum)]
    hidden = moves[-1] / 2 if steps[-1].op.facts.kind is Kind.SUM else moves[-1]
    by_xla = Beside(sum(moves[:-1]), product / LAID, hidden, moves[-1] - hidden + hop_s)
    match as_one(schedule, group):
        case Chunks() as chunks:
            return _in_chunks(schedule, steps, chunks, model)
        case Meeting() as meeting:
            return both_around(schedule, steps, meeting, model) or by_xla
        case Ring() as ring:
            return _by_ways(schedule, steps, ring, model) or _around_one(schedule, steps, ring, hidden, model)
        case LeftToXla() | None:
            return by_xla


def _around_one(schedule: Schedule, steps: Sequence[Step], ring: Ring, hidden: float, model: CostModel) -> Beside:
    """Of a ring over one axis.

    A[I_X, J] goes round, B[J, K] is gathered     a turn of A, then B's gather beside the other turns, then products
    A[I_X, J] waits, B[J, K] is gathered          B's gather, then the turns of A beside products; so where the gather,
                                                  or another collective that leaves B, is over X too: on the same links
    """
    product, moved = sorted(steps, key=lambda step: not isinstance(step.op, Einsum))
    parts, left = parts_of(schedule, product, ring, model), moved.cost.time_s - hidden + model.chip.hop_latency
    hidden = max(hidden, turning_s(schedule, moved, ring, model) or 0.0)
    if not ring.gathers:
        left += added_s(block_round(schedule, moved, ring, model.mesh), schedule.values[moved.result].dtype, model)
        return Beside(0.0, parts.computing, hidden + parts.last, left)
    (other,) = (value for value in product.operands if value != moved.result)
    gather = next((step for step in schedule.steps if step.is_collective and step.result == other), None)
    if ring.waits is not None or gather is None or not set(ring.axes).isdisjoint(gather.op.axes):
        return Beside(0.0, parts.computing, hidden + parts.last, left)
    turn = hidden / (ring.size - 1)
    return Beside(turn, parts.computing, max(0.0, hidden - turn - gather.cost.time_s) + parts.last, left)


def _in_chunks(schedule: Schedule, steps: Sequence[Step], chunks: Chunks, model: CostModel) -> Beside:
    """One chunk is gathered before the first product, or after the last. What is gathered first is cut before that;
    what is copied because of it is, at last."""
    product, gather = sorted(steps, key=lambda step: not isinstance(step.op, Einsum))
    on_links, block = _on_links(schedule, gather, model), schedule.values[gather.operands[0]]
    computing = chunks.count * _chunk_s(schedule, product, chunks, model)
    cut = 0.0 if product is steps[0] else model.alone.moving_s(2 * block.local_bytes(model.mesh), 0, block.dtype)
    hops, copied_s = chunks.count * model.chip.hop_latency, gather.cost.time_s - on_links
    if product is steps[0]:  # what is gathered of each is laid to its place, as a share is cut out
        copied_s = laid_cost(Laid.SHARE, schedule.values[gather.result], model, 0).time_s
    return Beside(cut, computing, on_links, min(computing, on_links) / chunks.count + copied_s + hops)


def _chunk_s(schedule: Schedule, product: Step, chunks: Chunks, model: CostModel) -> float:
    """Seconds of a product of one chunk: it reads the other operand whole."""
    *read, written = (schedule.values[value] for value in (*product.operands, product.result))
    sizes = [array.local_bytes(model.mesh) // (chunks.count if chunks.dim in array.dims else 1) for array in read]
    wide = max((array.dtype for array in read), key=lambda dtype: dtype.bytes)
    left = written.local_bytes(model.mesh) // chunks.count
    amount = Amount(product.cost.flops // chunks.count, sum(sizes), left, wide, leaves=written.dtype)
    start = model.alone.product_start_s
    return max(model.alone.product_s(amount), (product.cost.time_s - start) / chunks.count) + start


def _by_ways(schedule: Schedule, steps: tuple[Step, ...], ring: Ring, model: CostModel) -> Beside | None:
    """Of a ring over several axes, or over one that lies on several, where the ways of its blocks are known."""
    is_over_one = len(ring.axes) == 1 and not model.has_parts(ring.axes[0])
    return None if is_over_one else around(schedule, steps, ring, model)


def turns_of(schedule: Schedule, group: Together, place: int, model: CostModel) -> tuple[Turn, ...]:
    """What the collective at this place of a group sends, turn by turn; nothing where it is in no turns."""
    steps, moved = schedule.steps[group.first : group.last + 1], schedule.steps[place]
    match as_one(schedule, group) if moved.is_collective else None:
        case Ring() as ring:
            return turns_round(ring, block_round(schedule, moved, ring, model.mesh), model.mesh)
        case Meeting() as meeting:
            of_fine = steps[-1].operands[meeting.fine] == moved.result
            found = turns_to_meet(schedule, steps, meeting, model.mesh)
            return tuple(turn._replace(blocks=turn.blocks[:1] if of_fine else turn.blocks[1:]) for turn in found)
        case Chunks() | LeftToXla() | None:
            return ()


def _on_links(schedule: Schedule, step: Step, model: CostModel) -> float:
    """Seconds of what is gathered, without what is copied because of it."""
    if not isinstance(step.op, AllGather):
        return 0.0
    return model.rate(step.op).seconds(schedule.values[step.operands[0]].local_bytes(model.mesh))


def blocking_s(steps: tuple[Step, ...]) -> float:
    """Seconds of steps one after another."""
    return sum(step.cost.time_s for step in steps)


def has_its_links(axes: Axes, model: CostModel) -> bool:
    """Whether blocks that go round the axes come as fast as a collective over them would bring them; over several at
    once, whether it is known which links they take."""
    if not knows_ways(model):
        return len(axes) == 1 and not model.has_parts(axes[0])
    return len(axes) > 1 or keeps_up(axes[0], model)


def knows_ways(model: CostModel) -> bool:
    """Whether it is known which links a block takes."""
    return model.sent(()) is not None
