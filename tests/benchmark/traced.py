"""What JAX traces of a plan's callable, and of its text loaded as a module: the two are the same.

The mesh is of a named TPU that nobody has; nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from difflib import unified_diff
from typing import Any

import jax
import jax.numpy as jnp

from shardc.emit.call.placing import spec_of
from shardc.emit.call.program import CompiledProgram
from shardc.ir.plan import Schedule

DEVICE = jax.sharding.AbstractDevice("TPU v5p", 1, "tpu")  # a CPU's products are written in another type than called
SHOWN = 12  # lines that differ


def called_otherwise(schedule: Schedule, text: str) -> list[str]:
    """The lines of the traced text that the traced callable has not, and the other way round; none where axes are cut,
    for which there have to be devices."""
    if schedule.by is not None:
        return []
    names: dict[str, Any] = {}
    exec(compile(text, "emitted", "exec"), names)
    mesh = schedule.given_mesh
    explicit = (jax.sharding.AxisType.Explicit,) * len(mesh.axes)
    with jax.enable_x64(any(array.dtype.is_wide for array in schedule.values)):
        where = jax.sharding.AbstractMesh(mesh.sizes, mesh.names, axis_types=explicit, abstract_device=DEVICE)
        written, called = (traced(each, schedule, where) for each in (names["program"], CompiledProgram(schedule)))
    return [*unified_diff(written.splitlines(), called.splitlines(), "written", "called", lineterm="", n=0)][:SHOWN]


def traced(program: Callable[..., Any], schedule: Schedule, mesh: jax.sharding.AbstractMesh) -> str:
    """With the schedule's inputs, as they lie."""
    arrays = [schedule.given(number) for number in schedule.inputs]
    lie = [jax.NamedSharding(mesh, spec_of(array.sharding)) if mesh.axis_names else None for array in arrays]
    given = [
        jax.ShapeDtypeStruct(array.shape, jnp.dtype(array.dtype.jax), sharding=lies)
        for array, lies in zip(arrays, lie, strict=True)
    ]
    with jax.sharding.use_abstract_mesh(mesh) if mesh.axis_names else nullcontext():
        return str(jax.make_jaxpr(program)(*given))
