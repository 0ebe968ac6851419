"""The way of a permute's blocks through a torus, and the links on which they meet.

Each block goes along one line after the other, on a ring the shorter way round, half each way where both are as short.

    4 on a ring, i → i+1    0→1  1→2  2→3  3→0      each link carries one block, all in the same direction
    4 on a line, i → i+1    0→1  1→2  2→3  3→2→1→0  the last goes all the way back
    4 on a ring, i → i+2    0→1→2, 0→3→2, …         half a block each way, over two links: each carries one block
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from shardc.compiled.hlo.groups import Groups
from shardc.cost.layout import ONE_WAY, RING
from shardc.cost.links.torus import Line, Torus
from shardc.cost.model import LinkModel
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes

FORWARD, BACKWARD = "+", "-"
BOTH = FORWARD + BACKWARD


@dataclass(frozen=True, slots=True)
class Routes:
    """The time per byte of a block on the busiest link, the longest way, and per axis the directions taken."""

    s_per_byte: float
    hops: int
    directions: Mapping[str, str]


_Link = tuple[int, str, tuple[int, ...]]  # the number of the line, a direction, and where on the torus it begins


def routed(pairs: Groups, axes: Axes, model: LinkModel) -> Routes | None:
    """The routes of the pairs, which differ along these axes; None where the links are no torus."""
    if not all(_lines(axis, model) for axis in axes):
        return None
    owners = [axis for axis in axes for _ in _lines(axis, model)]
    lines = [line for axis in axes for line in _lines(axis, model)]
    halves: Counter[_Link] = Counter()
    longest = 0
    for source, target in pairs:
        at, goal, rest = _places(source, axes, model), _places(target, axes, model), _rest(source, axes, model.mesh)
        longest = max(longest, sum(map(_hops, lines, at, goal)))
        for number, line in enumerate(lines):
            for way, place, load in _steps(line, at[number], goal[number]):
                halves[number, way, (*goal[:number], place, *at[number + 1 :], *rest)] += load
    taken = {axis: {way for number, way, _ in halves if owners[number] == axis} for axis in axes}
    slowest = max(
        (load / 2 * lines[link[0]].stride / lines[link[0]].link for link, load in halves.items()), default=0.0
    )
    return Routes(slowest, longest, {axis: "".join(sorted(ways)) or BOTH for axis, ways in taken.items()})


def _lines(axis: str, model: LinkModel) -> tuple[Line, ...]:
    """The lines on which an axis lies, major to minor; none for a switch."""
    levels = model.network.levels((axis,))
    torus = levels[0] if len(levels) == 1 else None
    return torus.lines if isinstance(torus, Torus) else ()


def _places(device: int, axes: Axes, model: LinkModel) -> tuple[int, ...]:
    """Where a device is on each line of the axes."""
    found: list[int] = []
    for axis in axes:
        place, digits = coordinate(device, axis, model.mesh), list[int]()
        for line in reversed(_lines(axis, model)):
            place, digit = divmod(place, line.size)
            digits.insert(0, digit)
        found += digits
    return tuple(found)


def _rest(device: int, axes: Axes, mesh: Mesh) -> tuple[int, ...]:
    """Where it is along the other axes, which tells copies of a line apart."""
    return tuple(coordinate(device, axis, mesh) for axis in mesh.names if axis not in axes)


def coordinate(device: int, axis: str, mesh: Mesh) -> int:
    stride = prod(mesh.sizes[mesh.names.index(axis) + 1 :])
    return device // stride % mesh.size(axis)


def _ways(line: Line, source: int, target: int) -> str:
    """The directions in which a block leaves; both where a ring is as long either way."""
    if line.shape == ONE_WAY:
        return FORWARD
    if line.shape != RING:
        return FORWARD if target > source else BACKWARD
    twice = 2 * ((target - source) % line.size)
    return BOTH if twice == line.size else FORWARD if twice < line.size else BACKWARD


def _hops(line: Line, source: int, target: int) -> int:
    """Physical hops on the way."""
    distance = target - source if FORWARD in _ways(line, source, target) else source - target
    return distance % line.size * line.stride


def _steps(line: Line, source: int, target: int) -> Iterator[tuple[str, int, int]]:
    """Every link that a block passes: the direction, the lower of its ends, and the halves of the block."""
    n, ways = line.size, _ways(line, source, target)
    for way in ways if source != target else "":
        distance = (target - source if way == FORWARD else source - target) % n
        for step in range(distance):
            yield way, (source + step if way == FORWARD else source - step - 1) % n, 2 // len(ways)
