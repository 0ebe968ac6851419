"""The memory that the TPU's compiler will ask for: arguments, outputs, temporary buffers.

`memory.peak_bytes` counts each value while it lives, as any device must. The compiler adds to that, by rules
that were read off what it does (libtpu 0.0.42.1), and that `shardc verify` holds against it:

- arrays lie in tiles of 8 rows by 128 lanes, along the two dims that waste least (`lowering.tiles`);
- what a collective leaves lies among the temporaries; an output that one leaves is a copy of it, of what is gathered
  made at the end (`lowering.held`);
- but an AllReduce adds up where its operand lies, and what it and a ReduceScatter leave as an output lies there;
- until an output is written its buffer holds other values, not what collectives leave nor trips (`cost.heap.Buffers`);
- a product done block by block with its collective holds blocks (`cost.grouped`);
- each form takes what `lowering.buffers` says: copies, what is between two rounds, pieces on their way;
- a Slice that only products read is part of them, and one Slice after another is one Slice;
- functions are computed as they are read, or where their operand lay (`lowering.fusion`);
- what only products read, which round it, lies as bf16 (`lowering.rounded`);
- on a chip whose own memory is large, what finds room there takes none, but for large pieces that loops take and leave,
  or steps that are done as one (`cost.on_chip`); on others little of what functions alone leave (`lowering.held`).

Temporaries share a heap in order of time (`cost.heap`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from shardc.cost.depth import depth_first
from shardc.cost.grouped import Groups
from shardc.cost.heap import Buffers
from shardc.cost.held_up import held_up
from shardc.cost.inside import Inside, Readers
from shardc.cost.scheduled import Rings, may_be_hidden, operands_first, orders_early, orders_of_least, permutes_first
from shardc.cost.walk import Walk
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Einsum, Loop, Schedule, Step, ValueNumber, every_step
from shardc.lowering import tpu, work
from shardc.lowering.buffers import size_of
from shardc.lowering.forms import Form, Lowering
from shardc.lowering.fusion import readers_of
from shardc.lowering.held import (
    adds_up_apart,
    begins_permutes_early,
    is_taken_step_by_step,
    may_place_largest_first,
    near_functions,
    takes_depth_first,
)
from shardc.lowering.lower import lower
from shardc.lowering.rounded import as_kept
from shardc.lowering.turned import laid_in_tiles

KEPT = 512  # schedules whose memory is not worked out twice: what is planned under limits comes to the same often


@dataclass(frozen=True, slots=True)
class Allocation:
    """Bytes of one device."""

    argument_bytes: int
    output_bytes: int
    temporary_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.argument_bytes + self.output_bytes + self.temporary_bytes


@lru_cache(maxsize=KEPT)
def allocation(schedule: Schedule, lowering: Lowering | None = None) -> Allocation:
    """What a program's compiled form is predicted to allocate on each device.

    The compiler is free to take steps in several orders. Where it hides collectives, what is promised holds in each
    that it was seen to take; elsewhere it takes the one of least memory.
    """
    lowering = lower(schedule) if lowering is None else lowering
    sizes = [size_of(value, schedule.mesh) for value in schedule.values]
    given, left = (sum(sizes[number] for number in ends) for ends in (schedule.inputs, schedule.outputs))
    taken = sum(_temporaries(schedule, lowering, tpu.on_chip(lowering.target)))
    found = tpu.in_memory(taken, _beside(schedule, lowering), lowering.target)
    return Allocation(given, left, found)


def _temporaries(schedule: Schedule, lowering: Lowering, room: int, loop: Loop | None = None) -> tuple[int, ...]:
    """Bytes of each temporary buffer in memory, on a chip that has so much room for them; of a trip of this loop."""
    schedule = replace(schedule, block=as_kept(schedule.block))
    walks, again = _Walks.of(schedule, lowering, room, loop), work.computes_again(lowering.target)
    if tpu.moves_early(lowering.target) and any(map(may_be_hidden, schedule.steps)):
        repeated = {
            schedule.steps[at].result: {ValueNumber(value)} for at, value in lowering.again if value is not None
        }
        waits = repeated or held_up(schedule)
        tried = walks.ways(orders_early(schedule.block, waits, Rings.of(schedule)), again)
        return max((walks.walk(way).temporaries() for way in tried), key=sum)
    if loop is not None or not begins_permutes_early(lowering.target):
        return _of_least(walks, again).temporaries
    found = _of_least(walks, again)
    steps, given = found.way.steps, schedule.block.inputs
    early = walks.ways([permutes_first(steps, given, goes_on) for goes_on in (True, False)], again)
    return max([found.temporaries, *(walks.taken(way).temporaries for way in early if way != found.way)], key=sum)


def _of_least(walks: _Walks, again: Sequence[int]) -> _Taken:
    """What is taken where nothing is begun early: the compiler chooses an order of least memory, then finds places."""
    block = walks.schedule.block
    inside = walks.inside(max(again))
    greedy, *others = (walks.taken(way) for way in walks.ways(orders_of_least(block, inside, walks.sizes), again))
    (deep,) = (walks.taken(way) for way in walks.ways([depth_first(block, inside, walks.sizes)], again[:1]))
    most = min(each.most_bytes for each in (greedy, *others))
    if takes_depth_first(deep.most_bytes, most):
        return deep
    least = min((greedy, *others), key=lambda each: sum(walks.walk(each.way, in_place=False).temporaries()))
    sends = any(step.op.facts.kind is Kind.PERMUTE for step in block.steps)
    if not sends and is_taken_step_by_step(greedy.most_bytes, most):
        return max(least, greedy, key=lambda each: sum(each.temporaries))
    return least


class _Ordered(NamedTuple):
    """An order of a block's steps, and what has no buffer."""

    steps: tuple[Step, ...]
    inside: Inside


class _Taken(NamedTuple):
    """What a way takes: of each temporary buffer, and of all that is there at once, outputs too."""

    way: _Ordered
    temporaries: tuple[int, ...]
    most_bytes: int


@dataclass(frozen=True, slots=True)
class _Walks:
    """What is the same in whichever order the steps of a block, or of a trip of a loop, are taken."""

    schedule: Schedule
    lowering: Lowering
    room: int
    loop: Loop | None
    sizes: tuple[int, ...]
    forms: dict[tuple[int, ...], Form]  # by the results of the step
    groups: Groups
    of_trip: Callable[[Loop, Lowering], tuple[int, ...]]
    in_tiles: frozenset[ValueNumber]
    readers: Readers
    places: dict[tuple[int, ...], int]  # of the results of each step, in the order of the text
    insides: dict[int, Inside] = field(default_factory=dict)  # by how much work products do again

    @classmethod
    def of(cls, schedule: Schedule, lowering: Lowering, room: int, loop: Loop | None) -> _Walks:
        sizes = tuple(size_of(value, schedule.mesh) for value in schedule.values)
        pairs = zip(schedule.steps, lowering.forms, strict=True)
        forms: dict[tuple[int, ...], Form] = {step.results: form for step, form in pairs}
        of_trip = _of_trips(schedule, room)
        in_tiles = frozenset[ValueNumber]()
        if loop is None:  # of what a trip leaves nothing is known
            in_tiles = laid_in_tiles(schedule.steps, schedule.outputs, schedule.values, schedule.mesh)
        readers = readers_of(schedule.steps)
        places: dict[tuple[int, ...], int] = {
            step.results: place for place, step in enumerate(operands_first(schedule.block, 1))
        }
        groups = Groups.of(schedule)
        return cls(schedule, lowering, room, loop, sizes, forms, groups, of_trip, in_tiles, readers, places)

    def ways(self, orders: Iterable[tuple[Step, ...]], again: Iterable[int]) -> list[_Ordered]:
        """Each order, with products that do so much work of what they read, each for itself; none twice."""
        found = list[_Ordered]()
        for steps in orders:
            for most in again:
                way = _Ordered(steps, self.inside(most))
                found += [] if way in found else [way]
        return found

    def inside(self, again: int) -> Inside:
        """What has no buffer, in whichever order."""
        if again not in self.insides:
            block = self.schedule.block
            self.insides[again] = Inside.of(block, block.steps, self.readers, again, self.groups.stored)
        return self.insides[again]

    def taken(self, way: _Ordered) -> _Taken:
        walk = self.walk(way)
        return _Taken(way, walk.temporaries(), walk.heap.most_bytes)

    def walk(self, way: _Ordered, in_place: bool = True) -> Walk:
        """What is computed with a product may lie `in_place` of an operand."""
        target = self.lowering.target
        steps, inside = way
        sends_whole = any(step.op.facts.kind is Kind.PERMUTE and step.op.facts.is_named for step in steps)
        by_size = may_place_largest_first(sends_whole, target)
        heap = Buffers(self.room, self.loop is not None, by_size, near_functions(target))
        has_products = any(isinstance(step.op, Einsum) for step in steps)
        given = (
            self.schedule,
            self.forms,
            self.sizes,
            steps,
            self.groups,
            self.of_trip,
            self.readers,
            inside,
            has_products,
        )
        apart = adds_up_apart(target)
        where = (self.in_tiles, self.places)
        return Walk(*given, *where, loop=self.loop, heap=heap, in_place=in_place, adds_up_apart=apart)


def _of_trips(schedule: Schedule, room: int) -> Callable[[Loop, Lowering], tuple[int, ...]]:
    """Of a trip of each loop, which is the same in whichever order the steps around it are done: worked out once."""
    known: dict[int, tuple[int, ...]] = {}

    def of_trip(loop: Loop, lowering: Lowering) -> tuple[int, ...]:
        if id(loop) not in known:
            known[id(loop)] = _temporaries(schedule.inside(loop), lowering, room, loop)
        return known[id(loop)]

    return of_trip


def _beside(schedule: Schedule, lowering: Lowering) -> tpu.Beside:
    """What is compiled for the text: each turn of a permute is a collective, and there is one beside them."""
    return tpu.Beside(
        sum(int(call.times) + (call.times > 1) for call in lowering.calls),
        sum(isinstance(done.step.op, Apply) for done in every_step(schedule.block)),
    )
