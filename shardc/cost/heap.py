"""Memory as a compiler hands it out: in order of time, each buffer into the smallest gap that holds it."""

from __future__ import annotations

from dataclasses import dataclass, field

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
