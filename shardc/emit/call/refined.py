"""Programs on a mesh with axes cut: run on the finer mesh of the same devices, between arrays on the mesh as given.

    X=4, Y=2 in force; fine: X0=2, X1=2, Y=2
    A in P("X")  →  A in P(("X0", "X1"))  →  steps on the fine mesh  →  C in P(("X0", "X1"))  →  C in P("X")

The arrows at both ends move nothing: the devices have the same order. JAX lets a shard_map run on another mesh than
the one in force where that mesh is set aside (`use_abstract_mesh`), and where no array is typed by its axes
(`auto_axes`, which does nothing where they are Auto already). The fine mesh has to have devices: with an abstract one
JAX 0.12 numbers the devices of a collective wrongly, and 0.10 refuses (`placing.mesh_in_force` finds them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from shardc.emit.call.placing import finer, mesh_in_force, spec_of
from shardc.ir.plan import Schedule
from shardc.ir.refine import Refinement


def on_given_mesh(
    schedule: Schedule, by: Refinement, mapped: Callable[[jax.sharding.Mesh], Any], mesh: jax.sharding.Mesh | None
) -> Any:
    """The program of global arrays on the mesh in force, which is `mesh` where it is known; `mapped` is what runs on a
    fine one."""
    ins = tuple(spec_of(schedule.given(number).sharding) for number in schedule.inputs)
    outs = tuple(spec_of(schedule.given(number).sharding) for number in schedule.outputs)

    def whole(*arrays: Any) -> tuple[Any, ...]:
        fine = finer(mesh_in_force() if mesh is None else mesh, by, jax.sharding.AxisType.Auto)
        arrays = jax.lax.with_sharding_constraint(arrays, ins)
        with jax.sharding.use_abstract_mesh(fine.abstract_mesh):
            results = mapped(fine)(*arrays)
        results = results if isinstance(results, tuple) else (results,)
        return jax.lax.with_sharding_constraint(results, outs)  # type: ignore[no-any-return]  # JAX types it as Any

    def program(*arrays: Any) -> Any:
        results = jax.sharding.auto_axes(whole, out_sharding=tuple(map(_typed, outs)))(*arrays)
        return results[0] if len(outs) == 1 else results

    return program


def _typed(given: jax.P) -> jax.P:
    """What of a spec the mesh in force puts into types: its Explicit axes."""
    mesh = jax.sharding.get_abstract_mesh()
    explicit = {
        name
        for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
        if kind == jax.sharding.AxisType.Explicit
    }
    return jax.P(*([axis for axis in _axes(part) if axis in explicit] or None for part in given))


def _axes(part: Any) -> tuple[str, ...]:
    return () if part is None else (part,) if isinstance(part, str) else tuple(part)
