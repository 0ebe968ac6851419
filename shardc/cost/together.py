"""The time of a product done as one with collectives beside it.

    ring       what is not hidden + max(product / EFFICIENCY, what is hidden + a partial product) + one hop; what is
               scattered is added up at last
    chunks     max((product + copies) / OF_CHUNKS, gather) + a chunk of each, which nothing hides

In a ring hidden is one collective, that next to the product; of a sum for all the half that scatters. Partial products
take longer than a whole one, and lay or add what they leave. Replayed in bf16, products of 4,096 to 16,384 (`shardc
tune` shows each), a ring of four takes of this price

    v5e:4x4, X=4, Y=4       gathered 0.78, 0.81, 0.96   scattered 0.85, 0.98, 0.99
    v5p:4x4x4, X=4, Y=16    scattered 1.60

so that it chooses well on v5e, where products are long beside what they leave, and not on v5p: there a ring that is
asked for (`--overlap on`) may be slower than its steps, and `shardc tune` says so. Over several axes, or one that lies
on several physical ones, a ring is priced by the ways of its blocks (`cost.rings`). None is chosen over an axis that is
laid so that neighbours on it are none on the slice.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.cost.model import CostModel
from shardc.cost.rings import (
    EFFICIENCY,
    Beside,
    Turn,
    around,
    block_round,
    both_around,
    keeps_up,
    turns_round,
    turns_to_meet,
)
from shardc.ir.collectives import AllGather
from shardc.ir.operations import Kind
from shardc.ir.plan import Einsum, How, Schedule, Step, Together
from shardc.ir.sharding import Axes
from shardc.lowering.chunks import COUNT
from shardc.lowering.meeting import meeting_of
from shardc.lowering.rings import Ring, ring_of
from shardc.lowering.timed import hides_permutes

OF_CHUNKS = 0.85


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
    """What of a group is done at the same time. What is left to XLA counts as a ring: it makes such windows."""
    steps, hop_s = schedule.steps[group.first : group.last + 1], model.chip.hop_latency
    product = sum(step.cost.time_s for step in steps if isinstance(step.op, Einsum))
    moves = [step.cost.time_s for step in steps if not isinstance(step.op, Einsum)]
    if group.how is How.CHUNKS:
        on_links = sum(_on_links(schedule, step, model) for step in steps)
        alone = product + sum(moves) - on_links
        return Beside(0.0, alone / OF_CHUNKS, on_links, (alone + on_links) / COUNT + COUNT * hop_s)
    found = by_ways(schedule, group, model)
    if found is not None:
        return found
    hidden = moves[-1] / 2 if steps[-1].op.facts.kind is Kind.SUM else moves[-1]
    ring, computing = ring_of(schedule, group) if group.how is How.RING else None, product / EFFICIENCY
    part = 0.0 if ring is None else computing / ring.size
    left = moves[-1] - hidden + hop_s + (0.0 if ring is None else _added_s(schedule, steps, ring, model))
    return Beside(sum(moves[:-1]), computing, hidden + part, left)


def _added_s(schedule: Schedule, steps: Sequence[Step], ring: Ring, model: CostModel) -> float:
    """Seconds of the last sum of what goes round, which nothing is beside."""
    if ring.gathers or model.alone.measured is None:
        return 0.0
    moved = next(step for step in steps if not isinstance(step.op, Einsum))
    size = block_round(schedule, moved, ring, model.mesh)
    return model.alone.moving_s(2 * size, size, schedule.values[moved.result].dtype)


def by_ways(schedule: Schedule, group: Together, model: CostModel) -> Beside | None:
    """Of a ring over several axes, or over one that lies on several, and of two at once, where the ways are known."""
    steps = schedule.steps[group.first : group.last + 1]
    if group.how is How.RINGS:
        meeting = meeting_of(schedule, group)
        return None if meeting is None else both_around(schedule, steps, meeting, model)
    ring = ring_of(schedule, group) if group.how is How.RING else None
    if ring is None or (len(ring.axes) == 1 and not model.has_parts(ring.axes[0])):
        return None
    return around(schedule, steps, ring, model)


def turns_of(schedule: Schedule, group: Together, place: int, model: CostModel) -> tuple[Turn, ...]:
    """What the collective at this place of a group sends, turn by turn; nothing where it is in no turns."""
    steps, moved = schedule.steps[group.first : group.last + 1], schedule.steps[place]
    ring = ring_of(schedule, group) if group.how is How.RING else None
    if ring is not None and moved.is_collective:
        return turns_round(ring, block_round(schedule, moved, ring, model.mesh), model.mesh)
    meeting = meeting_of(schedule, group) if group.how is How.RINGS else None
    if meeting is None or not moved.is_collective:
        return ()
    of_fine = steps[-1].operands[meeting.fine] == moved.result
    found = turns_to_meet(schedule, steps, meeting, model.mesh)
    return tuple(turn._replace(blocks=turn.blocks[:1] if of_fine else turn.blocks[1:]) for turn in found)


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
