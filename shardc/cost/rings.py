"""The time of a ring over several axes at once, and of two rings at once, by the ways of their blocks.

    one      max(partial products + what they wait for the first turn, turns + a partial product) + what gathers a sum
    two      what turns both + the same

A ring of 16 has 16 partial products, so that what they leave counts. Of what goes several ways at once one waits for
another where they share a link. Partial products (`parts_of`)

    add up           C += A[I, j] · B[j, K]: each reads and writes the whole sum in f32, the last one leaves C
    lie apart        C[i, K] = A[i, J] · B[J, K]
    go round         what came + A[i, J] · B[J, K] is sent on: a turn waits for the sum before it

Those that lie apart or go round each read the operand that lacks the dim: from memory, where it has no room on the
chip. Of those that go round the blocks of both turns may be one product, and their sums one function
(`lowering.rings.Ring.in_pairs`); a turn is begun behind both.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

from shardc.cost.alone import Amount
from shardc.cost.model import CostModel
from shardc.ir.collectives import AllGather
from shardc.ir.dtypes import DType, multiplied
from shardc.ir.exchange import Pairs
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Einsum, Schedule, Step, operands_of
from shardc.ir.sharding import Axes
from shardc.lowering.meeting import Meeting
from shardc.lowering.pairs import pairs_along
from shardc.lowering.rings import Ring
from shardc.lowering.timed import brings_at_most
from shardc.lowering.tpu import on_chip

LAID = 0.76  # of a product's speed, that partial products reach that are laid one beside another
SUMMED = 0.97  # and those that are sums
_DONE_WITHIN = 4  # sums of a ring: those that begin each way within their products, and the last two are one
AFTER = 0.9  # of the time in which a sum is read and written, that is beside nothing where it does not fit on the chip
_F32 = 4
_LARGE = 2**30  # bytes


class Beside(NamedTuple):
    """Seconds of a group: before anything is hidden, of the products, of what goes on beside them, and what is left."""

    before: float
    computing: float
    hidden: float
    left: float


Blocks = list[tuple[Pairs, int]]  # from whom to whom, and of how many bytes


class Turn(NamedTuple):
    """Blocks that are sent at once, so many times one after another. Of two rings the finer operand's come first."""

    name: str
    times: int
    blocks: Blocks


def around(schedule: Schedule, steps: tuple[Step, ...], ring: Ring, model: CostModel) -> Beside | None:
    """None where the ways of the blocks are not known."""
    product, moved = sorted(steps, key=lambda step: not isinstance(step.op, Einsum))
    size = block_round(schedule, moved, ring, model.mesh)
    turns = _turns(ring, size, model)
    if turns is None:
        return None
    after = moved.cost.time_s / 2 if moved.op.facts.kind is Kind.SUM else 0.0
    if ring.in_pairs:
        return _turn_by_turn(schedule, product, ring, turns[0], size, model)._replace(left=after)
    parts = parts_of(schedule, product, ring, model)
    adding = 0.0 if ring.gathers else added_s(size, schedule.values[moved.result].dtype, model)
    sums = 0 if ring.gathers else 1 + max(0, ring.size - 1 - _DONE_WITHIN)
    computing = parts.computing + sums * adding
    going = sum(turns) + min(sums, len(turns)) * adding + parts.last
    return Beside(0.0, computing + max(0.0, turns[0] - computing / ring.size), going, after)


def added_s(size: int, dtype: DType, model: CostModel) -> float:
    """Seconds of the sum of a block that came and one that is here."""
    if model.alone.measured is None:
        return 0.0
    return model.alone.product_s(Amount(0, 2 * size, size, dtype, bare=size)) + model.alone.function_start_s


def block_round(schedule: Schedule, moved: Step, ring: Ring, mesh: Mesh) -> int:
    """The bytes that a device sends in a turn each way."""
    block = schedule.values[(moved.operands[0] if ring.gathers else moved.result)]
    return block.local_bytes(mesh) // (ring.size if ring.gathered_after else 1)


def turns_round(ring: Ring, size: int, mesh: Mesh) -> tuple[Turn, Turn]:
    """A block to both neighbours, and of an even number the last to one of them alone."""
    right, left = ((pairs_along(ring.axes, ring.pairs(step), mesh), size) for step in (1, -1))
    both = Turn("beside the product: both ways round", (ring.size - 1) // 2, [right, left])
    return both, Turn("beside the product: the last, one way", int(ring.size % 2 == 0), [right])


def _turns(ring: Ring, size: int, model: CostModel) -> list[float] | None:
    """Seconds of each."""
    turns = turns_round(ring, size, model.mesh)
    times = [_sent(turn.blocks, model) for turn in turns]
    known = [(time, turn.times) for time, turn in zip(times, turns, strict=True) if time is not None]
    return None if None in times else [time for time, count in known for _ in range(count)]


def turning_s(schedule: Schedule, moved: Step, ring: Ring, model: CostModel) -> float | None:
    """Seconds of all turns; None where the ways of the blocks are not known. A gather may take less: on a line one turn
    waits for the other, and of an even number the last goes one way."""
    turns = _turns(ring, block_round(schedule, moved, ring, model.mesh), model)
    return None if turns is None else sum(turns)


def keeps_up(axis: str, model: CostModel) -> bool:
    """Whether large blocks go round an axis as fast as they are gathered, but for the last turn, which may be one way.

    Not on X=4 of `X=4, Y=2` on v5e:4x2, which `jax.make_mesh` lays as a walk: its neighbours are two links apart.
    """
    ring = Ring((axis,), tuple(range(model.mesh.size(axis))), "", gathers=True)
    turns = _turns(ring, _LARGE, model)
    gathered = model.rate(AllGather((axis,), 0)).seconds(_LARGE)
    return turns is not None and sum(turns[:-1]) <= 1.001 * gathered


def both_around(schedule: Schedule, steps: tuple[Step, ...], meeting: Meeting, model: CostModel) -> Beside | None:
    """Of two rings; None where the ways of the blocks are not known. The products take as long as the whole one, and
    more where it takes about as long to read and write the sum that each leaves."""
    product = steps[-1]
    times = [_sent(turn.blocks, model) for turn in turns_to_meet(schedule, steps, meeting, model.mesh)]
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return None
    turned, passed, sent_on = known
    turns = meeting.rounds * (meeting.within - 1) * passed + (meeting.rounds - 1) * sent_on
    parts = _summed(schedule, product, meeting.count, model)
    waiting = max(0.0, passed - parts.computing / meeting.count)
    return Beside(turned, parts.computing + waiting, turns + parts.last, 0.0)


def turns_to_meet(schedule: Schedule, steps: tuple[Step, ...], meeting: Meeting, mesh: Mesh) -> tuple[Turn, Turn, Turn]:
    """What is sent at once: to where they meet, within a round, after one."""
    *gathers, product = steps
    given = {gather.result: schedule.values[gather.operands[0]].local_bytes(mesh) for gather in gathers}
    fine, coarse = (given[product.operands[place]] for place in (meeting.fine, 1 - meeting.fine))

    def along(axes: Axes, pairs: Pairs, size: int) -> tuple[Pairs, int]:
        return pairs_along(axes, pairs, mesh), size

    both, one, other = meeting.over(mesh), meeting.axes[:1], meeting.axes[1:]
    turned = [along(both, meeting.fine_turned(mesh), fine), along(both, meeting.coarse_turned(mesh), coarse)]
    on = [along(one, meeting.fine_sent_on, fine), along(other, meeting.coarse_sent_on, coarse)]
    return (
        Turn("before the product: turned to where they meet", 1, turned),
        Turn(
            "beside the product: passed on within a round",
            meeting.rounds * (meeting.within - 1),
            [along(one, meeting.passed, fine)],
        ),
        Turn("beside the product: sent on after a round", meeting.rounds - 1, on),
    )


def _sent(blocks: Blocks, model: CostModel) -> float | None:
    """Seconds of blocks of so many bytes each, sent at once: those that share a link one after another."""
    ways = [model.sent(pairs) for pairs, _ in blocks]
    known = [way for way in ways if way is not None]
    if len(known) < len(ways):
        return None
    hop_s, sizes = model.chip.hop_latency, (size for _, size in blocks)
    times = [max(way.hops * hop_s, way.s_per_byte * size) for way, size in zip(known, sizes, strict=True)]
    shared = any(one.links & other.links for one, other in combinations(known, 2))
    return sum(times) if shared else max(times)


class PartTimes(NamedTuple):
    """Seconds of a product in the parts that a ring makes of it, and of the last of them."""

    computing: float
    last: float


def parts_of(schedule: Schedule, product: Step, ring: Ring, model: CostModel) -> PartTimes:
    """Those that are sums of each other, those that lie one beside another, or those that go round."""
    if ring.gathers and ring.dim not in schedule.values[product.result].dims:
        return _summed(schedule, product, ring.size, model)
    part = _blocks_s(schedule, product, ring, 1, model)
    return PartTimes(ring.size * part, part)


def _blocks_s(schedule: Schedule, product: Step, ring: Ring, blocks: int, model: CostModel) -> float:
    """Of so many blocks that are multiplied at once: no less than it takes to read the operand that lacks the dim,
    where that has no room on the chip."""
    share, start = blocks / ring.size, model.alone.product_start_s
    computing = (product.cost.time_s - start) * share / (LAID if ring.gathers else SUMMED)
    arrays, result = operands_of(product, schedule.values), schedule.values[product.result]
    whole = sum(array.local_bytes(model.mesh) for array in arrays if ring.dim not in array.dims)
    if model.alone.measured is None or whole <= brings_at_most(model.target):
        return computing + start
    cut = sum(array.local_bytes(model.mesh) for array in arrays if ring.dim in array.dims)
    read, left = whole + int(cut * share), int(result.local_bytes(model.mesh) * share)
    kind = multiplied(array.dtype for array in arrays)
    amount = Amount(int(product.cost.flops * share), read, left, kind, leaves=result.dtype)
    return max(computing, model.alone.product_s(amount)) + start


def _turn_by_turn(schedule: Schedule, product: Step, ring: Ring, turn: float, size: int, model: CostModel) -> Beside:
    """Of blocks of two turns at once: a turn is beside them, and behind both their sums, which lie on the chip."""
    one, two = (_blocks_s(schedule, product, ring, blocks, model) for blocks in (1, 2))
    pairs, alone = (ring.size - 1) // 2, 1 - ring.size % 2
    adding = 2 * size / (model.alone.measured.near_bandwidth if model.alone.measured else math.inf)
    last = added_s(size, schedule.values[product.result].dtype, model)
    computing = (alone + 1) * one + pairs * (two + adding) + last
    waiting = (pairs - 1 + alone) * max(0.0, turn - two) + max(0.0, turn - one)
    return Beside(0.0, computing + waiting, (pairs + alone) * turn + one + last, 0.0)


def _summed(schedule: Schedule, product: Step, count: int, model: CostModel) -> PartTimes:
    """Each part reads and writes the sum, in f32: on the chip where both fit, and in memory beside what is computed, or
    for the most part after it where not even one fits. The last part leaves the whole result."""
    result = schedule.values[product.result]
    elements, room = result.local_bytes(model.mesh) // result.dtype.bytes, on_chip(model.target)
    size = _F32 * elements
    start = model.alone.product_start_s
    alone, adding = product.cost.time_s - start, 2 * size * count / model.chip.hbm_bandwidth
    if 2 * size <= room:
        computing = alone / SUMMED
    else:
        computing = math.cbrt(alone**3 + adding**3) if size <= room else alone + AFTER * adding
    part, leaving = computing / count + start, model.alone.moving_s(0, elements * result.dtype.bytes, result.dtype)
    return PartTimes(count * part + max(0.0, leaving - part), max(part, leaving))
