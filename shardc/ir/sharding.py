"""How an array lies on a mesh.

`I_XY` on a mesh X=2, Y=2 gives device (x, y) block 2x + y of four: axes run major to minor, so
`I_XY` is not `I_YX`. An axis that shards no dim and is not unreduced holds copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NewType

from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh

Axes = tuple[str, ...]
Dims = tuple[str, ...]  # by name
SUM, MAX, MIN = "sum", "max", "min"
ShardingNumber = NewType("ShardingNumber", int)  # where shardings are numbered: in a `planner.paths.graph.Graph`


@dataclass(frozen=True, slots=True)
class Sharding:
    """For each dim its axes, major to minor, and the axes over which the value is unreduced.

    What is unreduced is a partial sum; `reduction` is another where a step has left the largest, or the smallest, of
    its own block. Nothing but the AllReduce of that kind reads such a value.
    """

    dims: tuple[Axes, ...]
    unreduced: frozenset[str] = frozenset()
    reduction: str = SUM
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.dims, self.unreduced)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        """Made anew where it is read: another process has other hashes of names."""
        return type(self), (self.dims, self.unreduced, self.reduction)

    @classmethod
    def of(cls, dims: Iterable[Iterable[str]], unreduced: Iterable[str] = ()) -> Sharding:
        return cls(tuple(tuple(axes) for axes in dims), frozenset(unreduced))

    @classmethod
    def replicated(cls, rank: int) -> Sharding:
        return cls(((),) * rank)

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def sharded(self) -> Axes:
        """The axes that shard some dim, in order of the dims."""
        return tuple(chain.from_iterable(self.dims))

    @property
    def used(self) -> frozenset[str]:
        """The axes along which devices hold different values."""
        return self.unreduced.union(*self.dims)

    def with_dim(self, position: int, axes: Axes) -> Sharding:
        return Sharding((*self.dims[:position], axes, *self.dims[position + 1 :]), self.unreduced, self.reduction)

    def blocks(self, mesh: Mesh) -> tuple[int, ...]:
        """Into how many blocks each dim is cut."""
        return tuple(map(mesh.product, self.dims))

    def divides(self, shape: Sequence[int], mesh: Mesh) -> bool:
        return all(not axes or size % mesh.product(axes) == 0 for size, axes in zip(shape, self.dims, strict=True))

    def local_shape(self, shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
        pairs = zip(shape, self.dims, strict=True)
        return tuple([size // mesh.product(axes) if axes else size for size, axes in pairs])

    def block_of(self, coordinates: Mapping[str, int], mesh: Mesh) -> tuple[int, ...]:
        """The index, per dim, of the block that the device at these coordinates holds."""
        index = []
        for axes in self.dims:
            number = 0
            for axis in axes:
                number = number * mesh.size(axis) + coordinates[axis]
            index.append(number)
        return tuple(index)


@dataclass(frozen=True, slots=True)
class Array:
    """A value of the per-device view: its name, its dims and their global sizes, how it lies, its type."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    sharding: Sharding
    dtype: DType

    def local_shape(self, mesh: Mesh) -> tuple[int, ...]:
        return self.sharding.local_shape(self.shape, mesh)

    def local_size(self, mesh: Mesh) -> int:
        """Elements per device."""
        size = 1
        for extent in self.local_shape(mesh):
            size *= extent
        return size

    def local_bytes(self, mesh: Mesh) -> int:
        return self.local_size(mesh) * self.dtype.bytes

    def axes_of(self, dim: str) -> Axes:
        """The axes of a dim, or none if the array does not have it."""
        return self.sharding.dims[self.dims.index(dim)] if dim in self.dims else ()

    def __str__(self) -> str:
        return self.name + spell(self.dims, self.sharding)


def shared(*own: Axes) -> Axes:
    """The axes that all begin with: `J_XY, J_XZ → J_X`."""
    found: Axes = ()
    for axes in zip(*own, strict=False):
        if len(set(axes)) > 1:
            break
        found += axes[:1]
    return found


def with_dim(array: Array, dim: str, size: int) -> Array:
    """An array for each index of a dim, the dim first; each device holds it whole."""
    sharding = Sharding(((), *array.sharding.dims), array.sharding.unreduced)
    return replace(array, dims=(dim, *array.dims), shape=(size, *array.shape), sharding=sharding)


def in_order(array: Array, dims: tuple[str, ...]) -> Array:
    """An array with its dims in this order."""
    order = [array.dims.index(dim) for dim in dims]
    sharding = replace(array.sharding, dims=tuple(array.sharding.dims[place] for place in order))
    return replace(array, dims=dims, shape=tuple(array.shape[place] for place in order), sharding=sharding)


def row_of(array: Array) -> Array:
    """What an array is at an index of its first dim, which each device holds whole."""
    sharding = Sharding(array.sharding.dims[1:], array.sharding.unreduced)
    return replace(array, dims=array.dims[1:], shape=array.shape[1:], sharding=sharding)


def spell_axes(axes: Iterable[str]) -> str:
    """`XY` for one-letter axes, `{data,model}` for several longer ones."""
    axes = tuple(axes)
    if len(axes) == 1 or all(len(axis) == 1 for axis in axes):
        return "".join(axes)
    return "{" + ",".join(axes) + "}"


def spell_dim(dim: str, axes: Axes | None) -> str:
    """A dim with its subscript, as the parser reads it back."""
    if axes is None:
        return f"{dim}_?"
    return f"{dim}_{spell_axes(axes)}" if axes else dim


def spell_unreduced(axes: Iterable[str], reduction: str = SUM) -> str:
    """`{U_X}`; of partial maxima `{max_X}`, which no text may say."""
    axes, mark = tuple(axes), "U" if reduction == SUM else reduction
    return f"{{{mark}_{spell_axes(axes)}}}" if axes else ""


def spell(dims: Sequence[str], sharding: Sharding) -> str:
    """`[I_X, J]{U_Y}`."""
    inside = ", ".join(spell_dim(dim, axes) for dim, axes in zip(dims, sharding.dims, strict=True))
    return f"[{inside}]" + spell_unreduced(sorted(sharding.unreduced), sharding.reduction)
