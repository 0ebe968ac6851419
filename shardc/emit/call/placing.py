"""Arrays on devices: the mesh in force, what an argument must be, and where it is put."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardc.emit.call.around import Around, is_same_mesh, told
from shardc.errors import ShardcError
from shardc.ir.dtypes import DType
from shardc.ir.mesh import Mesh
from shardc.ir.refine import Refinement
from shardc.ir.sharding import Array, Sharding, spell

_EXPLICIT = jax.sharding.AxisType.Explicit


def spec_of(sharding: Sharding) -> jax.P:
    dims = [axes[0] if len(axes) == 1 else axes or None for axes in sharding.dims]
    return jax.P(*dims, unreduced=set(sharding.unreduced)) if sharding.unreduced else jax.P(*dims)


def type_of(array: Array, mesh: jax.sharding.AbstractMesh) -> jax.ShapeDtypeStruct:
    """What JAX knows of an array on a mesh while it traces: of its sharding the Explicit axes."""
    explicit = {name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind == _EXPLICIT}
    dims = [tuple(axis for axis in axes if axis in explicit) or None for axes in array.sharding.dims]
    return jax.ShapeDtypeStruct(array.shape, jnp.dtype(array.dtype.jax), sharding=jax.NamedSharding(mesh, jax.P(*dims)))


def sharding_of(spec: jax.P, rank: int) -> Sharding:
    """A `jax.P` as a sharding of that rank."""
    dims = [() if part is None else (part,) if isinstance(part, str) else tuple(part) for part in spec.partitions]
    return Sharding.of([*dims, *[()] * (rank - len(dims))], spec.unreduced)


def is_traced(array: Any) -> bool:
    return isinstance(array, jax.core.Tracer)


def is_tracing(array: Any) -> bool:
    """Whether JAX traces what is done with it: a constant under jax.jit is not traced itself."""
    if is_traced(array):
        return True
    try:
        jax.sharding.get_mesh()
    except ValueError:
        return True
    return False


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
    """The mesh of `jax.set_mesh` with its devices, also while JAX traces: an array made at once lies on them. SHC306
    for an abstract mesh, which has none.

    `device_put` would do as well but for devices of other processes.
    """
    try:
        mesh: jax.sharding.Mesh = jax.sharding.get_mesh()
    except ValueError:  # within a transformation it refuses
        with jax.ensure_compile_time_eval():
            lies: Any = jnp.zeros((), out_sharding=jax.P()).sharding
        mesh = lies.mesh
    if mesh.empty:
        raise ShardcError(
            "SHC306",
            "the mesh in force is an abstract one, which has no devices",
            help="with jax.set_mesh(mesh): … of one that has; jax.eval_shape asks for shapes alone",
        )
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


def check_mesh(wanted: Mesh, found: Mesh) -> None:
    """SHC306 unless these are the plan's axes, in order."""
    if found.axes != wanted.axes:
        raise ShardcError(
            "SHC306",
            f"the mesh in force has {found or 'no axes'}; the plan is for {wanted}",
            help=f"jax.set_mesh(jax.make_mesh({wanted.sizes}, {wanted.names})), or plan for the mesh in force",
        )


def check_mesh_of(given: jax.Array, what: str, here: Around) -> None:
    """SHC306 unless a NamedSharding is on the mesh in force, whatever the kinds of its axes."""
    if isinstance(given.sharding, jax.NamedSharding):
        check_same_mesh(given.sharding.mesh, devices_of(here), f"{what} lies on")


def check_same_mesh(named: Any, current: Any, what: str) -> None:
    """The same axes, and of two meshes with devices the same devices, in the same order."""
    if named.shape == current.shape and isinstance(named, jax.sharding.Mesh) and not _has_devices(current):
        current = mesh_in_force()
    if is_same_mesh(named, current):
        return
    raise ShardcError(
        "SHC306",
        f"{what} a mesh {told(named, current)}; the one in force is {told(current, named)}",
        help="jax.device_put it on the mesh in force, or set its mesh",
    )


def _has_devices(mesh: Any) -> bool:
    return isinstance(mesh, jax.sharding.Mesh)


def devices_of(here: Around) -> Any:
    """The mesh of a call: with its devices, unless only whoever compiles what JAX traces knows them."""
    if here.is_set:
        return mesh_in_force()
    return jax.sharding.get_abstract_mesh() if here.devices is None else here.devices


def check_enabled(dtype: DType) -> None:
    if dtype.is_wide and not jax.config.read("jax_enable_x64"):
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


def as_typed(given: Any, wanted: Array, here: Around) -> Any:
    """The array as its type is to say; SHC305 if it lies otherwise on Explicit axes, where JAX would not move it.

    Of a traced array its type says how it lies; of another, its own sharding. An axis of one device, which cuts
    nothing, may stand there or not.
    """
    concrete = not is_traced(given) and isinstance(given, jax.Array) and given.committed
    lies = given.sharding if concrete and isinstance(given.sharding, jax.NamedSharding) else jax.typeof(given).sharding
    found = sharding_of(lies.spec, len(wanted.shape))
    if not here.is_mapped and found.used.difference(here.free.names):
        here.check_free(found.used, f"`{wanted.name}`{spell(wanted.dims, found)}")
    check_lying(found, wanted, here)
    typed, asked = here.typed(found), here.typed(wanted.sharding)
    return given if typed == asked else jax.reshard(given, spec_of(asked))


def check_lying(found: Sharding, wanted: Array, here: Around) -> None:
    """SHC305 if the array lies otherwise on Explicit axes of more than one device."""
    typed, asked = here.typed(found), here.typed(wanted.sharding)
    if here.cutting(typed) == here.cutting(asked) and typed.unreduced == asked.unreduced:
        return
    instead = f"shardc.reshard({wanted.name}, {_told(wanted.sharding)}) first"
    if asked.unreduced - typed.unreduced:  # nothing makes what is whole partial sums
        instead = f"give what a product leaves by out_sharding={_told(wanted.sharding)}"
    raise ShardcError(
        "SHC305",
        f"`{wanted.name}` is {wanted.name}{spell(wanted.dims, found)}; the program asks for {wanted}",
        help=f"write what it is, or {instead}",
    )


def placed_shape(given: jax.ShapeDtypeStruct, wanted: Array, here: Around) -> jax.ShapeDtypeStruct:
    """A shape on the mesh, as its array would be: where it says, else where the plan has it."""
    lies = given.sharding
    if isinstance(lies, jax.NamedSharding) and not lies.mesh.empty:
        check_same_mesh(lies.mesh, devices_of(here), f"`{wanted.name}` lies on")
        found = sharding_of(lies.spec, len(wanted.shape))
        check_lying(found, wanted, here)
        spec = lies.spec if here.has_auto else spec_of(wanted.sharding)
    else:
        spec = spec_of(wanted.sharding)
    sharding = jax.NamedSharding(devices_of(here), spec)
    return jax.ShapeDtypeStruct(given.shape, given.dtype, sharding=sharding)


def _told(sharding: Sharding) -> str:
    return f"jax.{spec_of(sharding)!r}".replace("jax.PartitionSpec", "jax.P").replace(", unreduced_kind=sum", "")


def check_devices(given: Any, wanted: Array, here: Around) -> None:
    """SHC305 or SHC306 for an array that lies on other devices than those of the mesh in force, or in another order."""
    mesh, found = devices_of(here), given.sharding.device_set
    if found != set(mesh.devices.flat) if _has_devices(mesh) else len(found) != mesh.size:
        raise ShardcError(
            "SHC305",
            f"`{wanted.name}` lies on {len(found)} devices, the mesh in force has {mesh.size}",
            help=f"jax.device_put({wanted.name}, {_told(wanted.sharding)}) puts it there",
        )
    check_mesh_of(given, f"`{wanted.name}`", here)


def onto_mesh(given: Any, sharding: Sharding, here: Around) -> Any:
    """What JAX traces, typed by the mesh in force, if it lies nowhere, or on that mesh with axes of other kinds.

    Where its type says nothing, it is for XLA to bring it to where it is asked for. Where no mesh is set jax.jit knows
    the devices by its arguments, and by what is said here: what lies nowhere is held to them by a constraint on Auto
    axes, the only one that JAX takes there; a constant, of which jax.jit does not ask, is put where it lies.
    """
    if not here.is_set and not is_traced(given) and isinstance(given, jax.Array) and given.committed:
        given = jax.device_put(given, given.sharding)
    mesh, typed = jax.sharding.get_abstract_mesh(), jax.typeof(given).sharding.mesh
    if here.is_mapped or typed == mesh:
        return given
    if not typed.empty:
        check_same_mesh(typed, mesh, "an array lies on")
    asked = Sharding(sharding.dims)
    if typed.empty and here.devices is not None:
        free = retyped_mesh(here.devices, jax.sharding.AxisType.Auto)
        with jax.sharding.use_abstract_mesh(free.abstract_mesh):
            given = jax.lax.with_sharding_constraint(given, jax.NamedSharding(free, spec_of(asked)))
        typed = free.abstract_mesh
    if typed == mesh or not (here.explicit or _EXPLICIT in typed.axis_types):
        return given
    both = here.explicit.intersection(typed.explicit_axes)
    lies = here.along(sharding_of(jax.typeof(given).sharding.spec, given.ndim), both)
    return jax.reshard(given, spec_of(here.typed(asked) if lies == here.along(asked, both) else lies))


def retyped_mesh(mesh: jax.sharding.Mesh, kind: jax.sharding.AxisType) -> jax.sharding.Mesh:
    """The same mesh with all axes of one kind."""
    return jax.sharding.Mesh(mesh.devices, mesh.axis_names, axis_types=(kind,) * len(mesh.axis_names))


def retyped(given: Any) -> Any:
    """An array on the mesh in force, there already but for the kinds of its axes; nothing moves."""
    mesh = mesh_in_force()
    if given.sharding.mesh == mesh:
        return given
    return jax.device_put(given, jax.NamedSharding(mesh, given.sharding.spec))


def settled(found: Any, wanted: Array) -> Any:
    """A result where it was asked for. Along Auto axes XLA may leave it elsewhere: a type says nothing of them.

    mesh X Auto, Z Explicit; asked for I_XZ, of type I_Z: XLA kept copies along X. Each device has its block already.
    """
    if is_traced(found) or not isinstance(found.sharding, jax.NamedSharding):
        return found
    mesh = found.sharding.mesh
    kinds = set(mesh.axis_types)
    if jax.sharding.AxisType.Auto not in kinds or jax.sharding.AxisType.Manual in kinds:
        return found
    sharding = jax.NamedSharding(mesh, spec_of(wanted.sharding))
    return found if found.sharding.is_equivalent_to(sharding, found.ndim) else jax.device_put(found, sharding)


def place(given: Any, wanted: Array, here: Around) -> Any:
    """The array on the mesh. NumPy arrays, and arrays on one device by default, are put there."""
    if isinstance(given, jax.Array) and given.committed:
        check_devices(given, wanted, here)
        return retyped(given) if here.is_set and isinstance(given.sharding, jax.NamedSharding) else given
    if not here.is_set:
        return given  # `onto_mesh` puts it there
    mesh = mesh_in_force()
    sharding = jax.NamedSharding(mesh, spec_of(wanted.sharding))
    if not wanted.sharding.unreduced:
        return jax.device_put(np.asarray(given), sharding)
    return _as_partial_sums(np.asarray(given), wanted, mesh, sharding)


def from_inside(given: Any, what: str) -> Any:
    """Inside a shard_map: an array that is there; SHC305 for one that lies on the mesh around it."""
    if is_traced(given):
        return given
    if isinstance(given, jax.Array) and given.committed:
        raise ShardcError(
            "SHC305",
            f"{what} is from outside the shard_map",
            help="pass it as an argument of the mapped function",
        )
    return jnp.asarray(given)


def place_inside(given: Any, wanted: Array, here: Around) -> Any:
    """Inside a shard_map: each device has all of a NumPy array, and keeps its part along the Explicit axes."""
    typed = here.typed(wanted.sharding)
    whole = from_inside(given, f"`{wanted.name}`")
    return jax.reshard(whole, spec_of(typed)) if typed.sharded else whole


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


def laid_first(given: Any, sharding: Sharding, here: Around) -> Any:
    """A traced array, brought along Auto axes to where it is to lie before anything is made of it.

    Else XLA:CPU joins the AllToAll that brings it there with the one that follows, and refuses the program that it has
    made: "all-to-all has operands with different shapes".
    """
    return jax.lax.optimization_barrier(constrained(given, spec_of(here.untyped(sharding))))


@partial(jax.jit, static_argnums=1)  # outside jax.jit its gradient is of another type, where an axis is Explicit
def constrained(x: Any, spec: jax.P) -> Any:
    """The array, of which XLA is told where it lies along Auto axes."""
    return jax.lax.with_sharding_constraint(x, spec)
