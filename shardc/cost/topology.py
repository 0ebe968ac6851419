"""A slice: a chip and the shape of its physical mesh, as in `v5p:4x4x4`; and how a mesh lies on it.

A mesh is laid as `jax.make_mesh` lays it (`cost.order`), so that prices, the replay of a compiled program and the mesh
on which it was compiled mean the same device, and the user's mesh is that one too; as `--map` says where that is given.
`X=4, Y=16` on v5p:4x4x4 is X on one axis and Y on two, which then carry together. `X=8, Y=8` needs an axis cut in two:
X = the last axis and the outer half of the second, Y = its inner half and the first. An inner part is a line of
neighbours; an outer part skips over the inner ones and shares their links. `X=16` on v5e:4x4 is a closed walk through
all chips, and no part of an axis.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardc.cost import order
from shardc.cost.chips import Chip, chip
from shardc.cost.placing import best_shares
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh

_TOPOLOGY = re.compile(r"([A-Za-z0-9_.\-]+):([1-9][0-9]{0,6}(?:x[1-9][0-9]{0,6})*)")
_CLOUD = re.compile(r"(v3|v4|v5p|v5litepod|v5e|v6e)-([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True)
class Topology:
    """`shape` counts chips along each physical axis."""

    chip: Chip
    shape: tuple[int, ...]

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a physical axis: `size` chips of it, `stride` apart, out of `whole`."""

    axis: int
    size: int
    stride: int
    whole: int


Placement = dict[str, tuple[Part, ...]]
Place = tuple[int, ...]  # a chip's coordinates


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """Where each device of a mesh lies on a slice: each mesh axis on parts of physical ones, or all on a walk."""

    mesh: Mesh
    shape: tuple[int, ...]
    parts: Placement
    walk: tuple[Place, ...] = ()
    _places: dict[int, Place] = field(default_factory=dict, init=False, repr=False)

    def place(self, device: int) -> Place:
        """The chip of a device; devices are counted with the last mesh axis fastest."""
        if self.walk:
            return self.walk[device]
        found = self._places.get(device)
        if found is None:
            found = self._places[device] = self._at(device)
        return found

    def _at(self, device: int) -> Place:
        at, left = [0] * len(self.shape), device
        for name in reversed(self.mesh.names):
            for part in reversed(self.parts[name]):
                left, digit = divmod(left, part.size)
                at[part.axis] += digit * part.stride
        return tuple(at)

    def names(self, axis: int) -> list[str]:
        """The mesh axes that run along a physical axis, the innermost first."""
        if self.walk:
            return [name for name in self.mesh.names if self._runs(name, axis)]
        owners = ((part.stride, name) for name, parts in self.parts.items() for part in parts if part.axis == axis)
        return [name for _, name in sorted(owners)]

    def _runs(self, name: str, axis: int) -> bool:
        places: dict[Place, int] = {}
        for at, place in zip(self.mesh.coordinates(), self.walk, strict=True):
            rest = tuple(number for other, number in at.items() if other != name)
            if places.setdefault(rest, place[axis]) != place[axis]:
                return True
        return False


def _of_cloud(text: str) -> str | None:
    """What a vendor's name means, which counts the cores of chips that have two: `v5litepod-16`, `v5p-8`."""
    named = _CLOUD.fullmatch(text)
    count = 0 if named is None else int(named[2]) // (1 if named[1] in ("v5litepod", "v5e", "v6e") else 2)
    if named is None or count < 1 or count & (count - 1):
        return None
    made, doubled = chip(named[1]), count.bit_length() - 1
    dims = made.torus_dims
    sides = [2 ** ((doubled + place) // dims) for place in range(dims)]
    return f"{made.name}:" + "x".join(map(str, sorted(sides, key=lambda side: (side == 1, side))))


def topology(text: str) -> Topology:
    """The slice of that name; SHC224 if it is malformed."""
    found = _TOPOLOGY.fullmatch(text)
    if found is None:
        near = _of_cloud(text)
        remedy = f"it is {near} here" if near else "write chip and shape, as in v5p:4x4x4"
        raise ShardcError("SHC224", f"malformed topology `{text}`", help=remedy)
    made = Topology(chip(found[1]), tuple(int(size) for size in found[2].split("x")))
    if made.chip.is_torus and len(made.shape) > made.chip.torus_dims:
        raise ShardcError(
            "SHC224",
            f"topology `{text}` has {len(made.shape)} axes; {made.chip.name} has a torus of {made.chip.torus_dims}",
            help="write " + "x".join(["4"] * made.chip.torus_dims) + ", say",
        )
    return made


def chip_of(name: str | None, slice_name: str | None) -> Chip | None:
    """The chip that a program names, by itself or by its topology; SHC224 where the two disagree."""
    if slice_name is None:
        return chip(name) if name is not None else None
    found = topology(slice_name)
    if name is not None and chip(name) != found.chip:
        raise ShardcError(
            "SHC224", f"chip `{name}` is not the chip of topology `{slice_name}`", help="give one of the two"
        )
    return found.chip


def lay(mesh: Mesh, on: Topology, given: Mapping[str, tuple[int, ...]]) -> Laid:
    """Where the mesh lies on the slice: as `given`, else as JAX lays it. SHC224 if the sizes do not fit."""
    check_fits(mesh, on.shape)
    if given:
        return place(mesh, on.shape, on.chip.wraps(on.shape), given)
    walk = order.walk(on.chip.name, mesh.sizes, on.shape)
    if walk is not None:
        return Laid(mesh, on.shape, {}, walk)
    shares = order.shares(mesh.sizes, on.shape)
    if shares is None:
        raise _refused(mesh, on.shape, given)
    return Laid(mesh, on.shape, _parts(mesh, on.shape, dict(zip(mesh.names, shares, strict=True))))


def check_fits(mesh: Mesh, shape: tuple[int, ...]) -> None:
    """SHC224 unless the slice has as many chips as the mesh has devices."""
    if math.prod(shape) != mesh.devices:
        raise ShardcError(
            "SHC224",
            f"the slice {'x'.join(map(str, shape))} has {math.prod(shape)} chips, the mesh {mesh} has {mesh.devices}",
            help=f"make the sizes of the mesh multiply to {math.prod(shape)}",
        )


def place(mesh: Mesh, shape: tuple[int, ...], wraps: tuple[bool, ...], given: Mapping[str, tuple[int, ...]]) -> Laid:
    """The mesh on the physical axes that are `given`; axes that are not, on whole ones where they can.

    Of placements that cut as few physical axes, that whose slowest mesh axis is fastest counts, then the sum;
    of these the first. SHC224 if the sizes do not fit.
    """
    shares = best_shares(mesh, shape, wraps, given)
    if shares is None:
        raise _refused(mesh, shape, given)
    return Laid(mesh, shape, _parts(mesh, shape, shares))


def _refused(mesh: Mesh, shape: tuple[int, ...], given: Mapping[str, tuple[int, ...]]) -> ShardcError:
    shape_of = ", ".join(map(str, shape))
    return ShardcError(
        "SHC224",
        f"the mesh {mesh} cannot be laid on {'x'.join(map(str, shape))}" + (" as --map says" if given else ""),
        help="sizes of mesh axes are products of parts of physical axes"
        + (f"; the physical axes {', '.join(map(str, range(len(shape))))} have {shape_of}" if given else ""),
    )


def _parts(mesh: Mesh, shape: tuple[int, ...], shares: Mapping[str, tuple[int, ...]]) -> Placement:
    """Of a physical axis that several mesh axes share, the earlier ones have the outer parts."""
    left = list(shape)
    placement: Placement = {}
    for name in mesh.names:
        parts = []
        for axis, size in enumerate(shares[name]):
            left[axis] //= size
            if size > 1:
                parts.append(Part(axis, size, left[axis], shape[axis]))
        placement[name] = tuple(parts)
    return placement
