"""Memory as a compiler hands it out: in order of time, each buffer into the smallest gap that holds it; or, where that
reaches less far, the largest first, as the compiler for v5p was seen to take it.

Before an output is written its own buffer lies idle, and holds others: the largest first, of equals as the text has
them, in the smallest output, of equals in the last (so XLA assigns buffers). What
a program takes is how far the heap reaches, gaps included: 4 of three buffers of 1, 1 and 2 where the last fits in no
gap while the second lives (libtpu 0.0.42.1; what it reports of temporaries counts gaps once more,
`machines/laid_out.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shardc.cost.on_chip import Life, on_chip
from shardc.lowering import tpu
from shardc.lowering.held import lies_in_memory_in_trips, taken_by_brought

_ALIGNMENT = 512


@dataclass(slots=True)
class Heap:
    """`size` is how far it ever reached. A buffer that fits no gap goes to the end, into a gap there if there is one.

    Buffers of 1, 2 and 4, each alive with the next alone: 1 at 0, 2 at 1, then no gap for 4, so at 3. Size 7,
    though never more than 6 are in use.
    """

    size: int = 0
    _gaps: list[tuple[int, int]] = field(default_factory=list)
    _taken: dict[int, tuple[int, int]] = field(default_factory=dict)
    _count: int = 0

    def take(self, size: int) -> int:
        """A buffer of so many bytes; its number."""
        size = -(-size // _ALIGNMENT) * _ALIGNMENT
        fitting = [gap for gap in self._gaps if gap[1] - gap[0] >= size]
        if size == 0:
            start = 0
        elif fitting:
            start, end = gap = min(fitting, key=lambda gap: gap[1] - gap[0])
            self._gaps.remove(gap)
            if end - start > size:
                self._gaps.append((start + size, end))
        else:
            last = next((gap for gap in self._gaps if gap[1] == self.size), (self.size, self.size))
            self._gaps = [gap for gap in self._gaps if gap != last]
            start = last[0]
            self.size = start + size
        self._count += 1
        self._taken[self._count] = (start, start + size)
        return self._count

    def give_back(self, number: int) -> None:
        start, end = self._taken.pop(number)
        if start == end:
            return
        kept = []
        for low, high in self._gaps:
            if high == start:
                start = low
            elif low == end:
                end = high
            else:
                kept.append((low, high))
        self._gaps = [*kept, (start, end)]


class _Order(NamedTuple):
    """That a buffer is taken, or given back, and when."""

    at: int
    takes: bool
    number: int


@dataclass(slots=True)
class Buffers:
    """Buffers as they come and go; where each lies is found once all are known.

    An output of 4 that is written at the end; before, a buffer of 3, then one of 2 made from it, copied to the output:
    3 lies where the output will be, 2 among the temporaries. What stays on a chip with so much `room` lies in neither;
    in a trip of a loop no large ones do.
    """

    room: int = 0
    in_loop: bool = False
    or_largest_first: bool = False  # if the heap then reaches less far than in order of time
    near: int = 0  # bytes of what functions alone write, and no collective reads, on a chip without such room
    place: int = 0  # of the step that takes buffers, in the order of the text that is compiled
    _orders: list[tuple[bool, int]] = field(default_factory=list)  # taken or given back, and which, in order of time
    _sizes: list[int] = field(default_factory=list)
    _places: list[int] = field(default_factory=list)
    _apart: set[int] = field(default_factory=set)
    _in_memory: set[int] = field(default_factory=set)
    _brought: set[int] = field(default_factory=set)
    _first: set[int] = field(default_factory=set)
    _near: dict[int, bool] = field(default_factory=dict)  # of each that is written or read whether it may lie there
    _outputs: dict[int, int] = field(default_factory=dict)  # of each output when it is written
    _over: dict[int, int] = field(default_factory=dict)  # of what is written over another in memory, that
    _stays: set[int] = field(default_factory=set)  # those that lie in no output unless that does

    def take(self, size: int, apart: bool = False) -> int:
        """A buffer of so many bytes; its number. One `apart` lies in no output."""
        if apart:
            self._apart.add(len(self._sizes))
        self._sizes.append(size)
        self._places.append(self.place)
        self._orders.append((True, len(self._sizes) - 1))
        return len(self._sizes) - 1

    def take_over(self, number: int, stays: bool = False) -> int:
        """A buffer as large as another, which is given back: in its place if both lie in memory, and in no output if it
        `stays` there."""
        found = self.take(self._sizes[number], number in self._apart)
        self._stays |= {found} if stays else set()
        self._over[found] = number
        self.give_back(number)
        return found

    def brings(self, size: int, before_all: bool = False) -> int:
        """A copy on the chip of what lies in memory, for which others have less room there; its number. What is brought
        before all others has its place, whatever they need."""
        number = self.take(size, apart=True)
        self._brought.add(number)
        if before_all:
            self._first.add(number)
        return number

    def give_back(self, number: int) -> None:
        self._orders.append((False, number))

    def stays_in_memory(self, *numbers: int, even_small: bool = False) -> None:
        """The buffers never lie on the chip, but for small ones."""
        self._in_memory.update(number for number in numbers if even_small or tpu.off_chip(self._sizes[number]))

    def may_be_near(self, number: int, is_near: bool) -> None:
        """Whether what writes to the buffer or reads it allows that; all have to."""
        self._near[number] = is_near and self._near.get(number, True)

    def since(self, number: int) -> range:
        """The buffers taken after this one."""
        return range(number + 1, len(self._sizes))

    def becomes_output(self, number: int, is_filled: bool = False) -> None:
        """The buffer is an output's own: it stays, and counts among the outputs. One that `is_filled` from the start
        holds nothing else before."""
        self._outputs[number] = 0 if is_filled else self._orders.index((True, number))

    def is_empty(self, number: int | None) -> bool:
        """Whether it stands for an argument's buffer."""
        return number is not None and not self._sizes[number]

    def fits_twice_on_chip(self, number: int) -> bool:
        return 2 * self._sizes[number] <= self.room

    def is_apart(self, number: int) -> bool:
        return number in self._apart

    def is_output(self, number: int) -> bool:
        return number in self._outputs

    @property
    def temporary_bytes(self) -> int:
        """How far the heap reaches of those that lie in no output."""
        return sum(self.temporaries)

    @property
    def temporaries(self) -> tuple[int, ...]:
        """The bytes of each buffer that is there when the heap reaches farthest; the last is what lies between them."""
        orders, heap, found, there = self._in_heap(), Heap(), dict[int, int](), list[int]()
        for _, takes, number in orders:
            if takes:
                reached = heap.size
                found[number] = heap.take(self._sizes[number])
                there = list(found) if heap.size > reached else there
            else:
                heap.give_back(found.pop(number))
        size = heap.size
        if self.or_largest_first and (least := self._largest_first(orders)) < size:
            size, there = least, self._most_at_once(orders)
        sizes = [self._sizes[number] for number in there]
        return (*sizes, size - sum(sizes))

    @property
    def most_bytes(self) -> int:
        """The bytes of all buffers, outputs too, when most are there."""
        orders = self._in_place(_Order(at, takes, number) for at, (takes, number) in enumerate(self._orders))
        return sum(self._sizes[number] for number in self._most_at_once(orders))

    def _largest_first(self, orders: Sequence[_Order]) -> int:
        """How far buffers reach that are placed so, each in the smallest gap that is free all the time it lives."""
        spans = self._spans(orders)
        placed: list[tuple[int, int, int, int]] = []
        for number in sorted(spans, key=lambda each: (-self._sizes[each], spans[each])):
            size = -(-self._sizes[number] // _ALIGNMENT) * _ALIGNMENT
            start, end = spans[number]
            gaps, at = list[tuple[int, int]](), 0
            for low, high, _, _ in sorted(each for each in placed if each[2] < end and start < each[3]):
                if low - at >= size:
                    gaps.append((low - at, at))
                at = max(at, high)
            place = min(gaps)[1] if gaps else at
            placed.append((place, place + size, start, end))
        return max((high for _, high, _, _ in placed), default=0)

    def _most_at_once(self, orders: Sequence[_Order]) -> list[int]:
        """The buffers that are there when most bytes are."""
        there, now, most, found = dict[int, None](), 0, 0, list[int]()
        for _, takes, number in orders:
            now += self._sizes[number] if takes else -self._sizes[number]
            if takes:
                there[number] = None
            else:
                del there[number]
            if now > most:
                most, found = now, [*there]
        return found

    def _in_heap(self) -> list[_Order]:
        """Of what lies neither on the chip nor in outputs."""
        orders = [_Order(at, takes, number) for at, (takes, number) in enumerate(self._orders)]
        kept = self._on_chip(self._spans(orders))
        spans = {number: span for number, span in self._spans(orders).items() if number not in kept}
        within = self._within_outputs(spans)
        return self._in_place([order for order in orders if order.number not in kept and order.number not in within])

    def _on_chip(self, spans: Mapping[int, tuple[int, int]]) -> set[int]:
        if self.in_loop:
            self._in_memory.update(number for number in spans if lies_in_memory_in_trips(self._sizes[number]))
        may_lie_there = spans.keys() - self._outputs.keys() - self._in_memory
        lives = {number: Life(self._sizes[number], *spans[number]) for number in may_lie_there}
        if self.near and not self.in_loop:
            lives = {number: life for number, life in lives.items() if self._near.get(number)}
        for number in self._first & lives.keys():
            lives[number] = lives[number]._replace(size=taken_by_brought(self._sizes[number]))
        return on_chip(lives, self.room or (0 if self.in_loop else self.near), self._first) | self._brought

    def _in_place(self, orders: Iterable[_Order]) -> list[_Order]:
        """One buffer of those of which one is written over the other, the first."""
        lies, taken, left, found = dict[int, int](), set[int](), set[int](), list[_Order]()
        for order in orders:
            over = self._over.get(order.number)
            if order.takes and over in taken:
                lies[order.number] = lies.get(over, over)
                left.add(over)
            elif order.takes or order.number not in left:
                found.append(order._replace(number=lies.get(order.number, order.number)))
            taken.add(order.number)
        return found

    def _within_outputs(self, spans: Mapping[int, tuple[int, int]]) -> set[int]:
        """The outputs, and what lies in them before they are written, the largest first: where that lies over which it
        is written, else in the smallest that has room, of equals in the one that comes last."""
        outputs = sorted(self._outputs, key=lambda number: (self._sizes[number], -self._places[number], -number))
        holds: dict[int, list[tuple[int, int, int]]] = {
            number: [(self._outputs[number], len(self._orders), number)] for number in outputs
        }
        within = {number: number for number in outputs}
        for number in sorted(spans, key=lambda each: (-self._sizes[each], self._places[each], each)):
            if number in within or number in self._apart:
                continue
            over = within.get(self._over.get(number, -1))
            if over is None and number in self._stays:
                continue
            for output in outputs if over is None else [over, *outputs]:
                if self._sizes[number] <= self._sizes[output] and self._is_free(number, spans, holds[output]):
                    holds[output].append((*spans[number], number))
                    within[number] = output
                    break
        return set(within)

    def _is_free(
        self, number: int, spans: Mapping[int, tuple[int, int]], holds: Iterable[tuple[int, int, int]]
    ) -> bool:
        """Whether nothing else lies there while a buffer lives: what is written over another is there as that ends."""
        start, end = spans[number]

        def is_beside(low: int, high: int, other: int) -> bool:
            comes_behind = self._over.get(number) == other and high == start + 1
            comes_before = self._over.get(other) == number and end == low + 1
            return end <= low or high <= start or comes_behind or comes_before

        return all(is_beside(*each) for each in holds)

    def _spans(self, orders: Iterable[_Order]) -> dict[int, tuple[int, int]]:
        """From when to when each buffer lives."""
        found: dict[int, tuple[int, int]] = {}
        for at, takes, number in orders:
            found[number] = (at, len(self._orders)) if takes else (found[number][0], at)
        return found
