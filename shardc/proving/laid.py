"""What emitted code holds outside `shard_map`: arrays that lie on a mesh, the mesh itself, and sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.proving.devices import Devices, Held
from shardc.proving.faults import Fault, require
from shardc.proving.tensors import Tensor, laid_into


class Extent(int):
    """The size of an array: with whole parts and multiples, which `reduced` knows of, and nothing else."""

    def __floordiv__(self, parts: int) -> Extent:
        require(self % parts == 0, f"{int(self)} in {parts} parts")
        return Extent(int(self) // parts)

    def __mul__(self, times: int) -> Extent:
        return Extent(int(self) * times)

    __rmul__ = __mul__

    def __add__(self, other: int) -> Extent:
        raise Fault("a size and another number are added")

    __radd__ = __sub__ = __rsub__ = __add__


@dataclass(frozen=True)
class Laid:
    """An array as `jax.jit` has it: blocks, and how they lie on a mesh."""

    held: Held
    sharding: Sharding
    devices: Devices

    def lies_as(self, sharding: Sharding, devices: Devices) -> bool:
        if self.devices == devices:
            return _wide(self.sharding, self.devices.mesh) == _wide(sharding, devices.mesh)
        return _blocks(self.sharding, self.devices) == _blocks(sharding, devices)

    def whole(self) -> Tensor:
        """The array of which these are the blocks; copies are the same."""
        require(not self.sharding.unreduced, "partial sums are left to XLA")
        shape = [
            size * self.devices.mesh.product(axes)
            for size, axes in zip(self.held.shape, self.sharding.dims, strict=True)
        ]
        found, laid = Tensor(tuple(shape), (0,) * math.prod(shape)), dict[tuple[int, ...], Tensor]()
        for place, block in zip(self.devices.places, self.held.blocks, strict=True):
            number = self.sharding.block_of(place, self.devices.mesh)
            if number not in laid:
                starts = [n * size for n, size in zip(number, block.shape, strict=True)]
                found = laid_into(found, block, starts)
            require(laid.setdefault(number, block).items == block.items, "copies of a block differ")
        return found


def _wide(sharding: Sharding, mesh: Mesh) -> Sharding:
    """Without axes of one device."""
    return Sharding(
        tuple(tuple(axis for axis in axes if mesh.size(axis) > 1) for axes in sharding.dims),
        frozenset(axis for axis in sharding.unreduced if mesh.size(axis) > 1),
    )


def _blocks(sharding: Sharding, devices: Devices) -> list[tuple[int, ...]]:
    require(not sharding.unreduced, "partial sums on another mesh")
    return [sharding.block_of(place, devices.mesh) for place in devices.places]


class Zeros:
    """`jnp.zeros((), out_sharding=P()).sharding.mesh`, by which code asks for the mesh in force."""

    def __init__(self, mesh: Mesh) -> None:
        self.devices = InForce(mesh)


class InForce:
    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh

    def reshape(self, sizes: Any) -> tuple[int, ...]:
        return (sizes,) if isinstance(sizes, int) else tuple(sizes)
