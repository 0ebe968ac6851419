"""`plan.compile()`: a plan's program, jitted, with its arguments checked and placed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import jax

from shardc.emit.call import placing
from shardc.emit.call.around import Around, around
from shardc.emit.call.callable import function
from shardc.emit.call.entered import SET, Entered, again, entered, is_outside
from shardc.emit.call.equation import Equation
from shardc.emit.call.given import as_array
from shardc.emit.call.gradient import Halves, with_gradient
from shardc.emit.call.unmapped import unmapped
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Schedule, ValueNumber
from shardc.lowering.flow import untyped_along


class CompiledProgram:
    """Called with arrays in the order of the plan's inputs; returns its outputs, a single one bare.

    Runs on the mesh of `jax.set_mesh`, else on the mesh given, else on that of the arrays, else on the first devices
    there are. NumPy arrays and arrays on no particular device are placed; others must lie as the plan says. Works
    under jax.jit, jax.grad and jax.vmap, with a mesh set or none. Raises ShardcError: SHC301 to SHC306, SHC309, SHC216.
    """

    def __init__(
        self,
        schedule: Schedule,
        mesh: jax.sharding.Mesh | Mesh | None = None,
        halves: Callable[[], Halves] | None = None,
    ) -> None:
        self._schedule = schedule
        self._halves = halves  # of a gradient of its own, planned when it is asked for
        self._given = placing.make_mesh(mesh) if isinstance(mesh, Mesh) else mesh
        self._first: jax.sharding.Mesh | None = None
        self._jitted: dict[Any, Any] = {}
        for number in (*schedule.inputs, *schedule.outputs):
            placing.check_enabled(schedule.values[number].dtype)

    def __repr__(self) -> str:
        first, *others = self._schedule.program.statements
        named = ", ".join(self._schedule.values[number].name for number in self._schedule.inputs)
        return f"<CompiledProgram of {first.text}{f' and {len(others)} more' if others else ''}: call it with {named}>"

    def __getstate__(self) -> dict[str, Any]:
        """Sent elsewhere it is without devices, as a plan is, and without what was compiled for them."""
        return {**self.__dict__, "_given": None, "_first": None, "_jitted": {}}

    def __call__(self, *arrays: Any) -> Any:
        with self._in_mesh(arrays) as lies:
            return self.called(arrays, self._around(arrays, lies))

    def called(self, arrays: Sequence[Any], here: Around | None) -> Any:
        """The same, where it is known what is around."""
        given = self.arguments(arrays, here)  # refused before anything is made of them
        found = self._function(here)(*given)
        outputs = [self._schedule.given(number) for number in self._schedule.outputs]
        if len(outputs) == 1:
            return placing.settled(found, outputs[0])
        return tuple(map(placing.settled, found, outputs))

    def lower(self, *arrays: Any) -> Any:
        """As `jax.jit(...).lower`; arrays, or jax.ShapeDtypeStructs with shardings."""
        with self._in_mesh(arrays) as lies:
            here = self._around(arrays, lies)
            given = self.arguments(arrays, here, or_shapes=True)
            return self._function(here).lower(*given)

    def _function(self, here: Around | None) -> Any:
        """One per mesh in force: a function that JAX has traced remembers whether its axes were Explicit or Auto.

        Where axes are cut it also remembers the devices.
        """
        is_cut = here is not None and self._schedule.by is not None
        mesh = placing.devices_of(here) if here is not None and is_cut else jax.sharding.get_abstract_mesh()
        if mesh not in self._jitted:
            self._jitted[mesh] = self._made(mesh, mesh if is_cut else None)
        return self._jitted[mesh]

    def _made(self, mesh: Any, devices: Any) -> Any:
        def program(*arrays: Any) -> Any:
            with again(mesh.abstract_mesh):
                return function(self._schedule, scopes=True, mesh=devices)(*arrays)

        if self._halves is None:
            return jax.jit(program)
        if devices is not None:  # of which an equation knows nothing
            return jax.jit(with_gradient(program, self._halves, mesh.abstract_mesh))
        outputs = [self._schedule.given(number) for number in self._schedule.outputs]
        text = "; ".join(each.text for each in self._schedule.program.statements)
        return Equation(text, program, self._halves, tuple(placing.type_of(array, mesh) for array in outputs), mesh)

    def arguments(self, arrays: Sequence[Any], here: Around | None, or_shapes: bool = False) -> list[Any]:
        """The arrays as the program takes them: refused if they lie elsewhere, placed if they lie nowhere."""
        wanted = [self._schedule.given(number) for number in self._schedule.inputs]
        if len(arrays) != len(wanted):
            names = ", ".join(array.name for array in wanted)
            raise ShardcError(
                "SHC309", f"{len(arrays)} arrays given; the program takes {len(wanted)}", help=f"in order: {names}"
            )
        if here is not None:
            self._check(arrays, here)
        found = [
            self._shape(number, given, here)
            if or_shapes and isinstance(given, jax.ShapeDtypeStruct)
            else self._argument(number, given, here)
            for number, given in zip(self._schedule.inputs, arrays, strict=True)
        ]
        outputs = map(self._schedule.given, self._schedule.outputs)
        partial = next((array for array in outputs if array.sharding.unreduced), None)
        return found if partial is None else unmapped(found, partial)

    def _argument(self, number: ValueNumber, given: Any, here: Around | None) -> Any:
        wanted = self._schedule.given(number)
        given = as_array(given, f"`{wanted.name}`")
        placing.check_argument(given, wanted)
        if here is None:
            return given
        if not placing.is_traced(given):
            put = placing.place_inside if here.is_mapped else placing.place
            given = put(given, wanted, here)
        if placing.is_traced(given) or not here.is_set:
            given = placing.onto_mesh(given, wanted.sharding, here)
        given = placing.as_typed(given, wanted, here)
        if here.is_joining and number in self._exchanged and placing.is_tracing(given):
            return placing.laid_first(given, wanted.sharding, here)
        return given

    def _shape(self, number: ValueNumber, given: jax.ShapeDtypeStruct, here: Around | None) -> jax.ShapeDtypeStruct:
        """A shape as its array would be taken; one without a sharding in that of the plan."""
        wanted = self._schedule.given(number)
        placing.check_argument(given, wanted)
        return given if here is None else placing.placed_shape(given, wanted, here)

    @cached_property
    def _exchanged(self) -> frozenset[int]:
        """The inputs that an AllToAll reads, or of which each device first makes something by itself for it."""
        made_of: dict[int, int] = {number: number for number in self._schedule.inputs}
        found = set()
        for step in self._schedule.steps:
            number, facts = made_of.get(step.operands[0]) if step.operands else None, step.op.facts
            if number is not None and facts.kind is Kind.EXCHANGE:
                found.add(number)
            elif number is not None and len(step.operands) == 1 and not facts.communicates:
                made_of[step.result] = number
        return frozenset(found)

    def _around(self, arrays: Sequence[Any], lies: Entered) -> Around | None:
        return around(arrays, lies.is_set, lies.devices) if self._schedule.mesh.axes else None

    def _check(self, arrays: Sequence[Any], here: Around) -> None:
        """The axes that are free must be the plan's; cut they are only where all of the mesh is free."""
        placing.check_mesh(self._schedule.given_mesh, here.free)
        if here.taken and self._schedule.by is not None:
            raise ShardcError(
                "SHC306",
                f"the plan cuts axes ({self._schedule.by}), which it cannot where only {here.free} is free",
                help="use shardc.einsum there, which plans with whole axes",
            )
        if here.taken and any(untyped_along(self._schedule.block)):
            raise ShardcError(
                "SHC306",
                f"the plan leaves equal blocks that JAX cannot type where only {here.free} is free",
                help="use shardc.einsum there, which plans without such steps",
            )
        traced = any(placing.is_traced(array) for array in arrays)
        for number in (*self._schedule.inputs, *self._schedule.outputs):
            here.check_partial(self._schedule.given(number), traced)
        for number in self._schedule.outputs if traced else ():
            here.check_typed(self._schedule.given(number).sharding, f"`{self._schedule.given(number)}`")

    def _in_mesh(self, arrays: tuple[Any, ...]) -> AbstractContextManager[Entered]:
        """The mesh in force if there is one, else the arrays' or the program's own; the latter where axes are cut and
        only it has devices."""
        if not self._schedule.mesh.axes:
            return nullcontext(SET)
        return entered(arrays, self._own, self._given, needs_devices=self._schedule.by is not None)

    def _own(self) -> jax.sharding.Mesh:
        """Of Auto axes where JAX traces: a function that knows of no mesh then has types that say nothing of one. Where
        partial sums come or go JAX has none but Explicit ones for them."""
        if self._given is None and self._first is None:
            self._first = placing.make_mesh(self._schedule.given_mesh)
        mesh = self._given or self._first
        assert mesh is not None
        placing.check_mesh(self._schedule.given_mesh, Mesh.of(dict(mesh.shape)))
        ends = (*self._schedule.inputs, *self._schedule.outputs)
        is_partial = any(self._schedule.given(number).sharding.unreduced for number in ends)
        return mesh if is_outside() or is_partial else placing.retyped_mesh(mesh, jax.sharding.AxisType.Auto)
