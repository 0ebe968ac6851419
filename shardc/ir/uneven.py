"""An exchange between any two shardings, in pieces of unequal sizes: who sends what to whom, and in which round.

Blocks before and after cut a dim at different places. Cut at all of these, it falls into cells of one size:

    A[I_X] → A[I_Y], X=2, Y=3       6 cells; a device holds a half, 3 of them, and wants a third, 2

A device asks for the cells that it wants and does not hold. Those of one block are asked of the devices that hold it,
in turn. In a round of one cell each device sends one at most and receives one at most.

As many rounds as the busiest device receives, R cells, are enough. Of w cells that each device wants it keeps k at
least, so R = w - k. A block that lies on h devices is wanted as often as any other, h·w cells in all, of which its
own holders keep h·k at least: h·R are left, R for each. Senders and receivers of R cells at most are the two sides of
a graph whose edges R colours colour (König), and a colour is a round. So nothing but what the busiest device needs is
ever brought, whatever the two shardings. Rounds between the same pairs of devices are one, of several cells.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TypeAlias

from shardc.ir.exchange import Tail, moved, tails
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes

# In the tables of an exchange, which are written out in the code: some 100 kB of text. So there are 128 rounds at most:
# of d devices each asks for R cells of the w that it wants, R ≤ w ≤ d, and d·(R + w) numbers are not more.
MAX_NUMBERS = 2**15

Pair: TypeAlias = tuple[int, int]  # from which device to which
_Edges: TypeAlias = list[dict[int, int]]  # of each sender its receivers, and how many cells they are still to get


@dataclass(frozen=True, slots=True)
class Cells:
    """Of each dim: how many cells a block has before, and after."""

    held: tuple[int, ...]
    wanted: tuple[int, ...]
    kept: int  # that every device holds of those it wants

    @property
    def block(self) -> int:
        return math.prod(self.held)

    @property
    def asked(self) -> int:
        """How many the busiest device asks for."""
        return math.prod(self.wanted) - self.kept


@dataclass(frozen=True, slots=True)
class Round:
    """One CollectivePermute. Devices are counted over the axes that move, in the order of the mesh.

    `cells` are those of its block that each device sends: as many on every device, the first where it sends nothing.
    """

    cells: tuple[tuple[int, ...], ...]
    pairs: tuple[Pair, ...]

    @property
    def count(self) -> int:
        """How many cells each device sends."""
        return len(self.cells[0])


@dataclass(frozen=True, slots=True)
class Timetable:
    """The rounds; and of each device where each cell of its new block is.

    That is a number among the cells of its old block and, after them, those that it received, in order of the rounds.
    """

    rounds: tuple[Round, ...]
    laid: tuple[tuple[int, ...], ...]


def cells(parts: tuple[Tail, ...]) -> Cells:
    """The cells of two shardings, by the tails of their dims."""
    every = [math.lcm(part.before, part.after) for part in parts]
    held = tuple(count // part.before for count, part in zip(every, parts, strict=True))
    wanted = tuple(count // part.after for count, part in zip(every, parts, strict=True))
    # Where a dim is cut by other axes than before, some device has nothing of what it wants: see `exchange.needed`.
    apart = any(part.old and part.new for part in parts)
    return Cells(held, wanted, 0 if apart else math.prod(map(min, held, wanted)))


def timetable(before: tuple[Axes, ...], after: tuple[Axes, ...], mesh: Mesh) -> Timetable | None:
    """The rounds between two shardings; None where nothing moves, or that takes too many numbers to write."""
    parts = tails(before, after, mesh)
    if not is_short(parts, mesh):
        return None
    return _timetable(parts, mesh)


def is_short(parts: tuple[Tail, ...], mesh: Mesh) -> bool:
    """Whether something moves, and that is short enough to be written."""
    return cells(parts).asked > 0 and numbers(parts, mesh) <= MAX_NUMBERS


def numbers(parts: tuple[Tail, ...], mesh: Mesh) -> int:
    """How many numbers the tables of an exchange have, by the tails of its dims."""
    found = cells(parts)
    return mesh.product(moved(parts, mesh)) * (found.asked + math.prod(found.wanted))


@lru_cache(maxsize=256)
def _timetable(parts: tuple[Tail, ...], mesh: Mesh) -> Timetable:
    found = cells(parts)
    wishes, laid = _wishes(parts, found, mesh)
    to_send = _shared_out(wishes, [_block(place, parts, mesh) for place in _places(parts, mesh)], found.asked)
    rounds, received = list[Round](), found.block
    for count, pairs in _colours({pair: len(asked) for pair, asked in to_send.items()}, len(laid), found.asked):
        sent = [(0,) * count for _ in laid]
        for sender, receiver in pairs:
            asked = to_send[sender, receiver]
            sent[sender] = tuple(cell for cell, _ in asked[:count])
            for number, (_, place) in enumerate(asked[:count]):
                laid[receiver][place] = received + number
            del asked[:count]
        rounds.append(Round(tuple(sent), pairs))
        received += count
    return Timetable(tuple(rounds), tuple(map(tuple, laid)))


@dataclass(frozen=True, slots=True)
class _Wish:
    """A device asks for a cell, by its place in the block that it is of, for a place in its own."""

    receiver: int
    cell: int
    place: int


def _wishes(
    parts: tuple[Tail, ...], grid: Cells, mesh: Mesh
) -> tuple[dict[tuple[int, ...], list[_Wish]], list[list[int]]]:
    """What is asked of each block; and of each device the cells of its old block that its new one has."""
    found, laid = dict[tuple[int, ...], list[_Wish]](), list[list[int]]()
    for device, place_of in enumerate(_places(parts, mesh)):
        own, laying = _block(place_of, parts, mesh), list[int]()
        wanted = [_number(part.new, place_of, mesh) for part in parts]
        spans = (range(n * count, (n + 1) * count) for n, count in zip(wanted, grid.wanted, strict=True))
        for place, cell in enumerate(product(*spans)):
            block = tuple(n // count for n, count in zip(cell, grid.held, strict=True))
            inside = 0
            for n, count in zip(cell, grid.held, strict=True):
                inside = inside * count + n % count
            laying.append(inside if block == own else 0)
            if block != own:
                found.setdefault(block, []).append(_Wish(device, inside, place))
        laid.append(laying)
    return found, laid


def _shared_out(
    wishes: dict[tuple[int, ...], list[_Wish]], blocks: Sequence[tuple[int, ...]], most: int
) -> dict[Pair, list[tuple[int, int]]]:
    """Of each pair of devices the (cell, place) to send: the holders of a block in turn, each no more than `most`."""
    holders: dict[tuple[int, ...], list[int]] = {}
    for device, block in enumerate(blocks):
        holders.setdefault(block, []).append(device)
    found: dict[Pair, list[tuple[int, int]]] = {}
    for block, asked in wishes.items():
        for number, wish in enumerate(asked):
            pair = holders[block][number // most], wish.receiver
            found.setdefault(pair, []).append((wish.cell, wish.place))
    return found


def _colours(counts: dict[Pair, int], devices: int, most: int) -> Iterator[tuple[int, tuple[Pair, ...]]]:
    """Rounds of so many cells between such pairs, `most` cells in all, the largest first.

    Every device sends and receives `most` or less. Beside each sender and receiver stands one that does not exist and
    makes up what is missing, so that all have as much to do, and some round always keeps all of them busy.
    """
    edges: _Edges = [{} for _ in range(2 * devices)]
    missing = [[most] * devices, [most] * devices]
    for (sender, receiver), count in counts.items():
        edges[sender][receiver] = edges[devices + receiver][devices + sender] = count
        missing[0][sender] -= count
        missing[1][receiver] -= count
    for device in range(devices):
        edges[device] |= {devices + device: missing[0][device]} if missing[0][device] else {}
        edges[devices + device] |= {device: missing[1][device]} if missing[1][device] else {}
    while most:
        count, matched = _longest_round(edges)
        yield count, tuple((sender, matched[sender]) for sender in range(devices) if matched[sender] < devices)
        for sender, receiver in enumerate(matched):
            edges[sender][receiver] -= count
            if not edges[sender][receiver]:
                del edges[sender][receiver]
        most -= count


def _longest_round(edges: _Edges) -> tuple[int, list[int]]:
    """The most cells that one round can have, and of each sender its receiver in it."""
    counts = sorted({count for receivers in edges for count in receivers.values()})
    too_many = bisect_left(counts, True, key=lambda count: _matching(edges, count) is None)
    count = counts[too_many - 1]
    found = _matching(edges, count)
    assert found is not None, "all have as much to do"
    return count, found


def _matching(edges: _Edges, least: int) -> list[int] | None:
    """Of each sender a receiver of its own that is to get at least so many; None if there are none."""
    choices = [[receiver for receiver, count in receivers.items() if count >= least] for receivers in edges]
    receiver_of, sender_of = dict[int, int](), dict[int, int]()
    if not all(_augment(sender, choices, receiver_of, sender_of) for sender in range(len(edges))):
        return None
    return [receiver_of[sender] for sender in range(len(edges))]


def _augment(start: int, choices: list[list[int]], receiver_of: dict[int, int], sender_of: dict[int, int]) -> bool:
    """A receiver for one more sender, others changing theirs along a shortest path; whether there is one."""
    came_from: dict[int, int] = {}
    queue = [start]
    for sender in queue:
        for receiver in choices[sender]:
            if receiver in came_from:
                continue
            came_from[receiver] = sender
            if receiver in sender_of:
                queue.append(sender_of[receiver])
                continue
            left: int | None = receiver
            while left is not None:
                sender = came_from[left]
                sender_of[left], receiver_of[sender], left = sender, left, receiver_of.get(sender)
            return True
    return False


def _places(parts: tuple[Tail, ...], mesh: Mesh) -> list[dict[str, int]]:
    """The coordinates of each device along the axes that move."""
    axes = moved(parts, mesh)
    return [dict(zip(axes, place, strict=True)) for place in product(*(range(mesh.size(axis)) for axis in axes))]


def _block(place: dict[str, int], parts: tuple[Tail, ...], mesh: Mesh) -> tuple[int, ...]:
    """The block that a device holds."""
    return tuple([_number(part.old, place, mesh) for part in parts])


def _number(axes: Axes, place: dict[str, int], mesh: Mesh) -> int:
    found = 0
    for axis in axes:
        found = found * mesh.size(axis) + place[axis]
    return found
