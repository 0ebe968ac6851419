"""What `jax.jit` alone is given: the statements on whole arrays, and the shardings of what goes in and comes out.

    @partial(jax.jit, in_shardings=…, out_shardings=…)
    def program(A, B):
        C = jnp.einsum("ij,jk->ik", A, B)
        return C

Axes are Auto, so that every collective is XLA's choice. Where the program writes a sharding in between, the value is
constrained to it, as its author would; a dim written `I_?` stays unconstrained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, assert_never

import jax

from shardc.emit.call import placing
from shardc.emit.call.applied import evaluate
from shardc.emit.exprs import Expr as Described
from shardc.emit.exprs import Name, call
from shardc.emit.steps import local
from shardc.errors import ShardcError
from shardc.ir.applied import applied
from shardc.ir.dtypes import Kind, multiplied
from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use
from shardc.ir.plan import Schedule
from shardc.ir.program import For, Program, Statement, bindings_of
from shardc.ir.sharding import Array, Sharding
from shardc.machines.laid_out import Compiled
from shardc.machines.tpu import arguments_of, compiled


def compile_baseline(schedule: Schedule, mesh: Any) -> Compiled:
    """XLA's own program for the plan's inputs and outputs on the devices of `mesh`."""
    return compiled(lower_baseline(schedule, mesh), mesh)


def lower_baseline(schedule: Schedule, mesh: Any) -> Any:
    """The same before it is compiled: a `jax.stages.Lowered`."""
    automatic = with_auto_axes(mesh)
    with jax.set_mesh(automatic):  # whichever a caller has in force
        return jitted(schedule, automatic).lower(*arguments_of(schedule, automatic))


def jitted(schedule: Schedule, mesh: Any) -> Any:
    """The program under `jax.jit` with shardings alone; SHC212 for unreduced inputs and outputs."""
    return jax.jit(
        on_whole_arrays(schedule.program, mesh),
        in_shardings=tuple(_placed(schedule.values[number], mesh) for number in schedule.inputs),
        out_shardings=_bare([_placed(schedule.values[number], mesh) for number in schedule.outputs]),
    )


def with_auto_axes(mesh: Any) -> Any:
    kinds = (jax.sharding.AxisType.Auto,) * len(mesh.axis_names)
    return jax.sharding.Mesh(mesh.devices, mesh.axis_names, axis_types=kinds)


def on_whole_arrays(program: Program, mesh: Any) -> Callable[..., Any]:
    """The program as its author would write it for `jax.jit`: of whole arrays, in the plan's order of results."""

    def function(*arrays: Any) -> Any:
        walk = _Walk(program, mesh)
        for given, array in zip(arrays, program.inputs, strict=True):
            walk.known[array.name] = _Value(given, walk.whole(array.name, array.dims, array.dtype), array.pattern)
        results = list(walk.every())
        return _bare([results[number] for number in program.outputs])

    return function


class _Value:
    """A whole array that is being traced, its description, and the sharding that it was last said to have."""

    __slots__ = ("array", "described", "pattern")

    def __init__(self, array: Any, described: Array, pattern: Pattern | None) -> None:
        self.array = array
        self.described = described
        self.pattern = pattern


class _Walk:
    """Evaluates expressions with the calls that emitted code would make, here on whole arrays."""

    def __init__(self, program: Program, mesh: Any) -> None:
        self.program = program
        self.mesh = mesh
        self.known: dict[str, _Value] = {}

    def whole(self, name: str, dims: tuple[str, ...], dtype: Any) -> Array:
        return Array(name, dims, self.program.shape(dims), Sharding.replicated(len(dims)), dtype)

    def every(self) -> Iterator[Any]:
        """What the statements bind, in order."""
        number = 0
        for statement in self.program.statements:
            if isinstance(statement, For):
                self.known |= self.looped(statement)
            else:
                self.statement(number, statement)
            for bound in bindings_of(statement):
                number += 1
                yield self.known[bound.name].array

    def statement(self, number: int, statement: Statement) -> None:
        """Binds the result, constrained if it is not an output; outputs have their shardings from jit."""
        result = self.whole(statement.name, statement.dims, statement.dtype)
        found = self.turned(self.value(statement.expr), result)
        if number not in self.program.outputs:
            found = self.constrained(found, statement.pattern)
        self.known[statement.name] = _Value(found, result, statement.pattern)

    def looped(self, loop: For) -> dict[str, _Value]:
        """`jax.lax.scan` of the body, as its author would write it."""
        inside = {array.name: self.whole(array.name, array.dims, array.dtype) for array in loop.takes}

        def trip(carried: tuple[Any, ...], rows: tuple[Any, ...]) -> Any:
            walk = _Walk(self.program.inside(loop), self.mesh)
            taken = [*loop.carried, *(array.name for array in loop.scanned)]
            walk.known = {name: self.known[name] for name in loop.fixed}
            for name, array in zip(taken, (*carried, *rows), strict=True):
                walk.known[name] = _Value(array, inside[name], None)
            list(walk.every())
            left = [walk.known[name].array for name in loop.leaves]
            return tuple(left[: len(loop.carried)]), tuple(left[len(loop.carried) :])

        first = tuple(self.known[name].array for name in loop.carried)
        rows = tuple(_leading(self.known[array.name].array, array.dims.index(loop.dim)) for array in loop.scanned)
        carried, stacked = jax.lax.scan(trip, first, rows, length=self.program.shape((loop.dim,))[0], reverse=loop.down)
        places = [array.dims.index(loop.dim) for array in loop.stacked]
        turned = [jax.numpy.moveaxis(array, 0, place) for array, place in zip(stacked, places, strict=True)]
        left = zip(bindings_of(loop), (*carried, *turned), strict=True)
        return {b.name: _Value(array, self.whole(b.name, b.dims, b.dtype), b.pattern) for b, array in left}

    def value(self, expr: Expr) -> _Value:
        match expr:
            case Use(name=name, pattern=pattern):
                return self.used(self.known[name], pattern, expr.dims)
            case Named(operand=operand):
                result = self.whole("", expr.dims, expr.dtype)
                return _Value(self.turned(self.value(operand), result), result, None)
            case Product(operands=operands):
                return self.product([self.value(operand) for operand in operands], expr)
            case Call(operands=operands):
                return self.call([self.value(operand) for operand in operands], expr)
            case _:
                assert_never(expr)

    def used(self, value: _Value, pattern: Pattern | None, dims: tuple[str, ...]) -> _Value:
        """Under the dims that the use names."""
        described = replace(value.described, dims=dims)
        if pattern is None or pattern == value.pattern:
            return _Value(value.array, described, value.pattern)
        return _Value(self.constrained(value.array, pattern), described, pattern)

    def product(self, values: list[_Value], expr: Product) -> _Value:
        result = self.whole("", expr.dims, expr.dtype)
        return _Value(_product(values, result).astype(expr.dtype.jax), result, None)

    def call(self, values: list[_Value], expr: Call) -> _Value:
        result = self.whole("", expr.dims, expr.dtype)
        op = applied(expr, dict(self.program.sizes))
        described = local.function(op, tuple(v.described for v in values), _names(values), result)
        return _Value(_apply(described, values), result, None)

    def turned(self, value: _Value, result: Array) -> Any:
        """The same array with the result's dims, in its order and type; dims that it lacks are summed."""
        found = value.array
        if value.described.dims != result.dims:
            found = _product([value], result)
        return found.astype(result.dtype.jax)

    def constrained(self, array: Any, pattern: Pattern) -> Any:
        """An unreduced sharding cannot be asked for, and one with no dim written asks for nothing."""
        if pattern.unreduced or all(axes is None for axes in pattern.dims) or self.mesh.empty:
            return array
        parts = [jax.P.UNCONSTRAINED if axes is None else axes or None for axes in pattern.dims]
        return jax.lax.with_sharding_constraint(array, jax.NamedSharding(self.mesh, jax.P(*parts)))


def _product(values: list[_Value], result: Array) -> Any:
    """`jnp.einsum`. Narrow integers are summed in int32, as emitted code does.

    Floats are left in their type: each device sums in f32 whatever the type, and rounds before it communicates, as
    emitted code does. Asked for f32, XLA would send f32, twice the bytes: so it is where the text declares it.
    """
    types = [value.described.dtype for value in values]
    described = local.einsum(tuple(value.described for value in values), _names(values), result)
    if all(dtype.kind is Kind.FLOAT for dtype in types) and result.dtype == multiplied(types):
        first = described.args[0]
        described = call("jnp.einsum", first, *_names(values))
    return _apply(described, values)


def _leading(array: Any, place: int) -> Any:
    return jax.numpy.moveaxis(array, place, 0)


def _names(values: list[_Value]) -> tuple[Described, ...]:
    return tuple(Name(f"v{place}") for place in range(len(values)))


def _apply(described: Described, values: list[_Value]) -> Any:
    return evaluate(described, {f"v{place}": value.array for place, value in enumerate(values)})


def _placed(array: Array, mesh: Any) -> Any:
    if array.sharding.unreduced:
        raise ShardcError(
            "SHC212",
            f"`{array}` is unreduced; jax.jit has no way to say so of an argument or a result",
            help=f"compare a program whose `{array.name}` is reduced",
        )
    return jax.NamedSharding(mesh, placing.spec_of(array.sharding))


def _bare(found: list[Any]) -> Any:
    return found[0] if len(found) == 1 else tuple(found)
