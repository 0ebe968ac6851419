"""What a gather, or a sum, and the slices after it amount to: one change of an array's sharding.

    %ag = bf16[64,256] all-gather(%a), dimensions={0}, groups over Y        A[I_Y, J] → A[I, J]
    %ds = bf16[64,64] dynamic-slice(%ag, 0, 64·y)                           A[I, J] → A[I, J_Y]

together are A[I_Y, J] → A[I, J_Y], of which the bound is known and the cheapest path can be planned. The axes are
read off where each device stands in its group, and where its slice begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from shardc.compiled.explain.digits import FOREIGN, Digit, Dim, View, sizes_of, split
from shardc.compiled.explain.flow import Kept
from shardc.compiled.explain.indices import Values
from shardc.compiled.hlo.groups import Groups
from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Axes, Sharding

_LETTERS = "IJKLMNOPQRSTABCDEFGHUVWXYZ"


@dataclass(frozen=True, slots=True)
class Given:
    """An argument of the function: its name, and how it lies if that is known."""

    name: str
    shape: tuple[int, ...] = ()
    sharding: Sharding | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """The value that is followed: a gather's result, or a sum's. `local` is the shape before the gather."""

    name: str
    view: View
    local: tuple[int, ...]
    dtype: DType
    unreduced: Axes = ()
    given: Given | None = None  # the argument that it is of


@dataclass(frozen=True, slots=True)
class Change:
    """`before → after`. If `is_local` the dims are those of the block of one device along the other axes."""

    before: Array
    after: Sharding
    is_local: bool
    is_whole: bool  # in between lies the array whole, on every device
    groups: dict[str, Groups] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Of a digit each device keeps one value."""

    digit: Digit
    values: Values  # [devices]

    @property
    def key(self) -> tuple[object, ...]:
        return (self.digit, tuple(int(value) for value in self.values))


def change_of(start: Start, ends: Sequence[Kept], groups: Mapping[str, Groups], mesh: Mesh) -> Change | None:
    """The change that all the slices agree on; None if they do not, or if it is none of whole axes.

    `groups` are those of every gather on the way, by name.
    """
    frame = _frame(start, ends)
    places = {name: places_in(of, mesh.devices) for name, of in groups.items()}
    if frame is None or any(place is None for place in places.values()):
        return None
    after = _kept_alike(ends, mesh) if frame is ends[0].view else None
    after = _kept_by_digits(frame, ends, mesh) if after is None else after
    before = _all(_gathered_axes(dim, places, mesh) for dim in frame)
    if before is None or after is None or not any(after):
        return None
    return _made(start, frame, before, after, mesh)


def _frame(start: Start, ends: Sequence[Kept]) -> View | None:
    """The dims in which to say it: those of the slices, or, behind a product, those at the start."""
    view = ends[0].view
    if not any(end.multiplied for end in ends) and not any(d.origin == FOREIGN for dim in view for d in dim):
        return view
    return None if any(end.gathers for end in ends) else start.view


def _kept_alike(ends: Sequence[Kept], mesh: Mesh) -> list[Axes] | None:
    """The axes that cut each dim, if all slices are the same one."""
    first = ends[0]
    if any((e.view, e.size) != (first.view, first.size) or (e.starts != first.starts).any() for e in ends[1:]):
        return None
    sizes = zip(sizes_of(first.view), first.size, first.starts.T, strict=True)
    return _all(
        None if extent % size or (starts % size).any() else axes_of(starts // size, extent // size, mesh)
        for extent, size, starts in sizes
    )


def _kept_by_digits(frame: View, ends: Sequence[Kept], mesh: Mesh) -> list[Axes] | None:
    """The axes that cut each dim of the frame, if all slices keep the same, in whatever shape."""
    cuts = [_cuts(end) for end in ends]
    found = cuts[0]
    if found is None or any(c is None or {x.key for x in c} != {x.key for x in found} for c in cuts):
        return None
    found = [cut for cut in found if cut.digit.origin != FOREIGN]
    return None if _lost(frame, found) else _all(_kept_axes(dim, found, mesh) for dim in frame)


def _all(found: Iterable[Axes | None]) -> list[Axes] | None:
    axes = list(found)
    known = [one for one in axes if one is not None]
    return known if len(known) == len(axes) else None


def _cuts(end: Kept) -> list[_Cut] | None:
    """What a slice keeps, digit by digit; None if the slices of the devices are not blocks side by side."""
    found = []
    for dim, size, starts in zip(end.view, end.size, end.starts.T, strict=True):
        extent = prod(digit.size for digit in dim)
        if size == extent:
            continue
        taken = split(dim, extent // size) if extent % size == 0 else None
        if taken is None or (starts % size).any():
            return None
        inner = extent // size
        for digit in taken[0]:
            inner //= digit.size
            found.append(_Cut(digit, starts // size // inner % digit.size))
    return found


def _gathered_axes(dim: Dim, places: Mapping[str, Values | None], mesh: Mesh) -> Axes | None:
    """The axes that a gather took off a dim: its digits come first, or the blocks would lie strided."""
    axes: Axes = ()
    behind = False
    for digit in dim:
        place = places.get(str(digit.origin)) if isinstance(digit.origin, str) else None
        if place is None:
            behind = True
            continue
        found = None if behind else axes_of(place // digit.stride % digit.size, digit.size, mesh)
        if found is None:
            return None
        axes += found
    return axes


def _kept_axes(dim: Dim, cuts: Sequence[_Cut], mesh: Mesh) -> Axes | None:
    """The axes that cut a dim: over all its digits from the left, with no gap."""
    number, blocks = np.zeros(mesh.devices, dtype=np.int64), 1
    for digit in dim:
        low = digit.stride
        top = digit.size * low
        inside = [c for c in cuts if c.digit.origin == digit.origin and low <= c.digit.stride < top]
        for cut in sorted(inside, key=lambda cut: -cut.digit.stride):
            if cut.digit.stride * cut.digit.size != top:
                return None
            number, blocks, top = number * cut.digit.size + cut.values, blocks * cut.digit.size, cut.digit.stride
        if top != low:
            break
    return axes_of(number, blocks, mesh)


def _lost(frame: View, cuts: Sequence[_Cut]) -> bool:
    """Is something cut that no dim's leading digits hold?"""
    for cut in cuts:
        for dim in frame:
            leading = _leading(dim, cuts)
            if any(d.origin == cut.digit.origin and d.stride <= cut.digit.stride < d.stride * d.size for d in leading):
                break
        else:
            return True
    return False


def _leading(dim: Dim, cuts: Sequence[_Cut]) -> list[Digit]:
    """The digits of a dim as far as they are cut all the way down, and the first that is not."""
    found = []
    for digit in dim:
        found.append(digit)
        lows = [c.digit.stride for c in cuts if c.digit.origin == digit.origin]
        if digit.stride not in lows:
            break
    return found


def axes_of(values: Values, size: int, mesh: Mesh) -> Axes | None:
    """The axes, major to minor, along which devices count as `values` do; None if they do not.

    On X=2, Y=4: 0 1 2 3 4 5 6 7 is XY, 0 2 4 6 1 3 5 7 is YX, 0 1 2 3 0 1 2 3 is Y.
    """
    axes: Axes = ()
    strides = coordinates(mesh)
    while size > 1:
        for axis, places in strides.items():
            n = mesh.size(axis)
            if n > 1 and axis not in axes and size % n == 0 and (values // (size // n) == places).all():
                size //= n
                axes, values = (*axes, axis), values % size
                break
        else:
            return None
    return axes if not values.any() else None


def coordinates(mesh: Mesh) -> dict[str, Values]:
    """Every device's place along each axis."""
    grid = np.indices(mesh.sizes).reshape(len(mesh.sizes), -1)
    return dict(zip(mesh.names, grid, strict=True))


def places_in(groups: Groups, devices: int) -> Values | None:
    """Every device's place in its group; None unless each is in one."""
    found = np.full(devices, -1, dtype=np.int64)
    for group in groups:
        for place, device in enumerate(group):
            if not 0 <= device < devices or found[device] >= 0:
                return None
            found[device] = place
    return None if (found < 0).any() else found


def _made(start: Start, frame: View, before: list[Axes], after: list[Axes], mesh: Mesh) -> Change:
    hidden = _hidden(start, frame, before)
    outer = [()] * len(frame) if hidden is None else hidden
    sizes = [
        int(np.prod([d.size for d in dim], dtype=np.int64)) * mesh.product(h)
        for dim, h in zip(frame, outer, strict=True)
    ]
    lies = Sharding.of([h + axes for h, axes in zip(outer, before, strict=True)], start.unreduced)
    wants = Sharding.of([h + axes for h, axes in zip(outer, after, strict=True)])
    used = {axis for axis in mesh.names if mesh.size(axis) > 1}
    whole = used <= lies.used if hidden is None else not any(hidden)
    array = Array(start.name, dim_names(len(frame), mesh), tuple(sizes), lies, start.dtype)
    return Change(array, wants, hidden is None and not used <= lies.used, whole and bool(lies.sharded))


def _hidden(start: Start, frame: View, before: Sequence[Axes]) -> list[Axes] | None:
    """Per dim, the axes that shard it besides the gathered ones; None where that is not known.

    An argument A[I_XY, J_Z], gathered over Y: X stays on I, Z on J.
    """
    given = start.given
    if given is None or given.sharding is None or given.sharding.rank != len(start.local):
        return None
    left = dict(enumerate(given.sharding.dims))
    found: list[Axes] = []
    for place, (dim, gathered) in enumerate(zip(frame, before, strict=True)):
        number = _own_dim(dim, place, frame, start.local)
        if number is None and not gathered:
            found.append(())
            continue
        axes = None if number is None else left.pop(number, None)
        if axes is None or axes[len(axes) - len(gathered) :] != gathered:
            return None
        found.append(axes[: len(axes) - len(gathered)])
    return None if any(left.values()) else found


def _own_dim(dim: Dim, place: int, frame: View, local: tuple[int, ...]) -> int | None:
    """The dim of the block that a dim holds whole, beside what was gathered; one of size 1 by its place."""
    own = [digit for digit in dim if not isinstance(digit.origin, str)]
    if not own:
        return place if len(frame) == len(local) and local[place] == 1 else None
    number = own[0].origin
    return number if len(own) == 1 and isinstance(number, int) and own[0] == Digit(number, local[number]) else None


def dim_names(rank: int, mesh: Mesh) -> tuple[str, ...]:
    """I, J, K, …, none that an axis is called."""
    free = [letter for letter in _LETTERS if letter not in mesh]
    return tuple(free[place] if place < len(free) else f"d{place}" for place in range(rank))
