"""What devices would hold that round to the nearest, for tests of how it is compared with NumPy."""

from types import SimpleNamespace

import numpy as np

from shardc.simulate import Coins


def nearest(values, dtype):
    """Rounded as NumPy rounds; bf16 as the upper half of an f32."""
    if dtype.name != "bf16":
        with np.errstate(over="ignore"):
            return np.asarray(values, {"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype.name]) + 0.0
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(np.uint32)).view(np.float32)


class Nearest(Coins):
    """No coin at all: what a device does, that rounds to the nearest."""

    def __init__(self):
        super().__init__(0, False)

    def rounded(self, values, dtype):
        return nearest(values, dtype).astype(np.float64)

    def off(self, values, by, times):
        return np.asarray(values)


def held(blocks, array, mesh):
    """What a JAX array of these blocks says of itself."""
    flat = np.broadcast_to(blocks, mesh.sizes + array.local_shape(mesh)).reshape(-1, *array.local_shape(mesh))
    shards = [SimpleNamespace(data=block) for block in flat]
    return SimpleNamespace(shape=array.shape, dtype=SimpleNamespace(name=array.dtype.jax), addressable_shards=shards)
