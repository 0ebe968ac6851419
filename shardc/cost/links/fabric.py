"""A torus as it is wired: chips, a link each way between neighbours, and the devices of a mesh on the chips.

What a group of devices has of the links follows from where its chips are, and not from the names of mesh axes:

    4×4, not closed, chips (0, 0) (1, 0) (2, 0) (3, 0)     a line of four
    a ring of 4, chips 1 and 3                             a ring of two, which skips every other chip
    4×4, chips (0, 0) (1, 1)                               no line: two corners, and blocks that go two ways round

A block goes to another chip along one axis after the other, in every order of the axes alike, on a ring the shorter
way round, half each way where both are as short. So no axis comes before another, and a relabelled torus is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise, product
from math import factorial, prod

from shardc.cost.chips import Chip
from shardc.cost.layout import LINE, ONE_WAY, RING
from shardc.cost.links.level import Traffic, Wire
from shardc.cost.topology import Laid, Place

FORWARD, BACKWARD = 0, 1
Groups = Sequence[Sequence[int]]  # device numbers


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
    _ways: dict[tuple[int, int], tuple[int, tuple[tuple[int, int], ...]]] = field(default_factory=dict, init=False)

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
        loads, hops = self._loads(pairs), max((self._way(*pair)[0] for pair in pairs), default=0)
        most = max(loads.values(), default=0)
        return Traffic(most / self._unit / parts / self.link, hops, _mask(loads))

    def wires(self, pairs: Groups, block: float) -> Iterator[Wire]:
        """Every link, with what it carries of a block of so many bytes from the first to the second of each pair."""
        loads = self._loads(pairs)
        for at in product(*map(range, self.laid.shape)):
            for axis, size in enumerate(self.laid.shape):
                if at[axis] < (size - 1 if self.kinds[axis] == LINE else size) and size > 1:
                    ways = (loads[self._bit(axis, way, at)] * block / self._unit for way in (FORWARD, BACKWARD))
                    yield Wire(at, axis, *ways)

    def _loads(self, pairs: Groups) -> Counter[int]:
        loads: Counter[int] = Counter()
        for source, target in pairs:
            for link, share in self._way(source, target)[1]:
                loads[link] += share
        return loads

    @property
    def _unit(self) -> int:
        """A block, in the least part of one that goes its own way."""
        return 2 * factorial(len(self.kinds))

    def _way(self, source: int, target: int, /) -> tuple[int, tuple[tuple[int, int], ...]]:
        """How many hops a block goes, and its shares of links."""
        if (source, target) not in self._ways:
            loads: Counter[int] = Counter()
            hops = self._load(loads, self.laid.place(source), self.laid.place(target))
            self._ways[source, target] = hops, tuple(loads.items())
        return self._ways[source, target]

    def _load(self, loads: Counter[int], at: Place, goal: Place) -> int:
        """Adds a block's way, and says how many hops it is."""
        differ = [axis for axis, (here, there) in enumerate(zip(at, goal, strict=True)) if here != there]
        hops = 0
        for axis in differ:
            steps = list(self._steps(axis, at[axis], goal[axis]))
            hops += max(len(positions) for _, positions in steps)
            for count, before in _before(axis, differ):
                share = self._unit // len(steps) * factorial(count) * factorial(len(differ) - 1 - count)
                share //= factorial(len(differ))
                row = [goal[other] if other in before else at[other] for other in range(len(at))]
                for way, positions in steps:
                    for position in positions:
                        row[axis] = position
                        loads[self._bit(axis, way, row)] += share
        return hops

    def _steps(self, axis: int, at: int, goal: int) -> Iterator[tuple[int, list[int]]]:
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


def _before(axis: int, differ: list[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
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
