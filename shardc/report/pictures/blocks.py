"""An array's blocks on its mesh: a cell for each device, in the fill of the shard that it holds.

Equal fill and texture: equal shards. In a cell a square shows where in the array its block is, and a number which
block it is of each dim that is cut; `+1` and a hatch of `+` say that it is part 1 of a sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardc.io.units import in_bytes
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array
from shardc.report.pictures import style
from shardc.report.pictures.held import MOST, Grid, Held, grid, held, shown
from shardc.report.pictures.marks import Group, Line, Mark, Rect, Text, width_of
from shardc.report.pictures.picture import Picture

_HEIGHT, _MAP, _PAD, _STRIP = 26.0, 16.0, 5.0, 16.0
_TOP = 38.0  # for name and size
_GAP = 3.0
_EDGE = 1.0
_THIN = 1.5  # pixels of a block that would be thinner


def blocks(array: Array, mesh: Mesh, most: int = MOST) -> Picture:
    """The devices of the mesh with what they hold; of a mesh of more than `most` the first of each axis."""
    drawn = shown(mesh, most)
    devices = list(held(array, mesh, drawn))
    numbers = {shard: number for number, shard in enumerate(dict.fromkeys(device.shard for device in devices))}
    textured = any(map(style.texture, numbers.values()))
    width = max(_cell_width(array, mesh, device, textured) for device in devices)
    plane = grid(drawn, (width, _HEIGHT), _GAP)
    cells = [_cell(device, numbers[device.shard], array, mesh, plane, width) for device in devices]
    size = f"{'×'.join(map(str, array.local_shape(mesh))) or 'scalar'} each, {in_bytes(array.local_bytes(mesh))}"
    across, down = _named(mesh, drawn)
    left = width_of(down, "s") + 9 if down else _EDGE
    marks: list[Mark] = [
        Text(0, 13, str(array), "m", told=(("array", str(array)),)),
        Text(0, 28, size, "s soft"),
        *_axes(mesh, drawn, plane, left),
        Group(tuple(cells), left, _TOP + 12),
    ]
    texts = (width_of(str(array), "m"), width_of(size, "s"), left + width_of(across, "s"))
    return Picture(
        f"{array} on {_said(mesh, drawn)}",
        max(left + plane.width + _EDGE, *texts),
        _TOP + 12 + plane.height + _EDGE,
        tuple(marks),
    )


def _said(mesh: Mesh, drawn: tuple[int, ...]) -> str:
    if not mesh.axes:
        return "one device"
    cut = "" if drawn == mesh.sizes else ", its first devices"
    return f"mesh {mesh}{cut}"


def _cell(device: Held, number: int, array: Array, mesh: Mesh, plane: Grid, width: float) -> Group:
    """From left to right the place in the array, the label, a strip of the texture, a strip of `+`."""
    x, y = plane.place(device.at)
    marks: list[Mark] = [Rect(0, 0, width, _HEIGHT, f"{style.fill(number)} edge")]
    strips = [look for look in (style.texture(number), "plus" if array.sharding.unreduced else "") if look]
    for place, look in enumerate(reversed(strips), 1):
        marks.append(Rect(width - place * _STRIP, 0, _STRIP, _HEIGHT, look))
    marks.append(Group(tuple(_map(device, array, mesh)), _PAD, (_HEIGHT - _MAP) / 2))
    marks.append(Text(2 * _PAD + _MAP, _HEIGHT / 2 + 4, _label(device, array, mesh), "s k"))
    told = (("device", _listed(device.at)), ("block", _listed(device.block)), ("part", str(device.part)))
    return Group(tuple(marks), x, y, "cell", told, _in_words(device, array, mesh))


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _label(device: Held, array: Array, mesh: Mesh) -> str:
    cut = [str(n) for n, count in zip(device.block, array.sharding.blocks(mesh), strict=True) if count > 1]
    return (",".join(cut) or "all") + (f" +{device.part}" if array.sharding.unreduced else "")


def _cell_width(array: Array, mesh: Mesh, device: Held, textured: bool) -> float:
    strips = int(textured) + bool(array.sharding.unreduced)
    return 3 * _PAD + _MAP + width_of(_label(device, array, mesh), "s") + strips * _STRIP


def _map(device: Held, array: Array, mesh: Mesh) -> Iterator[Mark]:
    """The array as a square, rows down and columns across, the block black."""
    counts, seen = array.sharding.blocks(mesh), _seen(array, mesh)
    pairs = [(1, 0)] * (2 - len(seen)) + [(counts[dim], device.block[dim]) for dim in seen]
    (rows, row), (columns, column) = pairs
    across, down = _MAP / columns, _MAP / rows
    yield Rect(column * across, row * down, max(across, _THIN), max(down, _THIN), "k", (("dims", _listed(seen)),))
    yield Rect(0, 0, _MAP, _MAP, "map")


def _seen(array: Array, mesh: Mesh) -> list[int]:
    """The two dims that are rows and columns, in order: those that are cut come before others, then the last ones."""
    counts = array.sharding.blocks(mesh)
    cut = [dim for dim, count in enumerate(counts) if count > 1]
    whole = [dim for dim, count in enumerate(counts) if count == 1]
    return sorted([*cut, *reversed(whole)][:2])


def _in_words(device: Held, array: Array, mesh: Mesh) -> str:
    """`X=1, Y=0: I 16–31 of 32, all of J; part 1 of a sum of 4`."""
    who = ", ".join(f"{axis}={n}" for axis, n in zip(mesh.names, device.at, strict=True)) or "the device"
    local = array.local_shape(mesh)
    rows = zip(array.dims, array.shape, local, device.block, strict=True)
    what = [f"{d} {n * own}–{(n + 1) * own - 1} of {all_}" if own < all_ else f"all of {d}" for d, all_, own, n in rows]
    parts = mesh.product(mesh.ordered(array.sharding.unreduced))
    some = f"; part {device.part} of a sum of {parts}" if array.sharding.unreduced else ""
    return f"{who}: {', '.join(what) or 'the number'}{some}"


def _axes(mesh: Mesh, drawn: tuple[int, ...], plane: Grid, left: float) -> Iterator[Mark]:
    """The names of axes that run across above the cells, of those that run down beside them."""
    across, down = _named(mesh, drawn)
    if across:
        yield Text(left, _TOP + 7, across, "s soft")
    if down:
        y = _TOP + 12
        yield Line(((left - 5, y), (left - 5, y + plane.height)), "grid")
        yield Text(0, y + _HEIGHT / 2 + 4, down, "s soft")


def _named(mesh: Mesh, drawn: tuple[int, ...]) -> tuple[str, str]:
    """What is written across and down: `X →`, of an axis that is drawn in part `X → 8 of 16`; the inner axis first."""
    axes = [(name, size, count) for (name, size), count in zip(mesh.axes, drawn, strict=True)]
    inner = [axis for axis in reversed(axes) if axis[2] > 1]
    across, down = (
        [f"{name} {arrow}" + (f" {count} of {size}" if count < size else "") for name, size, count in some]
        for some, arrow in ((inner[::2], "→"), (inner[1::2], "↓"))
    )
    across += [f"{name}=0 of {size}" for name, size, count in axes if count == 1 < size]
    return ", ".join(across), ", ".join(down)
