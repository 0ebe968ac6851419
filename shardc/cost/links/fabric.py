"""A torus as it is wired: chips, a link each way between neighbours, and the devices of a mesh on the chips.

What a group of devices has of the links follows from where its chips are, and not from the names of mesh axes:

    4×4, not closed, chips (0, 0) (1, 0) (2, 0) (3, 0)     a line of four
    a ring of 4, chips 1 and 3                             a ring of two, which skips every other chip
    4×4, chips (0, 0) (1, 1)                               no line: two corners, and blocks that go two ways round

A block goes to another chip along one axis after the other, in every order of the axes alike, on a ring the shorter
way round, half each way where both are as short. So no axis comes before another, and a relabelled torus is the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise, product
from math import factorial, prod
from typing import TypeAlias

from shardc.cost.chips import Chip
from shardc.cost.layout import LINE, ONE_WAY, RING
from shardc.cost.links.level import Traffic, Wire
from shardc.cost.topology import Laid

FORWARD, BACKWARD = 0, 1
Groups = Sequence[Sequence[int]]  # device numbers
Shares: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]  # and the links that carry one of so many parts


@dataclass(frozen=True, slots=True)
class Run:
    """Chips of a group along a physical axis: `starts` in order, `stride` apart, closed to a ring or not."""

    axis: int
    starts: tuple[int, ...]
    stride: int
    shape: str

    @property
    def size(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True, eq=False)
class Fabric:
    """`kinds` says of each physical axis which of layout.SHAPES it is; `link` is B/s one way."""

    laid: Laid
    kinds: tuple[str, ...]
    link: float
    _ways: dict[tuple[int, int], tuple[int, Shares]] = field(default_factory=dict, init=False)
    _turns: dict[tuple[int, ...], list[tuple[int, int, tuple[int, ...]]]] = field(default_factory=dict, init=False)
    _along: dict[tuple[int, int, int], tuple[tuple[int, ...], ...]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, laid: Laid, chip: Chip, told: Mapping[str, str]) -> Fabric:
        """By the chip's rule, but for what is told of a mesh axis that runs along: the outermost counts."""
        wraps = chip.wraps(laid.shape)
        kinds = [RING if closed else LINE for closed in wraps]
        for axis in range(len(kinds)) if told else ():
            for name in laid.names(axis):
                kinds[axis] = told.get(name, kinds[axis])
        return cls(laid, tuple(kinds), chip.link_bandwidth)

    def box(self, group: Sequence[int]) -> tuple[Run, ...] | None:
        """The runs whose product a group's chips are; None where they are none."""
        places = [self.laid.place(device) for device in group]
        found: list[Run] = []
        for axis, values in enumerate(map(set, zip(*places, strict=True))):
            run = self._run(axis, sorted(values)) if len(values) > 1 else None
            if run is not None:
                found.append(run)
            elif len(values) > 1:
                return None
        return tuple(found) if prod(run.size for run in found) == len(set(places)) == len(places) else None

    def _run(self, axis: int, values: list[int]) -> Run | None:
        kind, whole = self.kinds[axis], self.laid.shape[axis]
        gaps = [high - low for low, high in pairwise(values)]
        if kind == LINE:
            return Run(axis, tuple(values), gaps[0], LINE) if len(set(gaps)) == 1 else None
        gaps.append(values[0] + whole - values[-1])
        if len(set(gaps)) == 1:
            return Run(axis, tuple(values), gaps[0], kind)
        cut = gaps.index(max(gaps)) + 1  # open where the gap is widest: 3 0 1 of a ring of 4 begins at 3
        values, gaps = values[cut:] + values[:cut], gaps[cut:] + gaps[: cut - 1]
        shape = LINE if kind == RING else kind
        return Run(axis, tuple(values), gaps[0], shape) if len(set(gaps)) == 1 else None

    def traffic(self, pairs: Groups, parts: int = 1) -> Traffic:
        """A `parts`-th of a block from the first to the second of each pair."""
        loads, hops = self._loads(pairs)
        most = max(loads.values(), default=0)
        return Traffic(most / self._unit / parts / self.link, hops, _mask(loads))

    def wires(self, pairs: Groups, block: float) -> Iterator[Wire]:
        """Every link, with what it carries of a block of so many bytes from the first to the second of each pair."""
        loads, _ = self._loads(pairs)
        for at in product(*map(range, self.laid.shape)):
            for axis, size in enumerate(self.laid.shape):
                if at[axis] < (size - 1 if self.kinds[axis] == LINE else size) and size > 1:
                    ways = (loads[self._bit(axis, way, at)] * block / self._unit for way in (FORWARD, BACKWARD))
                    yield Wire(at, axis, *ways)

    def _loads(self, pairs: Groups) -> tuple[Counter[int], int]:
        """What each link carries, and the most hops. There are hundreds of pairs, and few shares: equal ones are
        counted together.
        """
        carrying, most = defaultdict[int, list[int]](list), 0
        for source, target in pairs:
            hops, shares = self._ways.get((source, target)) or self._way(source, target)
            most = max(most, hops)
            for share, links in shares:
                carrying[share] += links
        loads: Counter[int] = Counter()
        for share, along in carrying.items():
            found = Counter(along)
            loads.update(found if share == 1 else dict(zip(found, map(share.__mul__, found.values()), strict=True)))
        return loads, most

    @property
    def _unit(self) -> int:
        """A block, in the least part of one that goes its own way."""
        return 2 * factorial(len(self.kinds))

    def _way(self, source: int, target: int, /) -> tuple[int, Shares]:
        """How many hops a block goes, and its shares of links; kept, since many moves send along it."""
        at, goal = self.laid.place(source), self.laid.place(target)
        differ = tuple(axis for axis, (here, there) in enumerate(zip(at, goal, strict=True)) if here != there)
        hops, carrying = 0, defaultdict[int, list[int]](list)
        for axis, parts, before in self._orders(differ):
            steps = self._steps(axis, at[axis], goal[axis])
            hops += 0 if before else max(map(len, steps))
            row = [goal[other] if other in before else at[other] for other in range(len(at))]
            row[axis] = 0
            first = self._bit(0, FORWARD, row)
            for links in steps:
                carrying[parts // len(steps)] += map(first.__add__, links)
        found = hops, tuple((share, tuple(links)) for share, links in carrying.items())
        self._ways[source, target] = found
        return found

    def _orders(self, differ: tuple[int, ...]) -> list[tuple[int, int, tuple[int, ...]]]:
        """Each axis, how large a part of a block goes along it behind which others."""
        found = self._turns.get(differ)
        if found is None:
            found = self._turns[differ] = []
            for axis in differ:
                for count, before in _before(axis, differ):
                    orders = factorial(count) * factorial(len(differ) - 1 - count)
                    found.append((axis, self._unit * orders // factorial(len(differ)), before))
        return found

    def _steps(self, axis: int, at: int, goal: int) -> tuple[tuple[int, ...], ...]:
        """The links on each way that a block goes along an axis, where the chips are 0 along all others."""
        found = self._along.get((axis, at, goal))
        if found is None:
            next_one = prod(self.laid.shape[axis + 1 :])  # from the number of a link to that of the next on the axis
            none = [0] * len(self.laid.shape)
            found = self._along[axis, at, goal] = tuple(
                tuple(self._bit(axis, way, none) + each * next_one for each in lower)
                for way, lower in self._both(axis, at, goal)
            )
        return found

    def _both(self, axis: int, at: int, goal: int) -> Iterator[tuple[int, list[int]]]:
        """Each way that a block goes along an axis, and the links on it, each by the lower of its ends."""
        size, kind = self.laid.shape[axis], self.kinds[axis]
        if kind == LINE:
            yield (FORWARD, list(range(at, goal))) if goal > at else (BACKWARD, list(range(goal, at)))
            return
        ahead = (goal - at) % size
        if 2 * ahead <= size or kind == ONE_WAY:
            yield FORWARD, [(at + step) % size for step in range(ahead)]
        if 2 * ahead >= size and kind == RING:
            yield BACKWARD, [(at - step - 1) % size for step in range(size - ahead)]

    def _bit(self, axis: int, way: int, place: Sequence[int]) -> int:
        number = 2 * axis + way
        for at, size in zip(place, self.laid.shape, strict=True):
            number = number * size + at
        return number

    def links(self, group: Sequence[int], box: Iterable[Run]) -> int:
        """The links between the chips of a box, both ways where there are two."""
        found: set[int] = set()
        for run in box:
            size, is_open = self.laid.shape[run.axis], run.shape == LINE
            starts = run.starts[:-1] if is_open else run.starts
            between = [(start + step) % size for start in starts for step in range(run.stride)]
            if run.shape == ONE_WAY:  # the way back to the first is all the way round
                between = list(range(size))
            for device in group:
                row = list(self.laid.place(device))
                for row[run.axis] in between:
                    found.add(self._bit(run.axis, FORWARD, row))
                    if run.shape != ONE_WAY:
                        found.add(self._bit(run.axis, BACKWARD, row))
        return _mask(found)


def _before(axis: int, differ: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The axes that a block may have gone along before this one, and how many they are."""
    others = [other for other in differ if other != axis]
    for count in range(len(others) + 1):
        for before in combinations(others, count):
            yield count, before


def _mask(bits: Iterable[int]) -> int:
    numbers = list(bits)
    found = bytearray(max(numbers, default=0) // 8 + 1)
    for number in numbers:
        found[number // 8] |= 1 << number % 8
    return int.from_bytes(found, "little")
