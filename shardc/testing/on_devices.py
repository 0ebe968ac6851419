"""Functions of JAX arrays, run on the devices that there are: what every device holds of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from numpy.typing import NDArray

from shardc.emit.call.placing import make_mesh, sharding_of
from shardc.errors import ShardcError
from shardc.ir.dtypes import dtype
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Sharding
from shardc.machines.comparison import blocks_of
from shardc.machines.run import in_64_bits, on_devices
from shardc.testing.saying import name_of, where

Values = NDArray[Any]


def count_of_devices() -> int:
    return len(jax.devices())


def held_by_devices(
    function: Callable[..., Any], inputs: Sequence[Array], wholes: Sequence[Values], mesh: Mesh, seed: int
) -> tuple[tuple[Array, Values], ...]:
    """Each result as an array, with the blocks of all devices, in the order of the mesh."""
    devices = make_mesh(mesh)
    with in_64_bits(inputs):
        given = [
            on_devices(whole, array, mesh, devices, seed + place)
            for place, (array, whole) in enumerate(zip(inputs, wholes, strict=True))
        ]
        found = jax.tree.leaves(called(function, given, devices, inputs, mesh))
    check_results(found, mesh, inputs)
    return tuple((described(result), blocks_of(result, mesh)) for result in found)


class _Untraced(Exception):
    """A function leaves what is no array of JAX."""


def traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, compiled as one for all calls on a mesh; as it is where it cannot be traced.

    Called as it is, each operation inside a `jax.shard_map` is compiled for itself: 610 times for a ring's 12 calls.
    """

    def checked(*arrays: Any) -> Any:
        found = function(*arrays)
        if not all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(found)):
            raise _Untraced
        return found

    compiled = jax.jit(checked)

    def called(*arrays: Any) -> Any:
        try:
            return compiled(*arrays)
        except (_Untraced, jax.errors.JAXTypeError, jax.errors.JAXIndexError):
            return function(*arrays)

    called.__name__ = name_of(function)
    return called


def called(
    function: Callable[..., Any],
    given: Sequence[Any],
    devices: jax.sharding.Mesh,
    inputs: Sequence[Array],
    mesh: Mesh,
) -> Any:
    """The function's results, on that mesh. SHC306 where it keeps the mesh of an earlier call.

    What the function raises has a note of the mesh, the sizes and the inputs.
    """
    with jax.set_mesh(devices):
        try:
            return function(*given)
        except Exception as error:
            if isinstance(error, ValueError) and "mesh passed to shard_map" in str(error):
                raise ShardcError(
                    "SHC306",
                    "the function keeps the mesh of its first call, as what jax.shard_map returns does",
                    help="call jax.shard_map inside the function, so that it is made for each mesh; or give one mesh",
                ) from error
            arrays = ", ".join(map(str, inputs)) or "nothing"
            error.add_note(f"in {name_of(function)}, {where(mesh, sizes_of(inputs))}, given {arrays}")
            raise


def sizes_of(arrays: Sequence[Array]) -> dict[str, int]:
    return {dim: size for array in arrays for dim, size in zip(array.dims, array.shape, strict=True)}


def check_results(results: Sequence[Any], mesh: Mesh, inputs: Sequence[Array]) -> None:
    """AssertionError for what is no array, or not on all devices."""
    at = where(mesh, sizes_of(inputs))
    for place, result in enumerate(results):
        if not hasattr(result, "addressable_shards"):
            raise AssertionError(f"{at}: result {place} is {type(result).__name__}, and no array on JAX's devices")
        count = len(result.addressable_shards)
        if count != mesh.devices:
            raise AssertionError(f"{at}: result {place} is on {count} of the {mesh.devices} devices")


def described(result: Any) -> Array:
    """A JAX array in the words of the notation, its dims by number."""
    names = tuple(f"d{place}" for place in range(result.ndim))
    spec = getattr(result.sharding, "spec", None)
    sharding = Sharding(((),) * result.ndim) if spec is None else sharding_of(spec, result.ndim)
    return Array("result", names, tuple(result.shape), sharding, dtype(str(result.dtype)))
