"""What all devices hold, in symbols, and what JAX's collectives make of it.

Devices are numbered as the mesh counts them. Blocks that are one and the same are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.proving.field import PRIME, named, symbol
from shardc.proving.tensors import Shape, Tensor, cut, sum_of

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Held:
    """A block on every device, each of the same shape, and their type."""

    blocks: tuple[Tensor, ...]
    dtype: DType

    @property
    def shape(self) -> Shape:
        return self.blocks[0].shape

    def each(self, function: Callable[[Tensor], Tensor]) -> Held:
        return Held(alone(function, (self.blocks,)), self.dtype)


def alone(function: Callable[..., Tensor], operands: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
    """What each device does by itself; what several do to the same blocks is done once."""
    done: dict[tuple[int, ...], Tensor] = {}
    found = []
    for given in zip(*operands, strict=True):
        key = tuple(map(id, given))
        if key not in done:
            done[key] = function(*given)
        found.append(done[key])
    return tuple(found)


@dataclass(frozen=True)
class Devices:
    """A mesh, and who is in a group with whom."""

    mesh: Mesh

    @cached_property
    def places(self) -> tuple[dict[str, int], ...]:
        every = product(*(range(size) for size in self.mesh.sizes))
        return tuple(dict(zip(self.mesh.names, place, strict=True)) for place in every)

    def __len__(self) -> int:
        return self.mesh.devices

    def index(self, axes: Sequence[str]) -> tuple[int, ...]:
        """The number of each device, counted over these axes."""
        found = []
        for place in self.places:
            number = 0
            for axis in axes:
                number = number * self.mesh.size(axis) + place[axis]
            found.append(number)
        return tuple(found)

    def groups(self, axes: Sequence[str], parts: Sequence[Sequence[int]] | None = None) -> Groups:
        """The devices of each group, in order of counting over the axes; of `parts` of these numbers if given."""
        return _groups(self.mesh, tuple(axes), tuple(map(tuple, parts or ())))

    def gathered(self, held: Held, groups: Groups, function: Callable[[list[Tensor]], Sequence[Tensor]]) -> Held:
        """Each group together: its blocks in order, and what each of its devices is left with."""
        found: list[Tensor | None] = [None] * len(held.blocks)
        done: dict[tuple[int, ...], Sequence[Tensor]] = {}
        for group in groups:
            given = [held.blocks[device] for device in group]
            key = tuple(map(id, given))
            if key not in done:
                done[key] = function(given)
            for device, left in zip(group, done[key], strict=True):
                found[device] = left
        return Held(tuple(each for each in found if each is not None), held.dtype)

    def everywhere(self, held: Held, axes: Sequence[str], function: Callable[[list[Tensor]], Tensor]) -> Held:
        """What a function makes of the blocks over these axes, on each of their devices."""
        return self.gathered(held, self.groups(axes), lambda blocks: [function(blocks)] * len(blocks))


@lru_cache(maxsize=256)
def _groups(mesh: Mesh, axes: tuple[str, ...], parts: Groups) -> Groups:
    devices = Devices(mesh)
    together: dict[tuple[int, ...], dict[int, int]] = {}
    others = [axis for axis in mesh.names if axis not in axes]
    for device, (place, number) in enumerate(zip(devices.places, devices.index(axes), strict=True)):
        together.setdefault(tuple(place[axis] for axis in others), {})[number] = device
    every = parts or (tuple(range(mesh.product(axes))),)
    return tuple(tuple(members[number] for number in part) for members in together.values() for part in every)


def laid_out(whole: Tensor, sharding: Sharding, dtype: DType, devices: Devices, name: str) -> Held:
    """A whole array as its sharding says; of an unreduced one parts that add up to each block, drawn for `name`."""
    mesh = devices.mesh
    sizes = sharding.local_shape(whole.shape, mesh)
    blocks: dict[tuple[int, ...], Tensor] = {}
    held = []
    for place in devices.places:
        block = sharding.block_of(place, mesh)
        if block not in blocks:
            blocks[block] = cut(whole, [n * size for n, size in zip(block, sizes, strict=True)], sizes)
        held.append(blocks[block])
    if sharding.unreduced:
        return Held(_apart(held, sharding, devices, name), dtype)
    return Held(tuple(held), dtype)


def _apart(held: Sequence[Tensor], sharding: Sharding, devices: Devices, name: str) -> tuple[Tensor, ...]:
    """Partial sums: all but the first of a group are drawn, by the block that they are of."""
    axes = devices.mesh.ordered(sharding.unreduced)
    numbers = devices.index(axes)
    drawn: dict[tuple[int, int], Tensor] = {}

    def part(number: int, whole: Tensor) -> Tensor:
        key = (number, id(whole))
        if key not in drawn:
            items = range(len(whole.items))
            salt = named(name) + len(drawn)
            drawn[key] = Tensor(whole.shape, tuple(symbol(salt, number, item) for item in items))
        return drawn[key]

    count = devices.mesh.product(axes)
    first: dict[int, Tensor] = {}
    found = []
    for number, whole in zip(numbers, held, strict=True):
        if number:
            found.append(part(number, whole))
            continue
        if id(whole) not in first:
            others = [part(each, whole) for each in range(1, count)]
            first[id(whole)] = sum_of([whole, *map(negated, others)])
        found.append(first[id(whole)])
    return tuple(found)


def negated(given: Tensor) -> Tensor:
    return Tensor(given.shape, tuple(-item % PRIME for item in given.items))
