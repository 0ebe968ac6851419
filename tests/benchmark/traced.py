"""What JAX traces of a plan's callable, and of its text loaded as a module: the two are the same.

The mesh is of a named TPU that nobody has; nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from difflib import unified_diff
from typing import Any

import jax
import jax.numpy as jnp

from shardc.emit.call.around import around
from shardc.emit.call.placing import spec_of
from shardc.emit.call.program import CompiledProgram
from shardc.ir.plan import Schedule

DEVICE = jax.sharding.AbstractDevice("TPU v5p", 1, "tpu")  # a CPU's products are written in another type than called
SHOWN = 12  # lines that differ


def called_otherwise(schedule: Schedule, text: str, mesh: jax.sharding.Mesh | None = None) -> list[str]:
    """The lines of the traced text that the traced callable has not, and the other way round. Where axes are cut there
    has to be a mesh of devices; none without one."""
    if schedule.by is not None and mesh is None:
        return []
    names: dict[str, Any] = {}
    exec(compile(text, "emitted", "exec"), names)

    def as_called(*arrays: Any) -> Any:
        return names["program"](*program.arguments(arrays, around(arrays) if schedule.mesh.axes else None))

    with jax.enable_x64(any(array.dtype.is_wide for array in schedule.values)):
        program = CompiledProgram(schedule)
        written, called = (traced(each, schedule, mesh) for each in (as_called, program))
    return [*unified_diff(written.splitlines(), called.splitlines(), "written", "called", lineterm="", n=0)][:SHOWN]


def traced(program: Callable[..., Any], schedule: Schedule, mesh: jax.sharding.Mesh | None) -> str:
    """With the schedule's inputs, as they lie."""
    arrays = [schedule.given(number) for number in schedule.inputs]
    where = mesh or jax.sharding.AbstractMesh(
        schedule.given_mesh.sizes,
        schedule.given_mesh.names,
        axis_types=(jax.sharding.AxisType.Explicit,) * len(schedule.given_mesh.axes),
        abstract_device=DEVICE,
    )
    lie = [jax.NamedSharding(where, spec_of(array.sharding)) if where.axis_names else None for array in arrays]
    given = [
        jax.ShapeDtypeStruct(array.shape, jnp.dtype(array.dtype.jax), sharding=lies)
        for array, lies in zip(arrays, lie, strict=True)
    ]
    with _in_force(where):
        return str(jax.make_jaxpr(program)(*given))


def _in_force(mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh) -> AbstractContextManager[Any]:
    if isinstance(mesh, jax.sharding.Mesh):
        found: AbstractContextManager[Any] = jax.set_mesh(mesh)
        return found
    return jax.sharding.use_abstract_mesh(mesh) if mesh.axis_names else nullcontext()
