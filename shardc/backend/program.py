"""`plan.compile()`: a plan's program, jitted, with its arguments checked and placed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax

from shardc.backend import placing
from shardc.backend.callable import function
from shardc.errors import ShardcError
from shardc.ir.plan import Schedule
from shardc.ir.sharding import Array


class CompiledProgram:
    """Called with arrays in the order of the plan's inputs; returns its outputs, a single one bare.

    Runs on the mesh of `jax.set_mesh`, else on the mesh given, else on the first devices there are. NumPy arrays
    and arrays on no particular device are placed; others must lie as the plan says. Works under jax.jit and
    jax.grad. Raises ShardcError: SHC301 to SHC306, SHC309, SHC216.
    """

    def __init__(self, schedule: Schedule, mesh: jax.sharding.Mesh | None = None) -> None:
        self._schedule = schedule
        self._mesh = mesh
        self._jitted: dict[Any, Any] = {}
        for number in (*schedule.inputs, *schedule.outputs):
            placing.check_enabled(schedule.values[number].dtype)

    def __call__(self, *arrays: Any) -> Any:
        with self._in_mesh(arrays):
            return self._function()(*self._arguments(arrays))

    def lower(self, *arrays: Any) -> Any:
        """As `jax.jit(...).lower`; arrays, or jax.ShapeDtypeStructs with shardings."""
        with self._in_mesh(arrays):
            return self._function().lower(*self._arguments(arrays))

    def _function(self) -> Any:
        """One per mesh in force: a function that JAX has traced remembers whether its axes were Explicit or Auto.

        Where axes are cut it also remembers the devices.
        """
        mesh = jax.sharding.get_abstract_mesh() if self._schedule.by is None else placing.mesh_in_force()
        if mesh not in self._jitted:
            self._jitted[mesh] = jax.jit(function(self._schedule, scopes=True))
        return self._jitted[mesh]

    def _arguments(self, arrays: tuple[Any, ...]) -> list[Any]:
        wanted = [self._schedule.given(number) for number in self._schedule.inputs]
        if len(arrays) != len(wanted):
            names = ", ".join(array.name for array in wanted)
            raise ShardcError(
                "SHC309", f"{len(arrays)} arrays given; the program takes {len(wanted)}", help=f"in order: {names}"
            )
        return [self._argument(given, array) for given, array in zip(arrays, wanted, strict=True)]

    def _argument(self, given: Any, wanted: Array) -> Any:
        if isinstance(given, jax.ShapeDtypeStruct):
            return given
        placing.check_argument(given, wanted)
        if not self._schedule.mesh.axes:
            return given
        mesh = jax.sharding.get_abstract_mesh()
        if not placing.is_traced(given):
            given = placing.place(given, wanted, placing.mesh_in_force())
        placing.check_sharding(given, wanted, mesh)
        return given

    def _in_mesh(self, arrays: tuple[Any, ...]) -> AbstractContextManager[Any]:
        """The mesh in force if there is one, else the program's own."""
        if not self._schedule.mesh.axes:
            return nullcontext()
        current = jax.sharding.get_abstract_mesh()
        if not current.empty:
            self._check(current)
            return nullcontext()
        if any(placing.is_traced(array) for array in arrays):
            raise ShardcError("SHC306", "no mesh is set", help="with jax.set_mesh(mesh): …, around jax.jit")
        if self._mesh is None:
            self._mesh = placing.make_mesh(self._schedule.given_mesh)
        self._check(self._mesh)
        context: AbstractContextManager[Any] = jax.set_mesh(self._mesh)
        return context

    def _check(self, mesh: Any) -> None:
        """SHC306 unless the program can run on that mesh."""
        schedule = self._schedule
        placing.check_mesh(schedule.given_mesh, mesh)
        placing.check_explicit([schedule.given(number) for number in (*schedule.inputs, *schedule.outputs)], mesh)
