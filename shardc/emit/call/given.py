"""What a caller may give: arrays of any kind, and for a sharding a `jax.P` or a `jax.NamedSharding`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
from numpy.typing import NDArray

from shardc.emit.call import placing
from shardc.emit.call.around import Around, is_same_mesh, told
from shardc.emit.call.entered import Entered, entered, mesh_of_arrays, on_mesh
from shardc.errors import ShardcError
from shardc.ir.sharding import Sharding
from shardc.simulate.arguments import as_numpy


def as_array(given: Any, what: str, *, narrowed: bool = False) -> Any:
    """An array as it is, anything else as NumPy has it, but for Python's numbers; SHC001 if it is none of numbers. With
    `narrowed` NumPy's arrays are of the types that JAX gives them as well."""
    if isinstance(given, jax.Array):
        return given
    array = as_numpy(given, what)
    if array.dtype.kind in "SUMm" or array.dtype.name in ("float128", "complex256"):
        raise ShardcError(
            "SHC001", f"{what} is of type {array.dtype}", help="give an array of numbers of a type that JAX has"
        )
    return _narrowed(array, what) if narrowed or _is_of_python(given) else array


def are_keys(array: Any) -> bool:
    """Whether it is one of `jax.random.key`, whose type is of JAX alone."""
    return bool(jnp.issubdtype(array.dtype, jax.dtypes.prng_key))


def is_weak(given: Any) -> bool:
    """Whether JAX has it in the type of what it meets: a number of Python, and what is made of such alone."""
    if isinstance(given, jax.Array):
        return bool(jax.typeof(given).weak_type)
    return type(given) in (int, float, complex) or bool(getattr(given, "weak_type", False))


def as_type(given: Any, dtype: str, place: int) -> Any:
    """A weakly typed array in the type that it is taken in; SHC214 for whole numbers of Python that have no room there.

    As one of JAX's, whose numbers nobody looks at, it wraps them around."""
    found = given if given.dtype.name == dtype else given.astype(jnp.dtype(dtype))
    if not isinstance(given, jax.Array) and not _has_room(found, given):
        raise ShardcError(
            "SHC214",
            f"array {place} is {given}, and {dtype}, the type that it meets, has no room for it",
            help=f"give it a type of its own: np.{given.dtype}({given})",
        )
    return found


def _narrowed(array: NDArray[Any], what: str) -> NDArray[Any]:
    """As jnp.asarray has it: without 64-bit mode float64 is float32. SHC216 for whole numbers that have no room there,
    which jnp.asarray wraps around."""
    found = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
    if not _has_room(found, array):
        raise ShardcError(
            "SHC216",
            f"{what} has numbers that {found.dtype} has no room for, {array.dtype} without 64-bit mode",
            help=f'jax.config.update("jax_enable_x64", True), or .astype("{found.dtype}") if they may wrap around',
        )
    return found


def _has_room(found: NDArray[Any], array: NDArray[Any]) -> bool:
    """Whether whole numbers are what they were."""
    return found.dtype == array.dtype or array.dtype.kind not in "iu" or bool((found == array).all())


def _is_of_python(given: Any) -> bool:
    """A number, or a list of such: without a type of its own."""
    return isinstance(given, int | float | complex) or (
        isinstance(given, list | tuple) and all(map(_is_of_python, given))
    )


def mesh_named_by(spec: Any, array: Any) -> AbstractContextManager[Entered]:
    """Where no mesh is in force, that of a NamedSharding, else the array's; SHC306 unless these are the same."""
    named = spec.mesh if isinstance(spec, jax.NamedSharding) else None
    current = jax.sharding.get_abstract_mesh()
    if named is None or named.empty:
        return entered([array])
    if not current.empty:
        placing.check_same_mesh(named, current, "the sharding asked for is on")
        return entered([array])
    theirs = mesh_of_arrays([array])
    if theirs is not None and not is_same_mesh(theirs, named):
        raise ShardcError(
            "SHC306",
            f"the sharding asked for is on a mesh {told(named, theirs)}; the array lies on {told(theirs, named)}",
            help="jax.device_put it on the mesh of the sharding",
        )
    has_devices = isinstance(named, jax.sharding.Mesh) or placing.is_traced(array)
    return on_mesh(named) if has_devices else entered([array])


def target_of(given: Any, rank: int, here: Around) -> Sharding:
    """What a caller asks for as a sharding; a coded error if it is none of this array on this mesh."""
    spec = given.spec if isinstance(given, jax.NamedSharding) else given
    if not isinstance(spec, jax.P) or not all(isinstance(part, str | tuple | None) for part in spec.partitions):
        raise ShardcError(
            "SHC001",
            f"`{str(given)[:200]}` is not a spec",
            help='give a jax.P of axes, as in jax.P("X", None), or a jax.NamedSharding of one',
        )
    if len(spec.partitions) > rank:
        raise ShardcError("SHC303", f"{spec} is longer than the array's {rank} dims", help="a part for each dim")
    target = placing.sharding_of(spec, rank)
    written = [*target.sharded, *target.unreduced]
    here.check_free(written, str(spec))
    if len(set(written)) < len(written):
        raise ShardcError("SHC202", f"{spec} uses an axis twice", help="an axis shards one dim")
    return target
