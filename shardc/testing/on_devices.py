"""Functions of JAX arrays, run on the devices that there are: what every device holds of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from shardc import simulate
from shardc.emit.call.placing import from_blocks, make_mesh, sharding_of, spec_of
from shardc.errors import ShardcError
from shardc.ir.dtypes import dtype
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Sharding

Values = NDArray[Any]


def count_of_devices() -> int:
    return len(jax.devices())


def held_by_devices(
    function: Callable[..., Any], inputs: Sequence[Array], wholes: Sequence[Values], mesh: Mesh, seed: int
) -> tuple[tuple[Array, Values], ...]:
    """Each result as an array, with the blocks of all devices, in the order of the mesh."""
    devices = make_mesh(mesh)
    given = [
        _placed(simulate.scatter(whole, array, mesh, seed + place), array, mesh, devices)
        for place, (array, whole) in enumerate(zip(inputs, wholes, strict=True))
    ]
    found = jax.tree.leaves(called(function, given, devices))
    return tuple(_held(result, mesh, devices) for result in found)


def called(function: Callable[..., Any], given: Sequence[Any], devices: jax.sharding.Mesh) -> Any:
    """The function's results, on that mesh. SHC306 where it keeps the mesh of an earlier call."""
    with jax.set_mesh(devices):
        try:
            return function(*given)
        except ValueError as error:
            if "mesh passed to shard_map" not in str(error):
                raise
            raise ShardcError(
                "SHC306",
                "the function keeps the mesh of its first call, as what jax.shard_map returns does",
                help="call jax.shard_map inside the function, so that it is made for each mesh; or give one mesh",
            ) from error


def _placed(blocks: Values, array: Array, mesh: Mesh, devices: jax.sharding.Mesh) -> jax.Array:
    kind = jax.numpy.dtype(array.dtype.jax)
    each = list(blocks.reshape(mesh.devices, *array.local_shape(mesh)).astype(kind))
    placed: jax.Array = from_blocks(each, array, devices, jax.NamedSharding(devices, spec_of(array.sharding)))
    return placed


def _held(result: Any, mesh: Mesh, devices: Any) -> tuple[Array, Values]:
    array = described(result)
    local = array.local_shape(mesh)
    shards = {shard.device.id: np.asarray(shard.data) for shard in result.addressable_shards}
    blocks = np.stack([shards[device.id] for device in devices.devices.flat])
    return array, blocks.reshape(*mesh.sizes, *local)


def described(result: Any) -> Array:
    """A JAX array in the words of the notation, its dims by number."""
    names = tuple(f"d{place}" for place in range(result.ndim))
    spec = getattr(result.sharding, "spec", None)
    sharding = Sharding(((),) * result.ndim) if spec is None else sharding_of(spec, result.ndim)
    return Array("result", names, tuple(result.shape), sharding, dtype(str(result.dtype)))
