"""A slice: a chip and the shape of its physical mesh, as in `v5p:4x4x4`; and how a mesh lies on it.

Mesh axes are laid on physical axes. `X=4, Y=16` on v5p:4x4x4 is X on one axis and Y on two, which then carry
together. `X=8, Y=8` needs an axis cut in two: X = the first axis and the outer half of the second, Y = its
inner half and the third. An inner part is a line of neighbours; an outer part skips over the inner ones and
shares their links.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shardc.cost.chips import Chip, chip
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh

_TOPOLOGY = re.compile(r"([A-Za-z0-9_.\-]+):([1-9][0-9]{0,6}(?:x[1-9][0-9]{0,6})*)")


@dataclass(frozen=True, slots=True)
class Topology:
    """`shape` counts chips along each physical axis."""

    chip: Chip
    shape: tuple[int, ...]

    @property
    def chips(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a physical axis: `size` chips of it, `stride` apart, out of `whole`."""

    axis: int
    size: int
    stride: int
    whole: int


Placement = dict[str, tuple[Part, ...]]


def topology(text: str) -> Topology:
    """The slice of that name; SHC224 if it is malformed."""
    found = _TOPOLOGY.fullmatch(text)
    if found is None:
        raise ShardcError("SHC224", f"malformed topology `{text}`", help="write chip and shape, as in v5p:4x4x4")
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


def place(
    mesh: Mesh, shape: tuple[int, ...], wraps: tuple[bool, ...], given: Mapping[str, tuple[int, ...]]
) -> Placement:
    """Where each mesh axis lies: as `given`, else on whole physical axes where it can, since these are the rings.

    Of placements that cut as few physical axes, that whose slowest mesh axis is fastest counts; of these the
    first. SHC224 if the sizes do not fit.
    """
    if math.prod(shape) != mesh.devices:
        raise ShardcError(
            "SHC224",
            f"the slice {'x'.join(map(str, shape))} has {math.prod(shape)} chips, the mesh {mesh} has {mesh.devices}",
            help=f"make the sizes of the mesh multiply to {math.prod(shape)}",
        )
    best = max(_placements(mesh, shape, given), key=lambda placement: _quality(placement, wraps), default=None)
    if best is None:
        raise ShardcError(
            "SHC224",
            f"the mesh {mesh} cannot be laid on {'x'.join(map(str, shape))}" + (" as --map says" if given else ""),
            help="sizes of mesh axes are products of parts of physical axes",
        )
    return best


def _placements(mesh: Mesh, shape: tuple[int, ...], given: Mapping[str, tuple[int, ...]]) -> Iterator[Placement]:
    """Every way to give each mesh axis a part of each physical axis, earlier mesh axes the outer parts."""

    def extend(names: tuple[str, ...], left: tuple[int, ...]) -> Iterator[dict[str, tuple[int, ...]]]:
        if not names:
            if all(size == 1 for size in left):
                yield {}
            return
        for sizes in _factorings(mesh.size(names[0]), left, given.get(names[0])):
            rest = tuple(have // used for have, used in zip(left, sizes, strict=True))
            for others in extend(names[1:], rest):
                yield {names[0]: sizes} | others

    for chosen in extend(mesh.names, shape):
        left = list(shape)
        placement: Placement = {}
        for name in mesh.names:
            parts = []
            for axis, size in enumerate(chosen[name]):
                left[axis] //= size
                if size > 1:
                    parts.append(Part(axis, size, left[axis], shape[axis]))
            placement[name] = tuple(parts)
        yield placement


def _factorings(size: int, left: tuple[int, ...], allowed: tuple[int, ...] | None) -> Iterator[tuple[int, ...]]:
    """Every way to write a size as a product of divisors of what is left of each physical axis."""

    def extend(axis: int, size: int) -> Iterator[tuple[int, ...]]:
        if axis == len(left):
            if size == 1:
                yield ()
            return
        usable = allowed is None or axis in allowed
        for part in range(1, left[axis] + 1 if usable else 2):
            if left[axis] % part == 0 and size % part == 0:
                for rest in extend(axis + 1, size // part):
                    yield (part, *rest)

    yield from extend(0, size)


def _quality(placement: Placement, wraps: tuple[bool, ...]) -> tuple[int, float, float]:
    """Fewer pieces of cut axes, then the bandwidth in links per device of the slowest mesh axis, then the sum."""
    pieces = sum(part.size < part.whole for parts in placement.values() for part in parts)
    rates = [
        sum(
            (2.0 if wraps[part.axis] and part.size * part.stride == part.whole else 1.0) / part.stride for part in parts
        )
        for parts in placement.values()
        if parts
    ]
    return (-pieces, min(rates, default=0.0), sum(rates))
