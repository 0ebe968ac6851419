"""Products and the collectives beside them that can be done as one, and where a program is cut for those left to XLA.

    In[B, D_Y] = AllGather_X In[B_X, D_Y]     two steps, or one: `In` as it is before, `Out` as it is after, and between
    Out[B, F] = Einsum In[B, D], W[D, F]      the two an einsum whose windows XLA chooses (PARTITIONER), or partial
                                              products beside permutes (RING; RINGS of two operands),
                                              or chunks beside gathers (CHUNKS)

What a group leaves is what its steps leave. A program with groups left to the partitioner is cut before and behind
each: what is in between runs under `shard_map`, and the values that cross a cut are whole arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from shardc.ir.collectives import AllReduce
from shardc.ir.operations import Kind
from shardc.ir.plan import Block, Einsum, How, Op, Schedule, Together, ValueNumber, last_uses
from shardc.ir.sharding import SUM, spell_axes
from shardc.lowering.as_one import as_one, may_be_grouped
from shardc.lowering.rings import rings

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps one after another, as a block of their own over the same values: what they read, and what others read."""

    first: int
    schedule: Schedule
    left: bool  # to XLA's partitioner


def segments(schedule: Schedule) -> Iterator[Segment]:
    """The steps between what is left to the partitioner, and that; a schedule without such groups is one segment."""
    now, steps = 0, len(schedule.steps)
    for group in (each for each in schedule.together if each.how is How.PARTITIONER):
        if now < group.first:
            yield _segment(schedule, now, group.first, left=False)
        yield _segment(schedule, group.first, group.last + 1, left=True)
        now = group.last + 1
    if now < steps or not steps:
        yield _segment(schedule, now, steps, left=False)


def _segment(schedule: Schedule, first: int, end: int, left: bool) -> Segment:
    block = schedule.block
    steps, last = block.steps[first:end], last_uses(block)
    made = {value for step in steps for value in step.results}
    read = dict.fromkeys(value for step in steps for value in step.operands if value not in made)
    if not steps:
        read = dict.fromkeys(block.inputs)
    needed = tuple(value for value in sorted(made) if last.get(value, -1) >= end) or block.outputs
    within = tuple(
        replace(group, first=group.first - first, last=group.last - first)
        for group in schedule.together
        if first <= group.first and group.last < end and not left
    )
    part = Block(block.values, tuple(read), needed, steps)
    return Segment(first, replace(schedule, block=part, together=within), left)


def candidates(schedule: Schedule) -> Iterator[tuple[Schedule, Together]]:
    """Every group there can be, on the steps in an order in which it is in one piece: of each product what is gathered
    for it alone, each array by itself and all, and what reduces its result, or gathers it."""
    if not may_be_grouped(schedule):
        return
    for place, step in enumerate(schedule.steps):
        if not isinstance(step.op, Einsum):
            continue
        gathers, after = _before(schedule.block, place), _after(schedule.block, place)
        some = [*([each] for each in gathers), *([gathers] if len(gathers) > 1 else [])]
        for behind in ([], after) if after else ([],):
            for before in ([], *some):
                if before or behind:
                    ordered, group = _gathered(schedule, place, before, len(behind))
                    if as_one(ordered, group) is not None and not _is_crossed_by_sums(ordered, group):
                        yield ordered, group
                    yield from ((ordered, each) for each in rings(ordered, group))
                    yield from _if_possible(ordered, group, How.RINGS)
                    yield from _if_possible(ordered, group, How.CHUNKS)
        behind_it = Together(place, place + len(_behind(schedule.block, place)), How.CHUNKS)
        yield from _if_possible(schedule, behind_it, How.CHUNKS)


def _if_possible(schedule: Schedule, group: Together, how: How) -> Iterator[tuple[Schedule, Together]]:
    found = replace(group, how=how)
    if as_one(schedule, found) is not None:
        yield schedule, found


def _before(block: Block, place: int) -> list[int]:
    """The places of the steps that gather an operand for this product alone."""
    last, readers = last_uses(block), block.steps[place].operands
    found = []
    for operand in dict.fromkeys(readers):
        made = next((n for n, step in enumerate(block.steps[:place]) if operand in step.results), None)
        users = [step for step in block.steps if operand in step.operands]
        if made is not None and block.steps[made].op.facts.kind is Kind.GATHER:
            found += [made] if len(users) == 1 and last.get(operand) == place else []
    return found


def _after(block: Block, place: int) -> list[int]:
    """The step that sums this product's result, if it is the next and alone reads it."""
    return [at for at in _behind(block, place) if _sums(block.steps[at].op)]


def _behind(block: Block, place: int) -> list[int]:
    """The next step, if it alone reads this one's result."""
    result = block.steps[place].result
    following = block.steps[place + 1 : place + 2]
    if not following or following[0].operands != (result,) or last_uses(block).get(result) != place + 1:
        return []
    return [place + 1]


def _sums(op: Op) -> bool:
    return op.facts.kind is Kind.SCATTER or (isinstance(op, AllReduce) and op.reduction == SUM)


def _gathered(schedule: Schedule, place: int, before: list[int], behind: int) -> tuple[Schedule, Together]:
    """The steps with those gathers just before the product, and the group."""
    steps = list(schedule.steps)
    moved = [steps[n] for n in before]
    kept = [step for n, step in enumerate(steps[:place]) if n not in before]
    ordered = (*kept, *moved, *steps[place:])
    first = place - len(before)
    block = replace(schedule.block, steps=ordered)
    return replace(schedule, block=block), Together(first, place + behind, How.PARTITIONER)


def _is_crossed_by_sums(schedule: Schedule, group: Together) -> bool:
    """Whether partial sums, or what JAX cannot type, would be held across a cut."""
    block, last = schedule.block, last_uses(schedule.block)
    made = {value: place for place, step in enumerate(block.steps) for value in step.results}
    held = (v for cut in (group.first, group.last + 1) for v, n in made.items() if n < cut <= last.get(v, -1))
    return any(block.values[value].sharding.unreduced for value in held)


def apart(found: Iterable[_T], group_of: Callable[[_T], tuple[Schedule, Together]]) -> list[_T]:
    """Of these those whose group holds no step of one before: a product is in one, and so is a gather that lies behind
    one product and before another."""
    taken, kept = set[ValueNumber](), list[_T]()
    for each in found:
        values = _values(*group_of(each))
        if taken.isdisjoint(values):
            taken |= values
            kept.append(each)
    return kept


def _values(schedule: Schedule, group: Together) -> frozenset[ValueNumber]:
    """What the steps of a group leave."""
    return frozenset(step.results[0] for step in schedule.steps[group.first : group.last + 1])


def all_of(schedule: Schedule, groups: Sequence[tuple[Schedule, Together]]) -> Schedule:
    """Several groups at once, no two with a step in common, on the steps in an order in which each is in one piece.

    Without those that cannot be done so beside the others, whose cuts make outputs of what they leave.
    """
    steps, held = list(schedule.steps), list[tuple[frozenset[ValueNumber], Together]]()
    for ordered, group in groups:
        values = _values(ordered, group)
        inside = [step for step in steps if step.results and step.results[0] in values]
        place = next(n for n, step in enumerate(steps) if step in inside and isinstance(step.op, Einsum))
        before, after = ([step for step in part if step not in inside] for part in (steps[:place], steps[place:]))
        steps = [*before, *inside, *after]
        held.append((values, group))
    places = {step.results[0]: place for place, step in enumerate(steps) if step.results}
    found = [
        replace(group, first=min(places[v] for v in some), last=max(places[v] for v in some)) for some, group in held
    ]
    in_order = tuple(sorted(found, key=lambda group: group.first))
    return _possible(replace(schedule, block=replace(schedule.block, steps=tuple(steps)), together=in_order))


def _possible(schedule: Schedule) -> Schedule:
    if all(group.how is not How.PARTITIONER for group in schedule.together):
        return schedule
    refused = {
        part.first + group.first
        for part in segments(schedule)
        for group in part.schedule.together
        if as_one(part.schedule, group) is None
    }
    return replace(schedule, together=tuple(group for group in schedule.together if group.first not in refused))


def spelled(schedule: Schedule, group: Together) -> str:
    """`AllGather_X and Einsum as one, XLA's to split`."""
    steps = schedule.steps[group.first : group.last + 1]
    names = [step.name + (f"_{spell_axes(step.op.axes)}" if step.op.axes else "") for step in steps]
    return f"{', '.join(names)} {_HOW[group.how]}{', by number' if group.numbered else ''}"


_HOW = {How.PARTITIONER: "left to XLA", How.RING: "as a ring", How.RINGS: "as two rings", How.CHUNKS: "in chunks"}
