"""Arrays on devices: the mesh in force, what an argument must be, and where it is put."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardc.errors import ShardcError
from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Array, Sharding, spell

_WIDE = {"f64", "int64", "uint64"}


def spec_of(sharding: Sharding) -> jax.P:
    dims = [axes[0] if len(axes) == 1 else axes or None for axes in sharding.dims]
    return jax.P(*dims, unreduced=set(sharding.unreduced)) if sharding.unreduced else jax.P(*dims)


def sharding_of(spec: jax.P, rank: int) -> Sharding:
    """A `jax.P` as a sharding of that rank."""
    dims = [() if part is None else (part,) if isinstance(part, str) else tuple(part) for part in spec.partitions]
    return Sharding.of([*dims, *[()] * (rank - len(dims))], spec.unreduced)


def is_traced(array: Any) -> bool:
    return isinstance(array, jax.core.Tracer)


def make_mesh(mesh: Mesh, devices: list[Any] | None = None) -> jax.sharding.Mesh:
    """A JAX mesh with Explicit axes on the first devices there are; SHC301 if they are too few."""
    present = devices if devices is not None else jax.devices()
    if len(present) < mesh.devices:
        raise ShardcError(
            "SHC301",
            f"the mesh {mesh} needs {mesh.devices} devices; there are {len(present)}",
            help=f'simulate them: jax.config.update("jax_num_cpu_devices", {mesh.devices}) before JAX starts, '
            "or `shardc run`",
        )
    return jax.make_mesh(mesh.sizes, mesh.names, devices=present[: mesh.devices])


def mesh_in_force() -> jax.sharding.Mesh:
    """The mesh of `jax.set_mesh` with its devices, also while JAX traces: an array made at once lies on them.

    `device_put` would do as well but for devices of other processes.
    """
    try:
        mesh: jax.sharding.Mesh = jax.sharding.get_mesh()
    except ValueError:  # within a transformation it refuses
        with jax.ensure_compile_time_eval():
            lies: Any = jnp.zeros((), out_sharding=jax.P()).sharding
        mesh = lies.mesh
    return mesh


def finer(mesh: jax.sharding.Mesh, by: Refinement, kind: jax.sharding.AxisType) -> jax.sharding.Mesh:
    """The same devices in the same order, under the axes of a finer mesh."""
    fine = by.fine
    return jax.sharding.Mesh(mesh.devices.reshape(fine.sizes), fine.names, axis_types=(kind,) * len(fine.names))


def coarser(mesh: jax.sharding.Mesh, by: Refinement | None) -> jax.sharding.Mesh:
    """The same devices in the same order, under the axes that were cut."""
    if by is None:
        return mesh
    kinds = (mesh.axis_types[0],) * len(by.coarse.names)
    return jax.sharding.Mesh(mesh.devices.reshape(by.coarse.sizes), by.coarse.names, axis_types=kinds)


def check_mesh(wanted: Mesh, found: Any) -> None:
    """SHC306 unless the mesh in force has the plan's axes, in order."""
    axes = tuple(zip(found.axis_names, found.axis_sizes, strict=True))
    if axes != wanted.axes:
        given = ", ".join(f"{name}={size}" for name, size in axes) or "no axes"
        raise ShardcError(
            "SHC306",
            f"the mesh in force has {given}; the plan is for {wanted}",
            help=f"jax.set_mesh(jax.make_mesh({wanted.sizes}, {wanted.names})), or plan for the mesh in force",
        )


def check_explicit(arrays: Sequence[Array], found: Any) -> None:
    """SHC306 where a program takes or leaves partial sums, unless all axes of the mesh in force are Explicit.

    JAX types partial sums along Explicit axes alone, and makes no array of them on a mesh with others.
    """
    partial = next((array for array in arrays if array.sharding.unreduced), None)
    if partial is None or all(kind == _EXPLICIT for kind in found.axis_types):
        return
    others = ", ".join(
        f"`{n}`" for n, kind in zip(found.axis_names, found.axis_types, strict=True) if kind != _EXPLICIT
    )
    raise ShardcError(
        "SHC306",
        f"`{partial}` is unreduced, and of the mesh in force {others} {'are' if ',' in others else 'is'} not Explicit",
        note="JAX has arrays of partial sums only on meshes all of whose axes are Explicit",
        help=f"jax.set_mesh(jax.make_mesh({found.axis_sizes}, {found.axis_names})), or write the sum, {partial.name}"
        + spell(partial.dims, Sharding(partial.sharding.dims)),
    )


def check_enabled(dtype: DType) -> None:
    if dtype.name in _WIDE and not jax.config.read("jax_enable_x64"):
        raise ShardcError(
            "SHC216", f"{dtype} arrays need 64-bit mode", help='jax.config.update("jax_enable_x64", True)'
        )


def check_argument(given: Any, wanted: Array) -> None:
    """SHC303 or SHC304 unless shape and dtype are the plan's."""
    shape = tuple(np.shape(given))
    if shape != wanted.shape:
        raise ShardcError(
            "SHC303",
            f"`{wanted.name}` has shape {shape}; the plan is for {wanted.shape}",
            help=f"[{', '.join(wanted.dims)}] = {wanted.shape}",
        )
    found = getattr(given, "dtype", None)
    found = np.asarray(given).dtype if found is None else found
    if found.name != wanted.dtype.jax:
        raise ShardcError(
            "SHC304",
            f"`{wanted.name}` has dtype {found.name}; the plan is for {wanted.dtype.jax}",
            help=f"{wanted.name}.astype('{wanted.dtype.jax}'), or plan with dtype {found.name}",
        )


def check_sharding(given: Any, wanted: Array, mesh: Any) -> None:
    """SHC305 if a traced or committed array lies otherwise on Explicit axes, where JAX would not move it."""
    if not is_traced(given) and isinstance(given, jax.Array) and given.committed:
        _check_devices(given, wanted)
    explicit = {n for n, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind == _EXPLICIT}
    found = sharding_of(jax.typeof(given).sharding.spec, len(wanted.shape))
    differ = [
        (one, other)
        for one, other in zip(found.dims, wanted.sharding.dims, strict=True)
        if one != other and explicit.intersection(one + other)
    ]
    if differ or explicit.intersection(found.unreduced ^ wanted.sharding.unreduced):
        raise ShardcError(
            "SHC305",
            f"`{wanted.name}` is {wanted.name}{spell(wanted.dims, found)}; the program asks for {wanted}",
            help=f"write what it is, or jax.reshard({wanted.name}, jax.{spec_of(wanted.sharding)!r}) first".replace(
                "jax.PartitionSpec", "jax.P"
            ),
        )


def _check_devices(given: Any, wanted: Array) -> None:
    """SHC305 for an array that lies on other devices than those of the mesh in force."""
    mesh = mesh_in_force()
    if not mesh.empty and given.sharding.device_set != set(mesh.devices.flat):
        raise ShardcError(
            "SHC305",
            f"`{wanted.name}` lies on {len(given.sharding.device_set)} devices, the mesh in force has {mesh.size}",
            help=f"jax.device_put({wanted.name}, jax.{spec_of(wanted.sharding)!r}) puts it there".replace(
                "jax.PartitionSpec", "jax.P"
            ),
        )


_EXPLICIT = jax.sharding.AxisType.Explicit


def place(given: Any, wanted: Array, mesh: jax.sharding.Mesh) -> Any:
    """The array on the mesh. NumPy arrays, and arrays on one device by default, are put there."""
    if isinstance(given, jax.Array) and (is_traced(given) or given.committed):
        return given
    sharding = jax.NamedSharding(mesh, spec_of(wanted.sharding))
    if not wanted.sharding.unreduced:
        return jax.device_put(np.asarray(given), sharding)
    return _as_partial_sums(np.asarray(given), wanted, mesh, sharding)


def _as_partial_sums(whole: Any, wanted: Array, mesh: jax.sharding.Mesh, sharding: Any) -> Any:
    """Unreduced: the first device along the unreduced axes has it all, the others zeros."""
    named = Mesh(tuple(zip(mesh.axis_names, mesh.axis_sizes, strict=True)))
    local = wanted.local_shape(named)
    blocks = []
    for coordinates in named.coordinates():
        index = wanted.sharding.block_of(coordinates, named)
        part = tuple(slice(i * size, (i + 1) * size) for i, size in zip(index, local, strict=True))
        first = all(coordinates[axis] == 0 for axis in wanted.sharding.unreduced)
        blocks.append(whole[part] if first else np.zeros_like(whole[part]))
    return from_blocks(blocks, wanted, mesh, sharding)


def from_blocks(blocks: list[Any], wanted: Array, mesh: jax.sharding.Mesh, sharding: Any) -> Any:
    """A global array from each device's block, in order of the mesh."""
    placed = [jax.device_put(block, device) for block, device in zip(blocks, mesh.devices.flat, strict=True)]
    return jax.make_array_from_single_device_arrays(wanted.shape, sharding, placed)
