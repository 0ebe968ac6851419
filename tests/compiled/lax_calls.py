"""JAX's own collectives, drawn at random, and what a device then sends: the oracle of the readers' tests."""

from dataclasses import dataclass
from itertools import product
from math import ceil, prod

import jax
from hypothesis import strategies as st
from jax import P, lax

KINDS = ("AllReduce", "AllGather", "ReduceScatter", "AllToAll", "CollectivePermute")


@dataclass(frozen=True)
class Call:
    """One collective of a local array over some axes, in some order."""

    kind: str
    axes: tuple[str, ...]
    shape: tuple[int, int]  # of one device's array
    dtype: str
    dim: int
    shift: int  # of a permute: each device sends to the one that many places further

    def members(self, mesh):
        return prod(mesh[axis] for axis in self.axes)

    def __call__(self, a, mesh):
        n = self.members(mesh)
        match self.kind:
            case "AllReduce":
                return lax.psum(a, self.axes)
            case "AllGather":
                return lax.all_gather(a, self.axes, axis=self.dim, tiled=True)
            case "ReduceScatter":
                return lax.psum_scatter(a, self.axes, scatter_dimension=self.dim, tiled=True)
            case "AllToAll":
                return lax.all_to_all(a, self.axes, self.dim, 1 - self.dim, tiled=True)
            case "CollectivePermute":
                return lax.ppermute(a, self.axes, [(k, (k + self.shift) % n) for k in range(n)])

    def foreseen(self, mesh):
        """Kind, axes in the mesh's order, bytes of the local array, bytes received: worked out device by device."""
        n, size = self.members(mesh), prod(self.shape) * jax.numpy.dtype(self.dtype).itemsize
        axes = tuple(axis for axis in mesh if axis in self.axes and mesh[axis] > 1)
        match self.kind:
            case "AllReduce":
                wire = 2 * size * (n - 1)
                return self.kind, axes, size, ceil(wire / n)
            case "AllGather":
                return self.kind, axes, size, size * (n - 1)
            case "CollectivePermute":
                moved = tuple(axis for axis in axes if any(s[axis] != t[axis] for s, t in self._pairs(mesh)))
                return self.kind, moved, size, size if moved else 0
            case _:
                return self.kind, axes, size, ceil(size * (n - 1) / n)

    def _pairs(self, mesh):
        sizes = [range(mesh[axis]) for axis in self.axes]
        places = [dict(zip(self.axes, place, strict=True)) for place in product(*sizes)]
        return [(place, places[(k + self.shift) % len(places)]) for k, place in enumerate(places)]


def facts(found):
    """Of a collective that was read, what a call foresees."""
    return found.kind, found.axes, found.local_bytes, found.wire_bytes


@st.composite
def calls(draw, mesh, unit=(8, 16), dtypes=("float32", "int32", "bfloat16", "uint8")):
    """A call whose local array is a few times `unit` and can be cut by all devices along each dim."""
    names = draw(st.permutations(tuple(mesh)))
    axes, kind = tuple(names[: draw(st.integers(1, len(names)))]), draw(st.sampled_from(KINDS))
    if kind == "CollectivePermute":  # which counts devices in the order of the mesh, and refuses any other
        axes = tuple(axis for axis in mesh if axis in axes)
    n = prod(mesh.values())
    shape = tuple(size * n * draw(st.integers(1, 3)) for size in unit)
    shift = draw(st.integers(0, prod(mesh[axis] for axis in axes)))
    return Call(kind, axes, shape, draw(st.sampled_from(dtypes)), draw(st.integers(0, 1)), shift)


def lowered(call, mesh, devices):
    """The call in a program of its own, under a name, on the devices of a JAX mesh."""
    sizes = dict(zip(devices.axis_names, devices.devices.shape, strict=True))
    spec = P(tuple(mesh))

    def program(a):
        with jax.named_scope("here"):
            return call(a, sizes)

    whole = (call.shape[0] * prod(sizes.values()), call.shape[1])
    with jax.set_mesh(devices):
        a = jax.ShapeDtypeStruct(whole, call.dtype, sharding=jax.NamedSharding(devices, spec))
        mapped = jax.shard_map(program, in_specs=spec, out_specs=spec, check_vma=False)
        return jax.jit(mapped).lower(a)
