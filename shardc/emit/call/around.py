"""What a call finds around it: which axes of the mesh in force a plan may use, and by which of them arrays are typed.

mesh X=2 Y=2 Z=2; inside a shard_map that is manual over X, with Y Explicit and Z Auto
free      Y, Z: the plan's mesh
explicit  Y: JAX types arrays by it, and moves nothing along it unasked
taken     X: arrays are local along it already; so it is with axes that the mapped dim of a vmap lies over
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.names import check_name
from shardc.ir.sharding import Array, Axes, Sharding

_EXPLICIT, _MANUAL = jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Manual
_MANUAL_WHY = "a shard_map around has it, so that arrays are local along it; name only axes that it leaves"
_MAPPED_WHY = "vmap runs over it, since the mapped dim is sharded over it; name other axes"


@dataclass(frozen=True, slots=True)
class Around:
    """`free` has the axes of a plan, in order; `taken` the others of the `whole`, and why each cannot be named.

    Where `jax.set_mesh` has set no mesh (`is_set`), its `devices` are known here or nowhere."""

    free: Mesh
    explicit: frozenset[str]
    whole: Mesh
    taken: tuple[tuple[str, str], ...] = ()
    is_mapped: bool = False  # inside a shard_map
    is_set: bool = True
    devices: jax.sharding.Mesh | None = None

    @property
    def is_joining(self) -> bool:
        """Whether XLA:CPU compiles what is called, which joins moves of its own along Auto axes with a program's."""
        device = jax.sharding.get_abstract_mesh().abstract_device
        return self.has_auto and device is not None and device.platform == "cpu"

    @property
    def may_cut(self) -> bool:
        """Whether a plan may cut axes: it takes all of the mesh, and its devices."""
        return not self.taken and (self.is_set or self.devices is not None)

    @property
    def has_auto(self) -> bool:
        return not self.explicit.issuperset(self.free.names)

    def can_type(self, sharding: Sharding) -> bool:
        """Whether a type can say it, with XLA's part below it: `I_XY` with X Explicit and Y Auto, and not `I_YX`."""
        sharding = self.cutting(sharding)
        below = zip(self.typed(sharding).dims, self.untyped(sharding).dims, sharding.dims, strict=True)
        return all(typed + untyped == axes for typed, untyped, axes in below)

    def typed(self, sharding: Sharding) -> Sharding:
        """What of a sharding JAX's types say."""
        return self.along(sharding, self.explicit)

    def untyped(self, sharding: Sharding) -> Sharding:
        """What of it is for XLA to keep."""
        return self.along(sharding, frozenset(self.free.names) - self.explicit)

    def along(self, sharding: Sharding, axes: frozenset[str]) -> Sharding:
        """What of it is along these axes."""
        kept = tuple(tuple(axis for axis in dim if axis in axes) for dim in sharding.dims)
        return Sharding(kept, sharding.unreduced & axes)

    def cutting(self, sharding: Sharding) -> Sharding:
        """Without axes of one device, which cut nothing."""
        return self.along(sharding, frozenset(name for name, size in self.whole.axes if size > 1))

    def check_typed(self, sharding: Sharding, what: str) -> None:
        """SHC305 for a result under a transformation whose type would not hold XLA to it."""
        if not self.can_type(sharding):
            raise ShardcError(
                "SHC305",
                f"{what} has an Auto axis above an Explicit one on a dim; JAX's types put Explicit axes first",
                help="put the Explicit axes first, make the others Explicit too, or call it outside jax.jit",
            )

    def check_partial(self, array: Array, traced: bool) -> None:
        """SHC306 for partial sums that JAX has no array for: over an Auto axis, and outside of jax.jit beside one."""
        untyped = array.sharding.unreduced - self.explicit
        beside = frozenset(self.free.names) - self.explicit if not traced and array.sharding.unreduced else frozenset()
        if not untyped and not beside:
            return
        named = ", ".join(f"`{axis}`" for axis in self.free.ordered(untyped | beside))
        where = "" if untyped else ", which jax.jit hands to nobody outside"
        raise ShardcError(
            "SHC306",
            f"{array} is unreduced{where}, and {named} {'is' if len(untyped | beside) == 1 else 'are'} Auto",
            note="JAX has arrays of partial sums only on meshes all of whose axes are Explicit",
            help=f"make {named} Explicit, as jax.make_mesh does, or reduce `{array.name}` in the program",
        )

    def check_free(self, named: Iterable[str], what: str) -> None:
        """SHC201 if an axis is named that is not free, or not of the mesh."""
        why = dict(self.taken)
        for axis in sorted(set(named).difference(self.free.names)):
            if axis in why:
                raise ShardcError("SHC201", f"mesh axis `{axis}` in {what} is not free here", help=why[axis])
            raise ShardcError(
                "SHC201", f"unknown mesh axis `{axis}` in {what}", help=f"the mesh in force has {self.free}"
            )


def around(arrays: Iterable[Any], is_set: bool = True, devices: jax.sharding.Mesh | None = None) -> Around:
    """What surrounds a call with these arrays; SHC306 if no mesh is set, or no axis of it is free."""
    current = jax.sharding.get_abstract_mesh()
    if current.empty:
        raise ShardcError(
            "SHC306",
            "no mesh is set, and no array lies on one",
            help="with jax.set_mesh(mesh): …, around jax.jit; or jax.device_put(array, jax.NamedSharding(mesh, spec))",
        )
    for name in current.axis_names:
        check_name(name, "axis")
    kinds = dict(zip(current.axis_names, current.axis_types, strict=True))
    taken = {name: _MANUAL_WHY for name, kind in kinds.items() if kind == _MANUAL}
    explicit = frozenset(name for name, kind in kinds.items() if kind == _EXPLICIT)
    if any(isinstance(array, jax.core.Tracer) for array in arrays):
        taken |= dict.fromkeys(_mapped(explicit), _MAPPED_WHY)
    whole = Mesh(tuple(zip(current.axis_names, current.axis_sizes, strict=True)))
    free = Mesh(tuple((name, size) for name, size in whole.axes if name not in taken))
    if not free.axes:
        help = "call it outside" if _MANUAL in kinds.values() else "shard the mapped dim over fewer axes"
        raise ShardcError("SHC306", "no axis of the mesh is free here: arrays are local already", help=help)
    mapped = _MANUAL in kinds.values()
    return Around(free, explicit.difference(taken), whole, tuple(taken.items()), mapped, is_set, devices)


def _mapped(names: frozenset[str]) -> frozenset[str]:
    """The axes that vmaps around run over. JAX tells nobody of them, but keeps a shard_map off them."""
    if not names or _maps_over(names):
        return frozenset()
    return frozenset(name for name in names if not _maps_over(frozenset([name])))


def _maps_over(names: frozenset[str]) -> bool:
    try:
        jax.eval_shape(_nothing(names))
    except ValueError:
        return False
    return True


@lru_cache
def _nothing(names: frozenset[str]) -> Any:
    """A function mapped over these axes: one, so that JAX traces it once for all that surrounds it alike.

    Mapped anew in each trace, since what shard_map returns keeps to the mesh of its first call.
    """

    @jax.jit
    def nothing() -> Any:
        return jax.shard_map(lambda: jnp.zeros(()), in_specs=(), out_specs=jax.P(), axis_names=set(names))()

    return nothing


def filled(typed: Sharding, untyped: Sharding, shape: tuple[int, ...], mesh: Mesh) -> Sharding:
    """Where a traced array is taken to lie: as its type says, and along Auto axes already as is asked for.

    Type x[I_X], asked for x[I_Y, J_X], with Y Auto: from x[I_XY, J]. XLA brings it there, in a way of its own.
    A dim that Y does not divide as well is left without it.
    """
    dims: list[Axes] = []
    for size, known, more in zip(shape, typed.dims, untyped.dims, strict=True):
        dims.append(known + more if size % mesh.product(known + more) == 0 else known)
    return Sharding(tuple(dims), typed.unreduced)


def is_same_mesh(one: Any, other: Any) -> bool:
    """Whether two meshes have the same axes, and of two with devices the same, in the same order; of whatever kinds."""
    if tuple(one.shape.items()) != tuple(other.shape.items()):
        return False
    both = isinstance(one, jax.sharding.Mesh) and isinstance(other, jax.sharding.Mesh)
    return not both or bool(np.array_equal(one.devices, other.devices))


def told(mesh: Any, beside: Any) -> str:
    """A mesh, as it is told apart from another: its axes, or its devices where those are the same."""
    axes = ", ".join(f"{name}={size}" for name, size in mesh.shape.items()) or "of no axes"
    if tuple(mesh.shape.items()) != tuple(beside.shape.items()):
        return axes
    ids = [device.id for device in mesh.devices.flat]
    shown = ", ".join(map(str, ids[:8])) + (", …" if len(ids) > 8 else "")
    return f"{axes} of the devices {shown}"
