"""The mesh that a call runs on: the one in force, else that of its arrays, else the program's own.

in force      arrays lie      JAX traces    what is entered
a mesh        anywhere        or not        nothing: it is in force
none          on a mesh       no            jax.set_mesh(theirs)
none          on a mesh       yes           theirs, abstract: whoever compiles knows the devices from the arrays
none          nowhere         no            jax.set_mesh(own)
none          nowhere         yes           own, abstract, and the arrays are put on its devices (`placing.onto_mesh`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax

from shardc.emit.call.around import is_same_mesh, told
from shardc.errors import ShardcError

AnyMesh: TypeAlias = jax.sharding.Mesh | jax.sharding.AbstractMesh


@dataclass(frozen=True, slots=True)
class Entered:
    """Whether `jax.set_mesh` has set it, so that JAX knows its devices; else those that are known."""

    is_set: bool = True
    devices: jax.sharding.Mesh | None = None


SET = Entered()


def entered(
    arrays: Iterable[Any],
    own: Callable[[], jax.sharding.Mesh | None] = lambda: None,
    given: jax.sharding.Mesh | None = None,
    needs_devices: bool = False,
) -> AbstractContextManager[Entered]:
    """Enters the mesh of a call with these arrays. `own` is asked for where they lie nowhere, or where what `needs`
    devices sees none; `given` are devices that the caller has named, which hold against arrays seen to lie on others.
    """
    if not jax.sharding.get_abstract_mesh().empty:
        return nullcontext(SET)
    theirs = mesh_of_arrays(arrays)
    if given is not None and isinstance(theirs, jax.sharding.Mesh) and not is_same_mesh(theirs, given):
        theirs = given
    mesh = own() if theirs is None else theirs
    if mesh is None:
        return nullcontext(SET)
    return on_mesh(mesh, own() if needs_devices and not isinstance(mesh, jax.sharding.Mesh) else None)


def is_outside() -> bool:
    """Whether JAX traces nothing: under jax.jit and jax.grad it lets nobody set a mesh."""
    try:
        jax.sharding.get_mesh()
    except ValueError:
        return False
    return True


@contextmanager
def on_mesh(mesh: AnyMesh, devices: jax.sharding.Mesh | None = None) -> Iterator[Entered]:
    """Enters a mesh where none is in force; `devices` are those of an abstract one."""
    if isinstance(mesh, jax.sharding.Mesh) and is_outside():
        with jax.set_mesh(mesh):
            yield SET
        return
    if isinstance(mesh, jax.sharding.Mesh):
        devices = mesh
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        yield Entered(False, devices)


def again(mesh: jax.sharding.AbstractMesh) -> AbstractContextManager[Any]:
    """The mesh of a call, where JAX looks into what was called later, and elsewhere: as it lowers or differentiates."""
    if mesh.empty or not jax.sharding.get_abstract_mesh().empty:
        return nullcontext()
    found: AbstractContextManager[Any] = jax.sharding.use_abstract_mesh(mesh)
    return found


def mesh_of_arrays(arrays: Iterable[Any]) -> AnyMesh | None:
    """The mesh that arrays lie on, with its devices where one of them says; SHC306 if they lie on several."""
    found: AnyMesh | None = None
    for place, array in enumerate(arrays, 1):
        mesh = _mesh_of(array)
        if mesh is None:
            continue
        if found is not None and not is_same_mesh(mesh, found):
            raise ShardcError(
                "SHC306",
                f"array {place} lies on a mesh {told(mesh, found)}, another array on {told(found, mesh)}",
                help="jax.device_put them on one mesh",
            )
        if found is None or (isinstance(mesh, jax.sharding.Mesh) and not isinstance(found, jax.sharding.Mesh)):
            found = mesh
    return found


def _mesh_of(array: Any) -> AnyMesh | None:
    if isinstance(array, jax.core.Tracer):
        typed: AnyMesh = jax.typeof(array).sharding.mesh
        return None if typed.empty else typed
    if isinstance(array, jax.Array) and not array.committed:
        return None
    sharding = getattr(array, "sharding", None) if isinstance(array, jax.Array | jax.ShapeDtypeStruct) else None
    if not isinstance(sharding, jax.NamedSharding) or sharding.mesh.empty:
        return None
    lies: AnyMesh = sharding.mesh
    return lies
