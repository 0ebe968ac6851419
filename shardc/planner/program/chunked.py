"""A plan with steps in chunks of a dim, where it takes less time so, or keeps a limit of memory: `in_trips` writes the
loop, `chunkable` says which steps may be in one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from shardc.cost.model import CostModel
from shardc.cost.sums import cost_of, loop_cost
from shardc.ir.plan import Block, Loop, every_block
from shardc.lowering.tpu import on_chip
from shardc.planner.options import CLEARLY, Objective
from shardc.planner.planned import PlannedProgram, Refused
from shardc.planner.program.chunkable import groups
from shardc.planner.program.in_trips import in_chunks

MOST_TRIPS = 256  # of a loop over chunks
MOST_IDLE = 1  # loops after one another that lower no peak: two steps may hold as much
MOST_LOOPS = 8  # that a plan is given, one after another, to keep a limit


class Chunked(NamedTuple):
    """A plan with steps in so many chunks of a dim."""

    dim: str
    trips: int
    planned: PlannedProgram

    def __str__(self) -> str:
        return f"in {self.trips} chunks of {self.dim}"


def chunks_of(planned: PlannedProgram, model: CostModel, room: int) -> Iterator[list[Chunked]]:
    """For each dim that may be cut around what has no room on the chip, the plan in ever more chunks of it."""
    yield from _every(planned, model, 0, larger_than=room) if room else ()


def faster(planned: PlannedProgram, model: CostModel) -> PlannedProgram:
    """The plan with steps in chunks where it takes clearly less time so: what lies between them then lies on the chip,
    and had no room there as a whole."""
    for _ in range(MOST_LOOPS):
        made = [each.planned for loops in chunks_of(planned, model, on_chip(model.target)) for each in loops]
        best = min(made, key=lambda each: each.cost.time_s, default=planned)
        if best.cost.time_s > (1 - CLEARLY) * planned.cost.time_s:
            break
        planned = best
    return planned


def within(planned: PlannedProgram, model: CostModel, objective: Objective, memory: int) -> PlannedProgram | Refused:
    """The plan with as few chunks as keep a memory limit: of those with one loop more the cheapest that does; if none
    does, one that is lean and takes little time with another loop, and so on."""
    smallest, idle = planned.cost.peak_bytes, 0
    for _ in range(MOST_LOOPS):
        made = [each.planned for loops in _every(planned, model, memory, sums=True) for each in loops]
        keeping = [each for each in made if each.cost.peak_bytes <= memory]
        if keeping:
            return min(keeping, key=lambda each: each.price(objective))
        idle = 0 if any(each.cost.peak_bytes < smallest for each in made) else idle + 1
        if not made or idle > MOST_IDLE:
            break
        planned = min(made, key=lambda each: each.cost.time_s * (each.cost.peak_bytes + _bytes(each)))
        smallest = min(smallest, *(each.cost.peak_bytes for each in made))
    return Refused(smallest)


def _bytes(planned: PlannedProgram) -> int:
    """Of all values, those of a trip once: what is leaner though its peak is at another step than was cut."""
    mesh = planned.schedule.mesh
    return sum(array.local_bytes(mesh) for _, block in every_block(planned.schedule.block) for array in block.values)


def _every(
    planned: PlannedProgram, model: CostModel, memory: int, larger_than: int = 0, *, sums: bool = False
) -> Iterator[list[Chunked]]:
    """For each block and each dim that may be cut there, the plan in ever more chunks, up to the first that keeps the
    limit, or where smaller ones may lie on the chip up to the most. Around values that are larger."""
    model = model if planned.schedule.by is None else model.refined(planned.schedule.by) or model
    for path, block in _blocks(planned.schedule.block):
        for group in groups(block, planned.schedule.mesh, larger_than, sums=sums):
            made = list[Chunked]()
            for trips in _counts(group.size):
                new = in_chunks(group, trips, model, planned.schedule.program.dims)
                made.append(Chunked(group.dim, trips, _done(planned, path, new, model)))
                if made[-1].planned.cost.peak_bytes <= memory and not on_chip(model.target):
                    break
            yield made


def _blocks(block: Block, around: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Block]]:
    """Those that are of the text: what is in chunks is not cut again."""
    yield around, block
    for place, step in enumerate(block.steps):
        if isinstance(step.op, Loop) and not step.op.is_of_chunks:
            yield from _blocks(step.op.body, (*around, place))


def _counts(size: int) -> Iterator[int]:
    """Divisors of a size, each at least twice the one before."""
    last = 1
    for count in range(2, min(size, MOST_TRIPS) + 1):
        if count >= 2 * last and size % count == 0:
            yield (last := count)


def _done(planned: PlannedProgram, path: tuple[int, ...], block: Block, model: CostModel) -> PlannedProgram:
    """The plan with another block at a place, after which its loops are priced anew."""
    schedule = replace(planned.schedule, block=_put(planned.schedule.block, path, block))
    return replace(planned, schedule=schedule, cost=cost_of(schedule, model))


def _put(block: Block, path: tuple[int, ...], new: Block) -> Block:
    if not path:
        return new
    steps, (place, *below) = list(block.steps), path
    loop = steps[place].op
    assert isinstance(loop, Loop), "a block lies in loops"
    loop = replace(loop, body=_put(loop.body, tuple(below), new))
    steps[place] = replace(steps[place], op=loop, cost=loop_cost(loop))
    return replace(block, steps=tuple(steps))
