"""The orders in which the TPU's compiler may take the steps of a block.

    W = AllGather W; T = x · W; V = AllGather V; y = T · V; dV = T · dy; dV = ReduceScatter dV

With these early both gathers come first, then T, dV and its ReduceScatter, and y last: V is there all the time.
Where dV and its ReduceScatter are done as a ring, all of its partial products come before y, and are added up after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shardc.cost.depth import with_inside
from shardc.cost.held_up import multiplies
from shardc.cost.inside import Inside
from shardc.ir.operations import Kind
from shardc.ir.plan import Block, How, Loop, Schedule, Step, ValueNumber

Waits: TypeAlias = Mapping[ValueNumber, Collection[ValueNumber]]  # of what a gather leaves, what is there before


@dataclass(frozen=True, slots=True)
class Rings:
    """Products done as rings that add up: the partial products, and the sums that end them."""

    begin: frozenset[int] = frozenset()
    end: frozenset[int] = frozenset()

    @classmethod
    def of(cls, schedule: Schedule) -> Rings:
        found = [schedule.steps[group.first : group.last + 1] for group in schedule.together if group.how is How.RING]
        sums = [steps for steps in found if steps[-1].op.facts.kind in (Kind.SCATTER, Kind.SUM)]
        begin = {value for steps in sums for step in steps[:-1] for value in step.results}
        return cls(frozenset(begin), frozenset(value for steps in sums for value in steps[-1].results))


def orders_early(block: Block, waits: Waits, rings: Rings) -> Iterator[tuple[Step, ...]]:
    """Each product's first operand made first, or its last; and collectives as early as may be.

    `waits` has of what a gather leaves the values that it waits for: it is no earlier.
    """
    yield operands_first(block, 1)
    yield operands_first(block, -1)
    yield _moves_first(block, waits, Rings(), set())
    if rings.end:
        yield _moves_first(block, waits, rings, set(rings.begin))
        yield _moves_first(block, waits, rings, _leading_to(block.steps, rings.begin))
        yield _moves_first(block, waits, rings, {*rings.begin, *_leading_to(block.steps, _gathered(block))})


def orders_of_least(block: Block, inside: Inside, sizes: Sequence[int]) -> Iterator[tuple[Step, ...]]:
    """Whatever leaves least in memory first, which of equals is taken; each product's first operand made first, or its
    last. What an AllGather leaves for the caller alone is gathered last. `sizes` has the bytes of each value."""
    read = {value for step in block.steps for value in step.operands}
    last = (_gathered(block) & {*block.outputs}) - read
    for steps in (_least_first(block, inside, sizes), operands_first(block, 1), operands_first(block, -1)):
        yield tuple(sorted(steps, key=lambda step: _are(step, last)))


def operands_first(block: Block, turn: int) -> tuple[Step, ...]:
    made = {value: place for place, step in enumerate(block.steps) for value in step.results}
    found: dict[int, Step] = {}
    pending = [(number, False) for number in reversed(block.outputs)]
    while pending:
        number, ready = pending.pop()
        place = made.get(number)
        if place is None or place in found:
            continue
        if ready:
            found[place] = block.steps[place]
        else:
            pending.append((number, True))
            pending += [(operand, False) for operand in block.steps[place].operands[::-turn]]
    return tuple(found.values())


def _least_first(block: Block, inside: Inside, sizes: Sequence[int]) -> tuple[Step, ...]:
    """Of the steps whose operands are there the one that gives back most, less what it makes; of equals the one that
    most steps read; of these the one that became so last, where inputs are there one by one, the last of them first."""
    left = [step for step in block.steps if not inside.has(step)]
    reads = {step.results: [ValueNumber(value) for value in inside.lying(step.operands)] for step in left}
    read = Counter(value for values in reads.values() for value in values) + Counter(block.outputs)
    waiting, ends = Counter(read), {*block.inputs, *block.outputs}
    there, found = set[int](block.inputs), list[Step]()
    gains = dict[tuple[int, ...], tuple[int, int, int]]()  # of each step that is ready, its readers, and since when
    places = {value: -place for place, value in enumerate(block.inputs)}

    def gained(step: Step) -> int:
        freed = sum(sizes[value] for value in reads[step.results] if value not in ends and waiting[value] == 1)
        return freed - sum(sizes[value] for value in step.results)

    while left:
        ready = [step for step in left if there.issuperset(reads[step.results])]
        for step in ready:
            known, gain = gains.get(step.results), gained(step)
            if known is None or known[0] != gain:
                since = len(found) or max((places[value] for value in reads[step.results]), default=-len(places))
                gains[step.results] = gain, sum(read[value] for value in step.results), since
        step = max(reversed(ready), key=lambda step: gains[step.results])
        left.remove(step)
        found.append(step)
        there.update(step.results)
        waiting.subtract(reads[step.results])
    return tuple(with_inside(block, inside, found))


def _moves_first(block: Block, waits: Waits, rings: Rings, first: set[int]) -> tuple[Step, ...]:
    """Of the steps whose operands are there a collective that is no sum, then one that makes what comes first, then one
    that leads to a collective, then the first. What ends a ring comes last. One gather is under way at a time: another
    begins when a product has been done beside it, or what it left is read."""
    wanted = {step.results for step in operands_first(block, 1)}
    left = [step for step in block.steps if step.results in wanted]
    leads = _leading_to(left, {value for step in left if step.is_collective for value in step.results})
    there, found, sent = set[int](block.inputs), list[Step](), set[int]()

    def turn(step: Step) -> tuple[bool, ...]:
        has_to_wait = bool(sent) and step.op.facts.kind is Kind.GATHER
        return has_to_wait, _are(step, rings.end), *_turn(step, first, leads)

    while left:
        ready = [step for step in left if there.issuperset(step.operands) and there.issuperset(_waits(step, waits))]
        step = min(ready, key=turn)
        if not sent.isdisjoint(step.operands):  # what was gathered is there: another gather may begin beside this
            sent = set()
            step = min(ready, key=turn)
        if step.op.facts.kind is Kind.GATHER:
            sent = {*step.results}
        elif isinstance(step.op, Loop) or multiplies(step, block.values):
            sent = set()
        left.remove(step)
        found.append(step)
        there.update(step.results)
    return tuple(found)


def permutes_first(steps: Iterable[Step], inputs: Iterable[int], goes_on: bool) -> tuple[Step, ...]:
    """The same order, but for permutes, with the slices that they read, each as soon as what it reads is there; then
    collectives that read what they left, if it `goes_on`, or those that do not, while none has been read."""
    left, there, waits, found = [*steps], {*inputs}, set[int](), list[Step]()
    sends = set[int](value for step in left if step.op.facts.kind is Kind.PERMUTE for value in step.operands)
    while left:
        ready = [step for step in left if there.issuperset(step.operands)]
        step = min(ready, key=lambda step: _turn_of_permute(step, sends, waits, goes_on))
        left.remove(step)
        found.append(step)
        there.update(step.results)
        waits.difference_update(step.operands)
        waits.update(step.results if step.op.facts.kind is Kind.PERMUTE else ())
    return tuple(found)


def _turn_of_permute(step: Step, sends: set[int], waits: set[int], goes_on: bool) -> tuple[bool, bool, bool]:
    """A permute, then what is cut for one, then a collective beside it or behind it."""
    kind = step.op.facts.kind
    is_cut_for_it = kind is Kind.SLICE and _are(step, sends)
    comes_next = step.is_collective and bool(waits) and waits.isdisjoint(step.operands) is not goes_on
    return kind is not Kind.PERMUTE, not is_cut_for_it, not comes_next


def _turn(step: Step, *before: set[int]) -> tuple[bool, ...]:
    """Less of what goes before: a collective, then what makes the first of these values, then the next."""
    return not may_be_hidden(step), *(not _are(step, values) for values in before)


def _gathered(block: Block) -> set[int]:
    """What AllGathers leave."""
    return {step.result for step in block.steps if step.op.facts.kind is Kind.GATHER}


def _are(step: Step, values: Collection[int]) -> bool:
    """Whether a step leaves any of these."""
    return any(value in values for value in step.results)


def _waits(step: Step, waits: Waits) -> list[ValueNumber]:
    return [each for value in step.results for each in waits.get(value, ())]


def may_be_hidden(step: Step) -> bool:
    return step.is_collective and step.op.facts.kind is not Kind.SUM


def _leading_to(steps: Sequence[Step], values: Collection[int]) -> set[int]:
    """These values, where a step makes them, and those that one of them is made of."""
    found = set[int](values)
    for step in reversed(steps):
        if not found.isdisjoint(step.results):
            found.update(step.operands)
    return found
