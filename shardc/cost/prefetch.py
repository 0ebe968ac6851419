"""What the compiler sends beside a product that does not wait for it: the two take as long as the longer.

    A = AllGather A; T = A · B; C = AllGather C; y = T · C        A; then C beside T; then y
    W = Permute W; Q = x · W; V = Permute V; K = x · V            W; then V beside Q; then K

A CollectivePermute is begun as soon as it may be, one after another; what reads it waits. On v5p the steps are done as
they stand, and what is sent later in the text begins where one waits for what is sent: were nothing awaited before Q
above, V would be sent after it. For v5e libtpu takes the steps of a block in an order of its own. As seen, of those
that are ready it does

    first      what is neither sent nor a product that sums over a dim
    then       a product, and beside it a gather, which may go on beside the next; one gather at a time
    then       collectives; before a product that has nothing beside it, since after them there may be a gather

A gather of what a product left, to an output alone, is a collective as others are, where other gathers wait for it
(`cost.held_up`). What is done as one (`Together`) is sent with its product, and has no other gather beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from shardc.cost.held_up import held_up, multiplies
from shardc.cost.model import CostModel
from shardc.cost.together import group_s, time_together
from shardc.ir.operations import Kind
from shardc.ir.plan import Loop, Schedule, Step, Together, ValueNumber
from shardc.ir.sharding import Array
from shardc.lowering.timed import gathers_beside_products, hides_permutes

Held: TypeAlias = Mapping[ValueNumber, Set[ValueNumber]]
GroupTime: TypeAlias = Callable[[Schedule, Together, CostModel], float]  # seconds of a group


class _Kind(Enum):
    """What the order depends on."""

    OTHER = "other"
    PRODUCT = "product"
    GATHER = "gather"
    PERMUTE = "permute"
    MOVE = "move"


class Work(NamedTuple):
    """A step by itself, or a group of them: their places, and the seconds that they take."""

    places: range
    kind: _Kind
    seconds: float


class Taken(NamedTuple):
    """A work, and when it is begun, in seconds."""

    work: Work
    start_s: float

    @property
    def end_s(self) -> float:
        return self.start_s + self.work.seconds


def time_of(schedule: Schedule, model: CostModel, grouped_s: GroupTime = group_s) -> float:
    """Seconds of all steps: those of a group as one, what is sent early beside products."""
    return max((each.end_s for each in in_order(schedule, model, grouped_s)), default=0.0)


def prefetched_s(schedule: Schedule, model: CostModel) -> float:
    """How many seconds less that is than one after another."""
    return max(0.0, time_together(schedule, model) - time_of(schedule, model))


def in_order(schedule: Schedule, model: CostModel, grouped_s: GroupTime = group_s) -> tuple[Taken, ...]:
    """The works of a block, as the compiler takes them; where it begins none early, as they stand."""
    held = held_up(schedule)
    works = list(_works(schedule, {value for ends in held.values() for value in ends}, model, grouped_s))
    if gathers_beside_products(model.target):
        return tuple(_taken(schedule.steps, works, held))
    if any(work.kind is _Kind.PERMUTE for work in works):
        return tuple(_as_they_stand(schedule.steps, works))
    return tuple(_one_by_one(works))


def _works(schedule: Schedule, alone: set[ValueNumber], model: CostModel, grouped_s: GroupTime) -> Iterator[Work]:
    """What the steps are; those that leave what other gathers wait for are sent `alone`."""
    sent, groups = _sent_early(schedule, model), {group.first: group for group in schedule.together}
    grouped = {place for group in schedule.together for place in group.places}
    for place, step in enumerate(schedule.steps):
        if (group := groups.get(place)) is not None:
            yield Work(group.places, _Kind.MOVE, grouped_s(schedule, group, model))
        elif place not in grouped:
            kind = _Kind.PERMUTE if place in sent else _kind(step, schedule.values)
            kind = kind if alone.isdisjoint(step.results) else _Kind.MOVE
            yield Work(range(place, place + 1), kind, _seconds(schedule, step, model))


def _sent_early(schedule: Schedule, model: CostModel) -> frozenset[int]:
    """The places of permutes that are read by what follows, and by no output: what these copy comes at the end."""
    if not (model.target.names_slice and hides_permutes(model.target)):
        return frozenset()
    read = {value for step in schedule.steps for value in step.operands}.difference(schedule.outputs)
    return frozenset(
        place
        for place, step in enumerate(schedule.steps)
        if step.op.facts.kind is Kind.PERMUTE and step.is_collective and read.issuperset(step.results)
    )


def _kind(step: Step, values: Sequence[Array]) -> _Kind:
    if step.op.facts.kind is Kind.GATHER:
        return _Kind.GATHER
    if step.is_collective:
        return _Kind.MOVE
    return _Kind.PRODUCT if multiplies(step, values) else _Kind.OTHER


def _seconds(schedule: Schedule, step: Step, model: CostModel) -> float:
    """Of a loop so many as of all its trips."""
    op = step.op
    return op.trips * time_of(schedule.inside(op), model) if isinstance(op, Loop) else step.cost.time_s


def _one_by_one(works: Sequence[Work]) -> Iterator[Taken]:
    now = 0.0
    for work in works:
        yield Taken(work, now)
        now += work.seconds


def _as_they_stand(steps: Sequence[Step], works: Sequence[Work]) -> Iterator[Taken]:
    """One after another but for permutes: each begins at its place, or before a step that waits for one."""
    made = {value: n for n, work in enumerate(works) for place in work.places for value in steps[place].results}
    reads = [{made[v] for place in work.places for v in steps[place].operands if v in made} for work in works]
    ends, now, links = dict[int, float](), 0.0, 0.0
    for number, work in enumerate(works):
        waits = max((ends[each] for each in reads[number] - {number}), default=0.0)
        for other in range(number, len(works)) if waits > now else (number,):
            if works[other].kind is _Kind.PERMUTE and other not in ends and ends.keys() >= reads[other]:
                begun = Taken(works[other], max(now, links, *(ends[each] for each in reads[other])))
                ends[other] = links = begun.end_s
                yield begun
        if number in ends:
            continue
        start = max(now, waits, links if work.kind in (_Kind.GATHER, _Kind.MOVE) else 0.0)
        yield Taken(work, start)
        ends[number] = now = start + work.seconds


def _taken(steps: Sequence[Step], works: Sequence[Work], held: Held) -> Iterator[Taken]:
    """By the rule above; of equals the first in the plan. Gathers that are `held` up wait for others."""
    ready, now, sent = _Ready(steps, works, held), 0.0, None
    links, permuted = 0.0, list[Taken]()  # when the links are free of what is sent early; permutes that have not ended
    while True:
        while (permute := ready.take(_Kind.PERMUTE)) is not None:
            permuted.append(Taken(permute, max(now, links)))
            links = permuted[-1].end_s
            yield permuted[-1]
        if permuted and permuted[0].end_s <= now:
            ready.finish(permuted.pop(0).work)
            continue
        if sent is not None and sent.end_s <= now:
            ready.finish(sent.work)
            sent = None
            continue
        work = ready.take(_Kind.OTHER)
        if work is None and (sent is not None or ready.has(_Kind.GATHER) or not ready.has(_Kind.MOVE)):
            work = ready.take(_Kind.PRODUCT)
            gather = None if work is None or sent is not None else ready.take(_Kind.GATHER)
            if gather is not None:
                sent = Taken(gather, max(now, links))
                links = sent.end_s
                yield sent
        if work is None and (sent is not None or permuted):
            now = min(each.end_s for each in (sent, *permuted) if each is not None)
            continue
        if work is None:
            work = ready.take(_Kind.GATHER, _Kind.MOVE)
        if work is None:
            assert not ready.is_waited_for, "no step waits for itself"
            return
        yield Taken(work, now)
        now += work.seconds
        ready.finish(work)


def _awaited(steps: Sequence[Step], held: Held) -> list[set[ValueNumber]]:
    """What has to be there before each step: its operands, and of a product what else is done with its tiles. So in
    `z = x · W + AllGather_X(y)` nothing hides the gather. What comes of the product itself it does not wait for: in
    `S = x · W; P = S - logsumexp(S)` the difference is computed after it."""
    found = [{*step.operands, *(value for each in step.results for value in held.get(each, ()))} for step in steps]
    makers = {value: place for place, step in enumerate(steps) for value in step.results}
    for place, step in reversed([*enumerate(steps)]):
        is_in_place = step.cost.if_sent is not None or not step.cost.time_s
        tiles = {step.operands[each] for each in step.cost.in_tiles if is_in_place}
        for maker in {makers[value] for value in tiles if value in makers}:
            others = found[place] - tiles
            if not others <= found[maker] and maker not in _behind(others, found, makers):
                found[maker] |= others
    return found


def _behind(values: set[ValueNumber], awaited: list[set[ValueNumber]], makers: dict[ValueNumber, int]) -> set[int]:
    """The steps that these values wait for, one after another."""
    found, left = set[int](), [*values]
    while left:
        place = makers.get(left.pop())
        if place is not None and place not in found:
            found.add(place)
            left += awaited[place]
    return found


class _Ready:
    """The works whose operands are there, of each kind the first first."""

    def __init__(self, steps: Sequence[Step], works: Sequence[Work], held: Held) -> None:
        made = {value: n for n, work in enumerate(works) for p in work.places for value in steps[p].results}
        awaited = _awaited(steps, held)
        read = [{made.get(v, n) for p in work.places for v in awaited[p]} for n, work in enumerate(works)]
        self._works = works
        self._waits = [len(numbers - {n}) for n, numbers in enumerate(read)]
        self._readers = defaultdict[int, list[int]](list)
        for number, numbers in enumerate(read):
            for each in numbers - {number}:
                self._readers[each].append(number)
        self._numbers = {id(work): number for number, work in enumerate(works)}
        self._heaps: dict[_Kind, list[int]] = {kind: [] for kind in _Kind}
        for number, waits in enumerate(self._waits):
            if not waits:
                self._add(number)

    @property
    def is_waited_for(self) -> bool:
        """Whether some work still waits for another."""
        return any(self._waits)

    def has(self, kind: _Kind) -> bool:
        return bool(self._heaps[kind])

    def take(self, *kinds: _Kind) -> Work | None:
        """The first of these kinds, which is ready no more."""
        heaps = [heap for kind in kinds if (heap := self._heaps[kind])]
        return self._works[heappop(min(heaps) if len(heaps) > 1 else heaps[0])] if heaps else None

    def finish(self, work: Work) -> None:
        for reader in self._readers[self._numbers[id(work)]]:
            self._waits[reader] -= 1
            if not self._waits[reader]:
                self._add(reader)

    def _add(self, number: int) -> None:
        heappush(self._heaps[self._works[number].kind], number)
