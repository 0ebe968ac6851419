"""`shardc.einsum` and `shardc.reshard`: planned when called or traced, over the axes that are free there."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Protocol, TypeVar

import jax

from shardc.emit.call import placing
from shardc.emit.call.around import Around, around, filled
from shardc.emit.call.entered import entered
from shardc.emit.call.given import are_keys, as_array, as_type, is_weak, mesh_named_by, target_of
from shardc.emit.call.gradient import Halves, Lying, halves, may_be_planned
from shardc.emit.call.placing import sharding_of, spec_of
from shardc.emit.call.program import CompiledProgram
from shardc.emit.supported import check_jax
from shardc.errors import ShardcError
from shardc.ir.dtypes import dtype as find_dtype
from shardc.ir.expressions import Pattern, Use
from shardc.ir.mesh import Mesh
from shardc.ir.naming import by_place, named
from shardc.ir.plan import Schedule
from shardc.ir.program import Input, Program, Statement
from shardc.ir.sharding import Sharding, spell
from shardc.ir.weak import types_met
from shardc.notation import by_itself, declared_in_vain, inputs_of, parse

check_jax()


class Planned(Protocol):
    """A plan: its steps, and whatever else whoever plans says of it."""

    @property
    def schedule(self) -> Schedule: ...


_Found = TypeVar("_Found", bound=Planned, covariant=True)


class Planner(Hashable, Protocol[_Found]):
    """Plans a program, on the mesh as it is unless axes `may_cut`; and knows what it is with its backward program, and
    by what names the gradients of its outputs come in."""

    def __call__(self, program: Program, may_cut: bool, /) -> _Found: ...

    def whole(self, program: Program) -> tuple[Program, tuple[str | None, ...]]: ...


Shapes = tuple[tuple[int, ...], ...]


def einsum(text: str, *arrays: Any, planner: Planner[Planned]) -> Any:
    """The program of a text on these arrays. See `shardc.einsum`."""
    given = _given(text, arrays)
    with entered(given) as lies:
        here = around(given, lies.is_set, lies.devices)
        given, shapes, dtypes = _taken(text, arrays, given, here)
        return _einsum(text, here, shapes, dtypes, planner).called(given, here)


def einsum_plan(text: str, *arrays: Any, planner: Planner[_Found]) -> _Found:
    """The plan that it goes by, refused as the call is; shapes are enough."""
    given = _given(text, arrays, or_shapes=True)
    with entered(given) as lies:
        here = around(given, lies.is_set, lies.devices)
        given, shapes, dtypes = _taken(text, arrays, given, here)
        found = _chosen(*_program(text, here, shapes, dtypes), planner)
        shapes_given = [_unplaced(array, dtype) for array, dtype in zip(given, dtypes, strict=True)]
        CompiledProgram(found.schedule).arguments(shapes_given, here, or_shapes=True)
    return found


def _taken(
    text: str, arrays: tuple[Any, ...], given: list[Any], here: Around
) -> tuple[list[Any], Shapes, tuple[str, ...]]:
    """The arrays in the types that they are taken in."""
    shapes, dtypes = _kinds(given)
    if not any(weak := tuple(map(is_weak, arrays))):
        return given, shapes, dtypes
    dtypes = _settled(text, here, shapes, dtypes, weak)
    typed = [
        array if isinstance(array, jax.ShapeDtypeStruct) else as_type(array, dtype, place)
        for place, (array, dtype) in enumerate(zip(given, dtypes, strict=True), 1)
    ]
    return typed, shapes, dtypes


def _unplaced(array: Any, dtype: str) -> Any:
    """An array that is not put anywhere, and so not refused for where it lies, as its shape: nothing is put there."""
    if isinstance(array, jax.core.Tracer) or (isinstance(array, jax.Array) and array.committed):
        return array
    lies = array.sharding if isinstance(array, jax.ShapeDtypeStruct) else None
    return jax.ShapeDtypeStruct(array.shape, jax.numpy.dtype(dtype), sharding=lies)


def _given(text: str, arrays: tuple[Any, ...], or_shapes: bool = False) -> list[Any]:
    if not isinstance(text, str):
        raise ShardcError("SHC001", f"the program is a {type(text).__name__}", help="give text, then the arrays")
    return [
        array
        if or_shapes and isinstance(array, jax.ShapeDtypeStruct)
        else as_array(array, f"array {place}", narrowed=True)
        for place, array in enumerate(arrays, 1)
    ]


def _kinds(given: list[Any]) -> tuple[Shapes, tuple[str, ...]]:
    for place, array in enumerate(given, 1):
        if are_keys(array):
            raise ShardcError(
                "SHC001",
                f"array {place} is of type {array.dtype}",
                help="give an array of numbers; shardc.reshard takes keys, and jax.random.key_data has their numbers",
            )
    return tuple(tuple(array.shape) for array in given), tuple(_type_of(array).name for array in given)


def _type_of(given: Any) -> Any:
    """A shape may be of a type that JAX gives no array of."""
    return jax.dtypes.canonicalize_dtype(given.dtype) if isinstance(given, jax.ShapeDtypeStruct) else given.dtype


@lru_cache(maxsize=512)
def _einsum(
    text: str, here: Around, shapes: Shapes, dtypes: tuple[str, ...], planner: Planner[Planned]
) -> CompiledProgram:
    program, _ = _program(text, here, shapes, dtypes)
    for warning in declared_in_vain(text, program):
        warnings.warn(warning, stacklevel=4)  # of the line that calls `shardc.einsum`
    placed, names = by_place(program)
    written = _Written(placed, program)
    schedule = named(_shared(written, here, planner), program, names)
    if here.taken or not may_be_planned(program):
        return CompiledProgram(schedule)
    return CompiledProgram(schedule, halves=partial(_halves, written, planner, Lying.of(schedule)))


@dataclass(frozen=True, slots=True)
class _Written:
    """A program by place, and as its text has it: those that differ in names alone are equal."""

    placed: Program
    program: Program = field(compare=False)


@lru_cache(maxsize=512)
def _shared(written: _Written, here: Around, planner: Planner[Planned]) -> Schedule:
    return _chosen(written.placed, here, planner).schedule


@lru_cache(maxsize=512)
def _halves(written: _Written, planner: Planner[Planned], lying: Lying) -> Halves:
    """Of the text that asks first: its gradient is a text of its own. Where arguments and results lie is not free any
    more, since the function without a gradient has them there."""
    program = lying.pinned(written.program, written.program)
    whole, coming = planner.whole(program)
    return halves(program, planner(lying.pinned(whole, program), False).schedule, coming)


@lru_cache(maxsize=512)
def _settled(
    text: str, here: Around, shapes: Shapes, dtypes: tuple[str, ...], weak: tuple[bool, ...]
) -> tuple[str, ...]:
    """The types with those that weakly typed arrays meet; as they are, where the text would not be legal so: it may
    declare that a result is wider."""
    program, _ = _program(text, here, shapes, dtypes)
    names = [array.name for array in program.inputs]
    met = types_met(program, [name for name, is_weak in zip(names, weak, strict=True) if is_weak])
    found = tuple(met[name].jax if name in met else dtype for name, dtype in zip(names, dtypes, strict=True))
    try:
        _program(text, here, shapes, found)
    except ShardcError:
        return dtypes
    return found


def _program(text: str, here: Around, shapes: Shapes, dtypes: tuple[str, ...]) -> tuple[Program, Around]:
    if here.taken:
        here.check_free(by_itself(text, here.whole, dtypes).axes_written, "the text")
    return _bound(text, here.free, shapes, dtypes), here


def _chosen(program: Program, here: Around, planner: Planner[_Found]) -> _Found:
    """Axes are not cut inside another transformation, nor where types could not say how a result lies."""
    found = planner(program, here.may_cut)
    schedule = found.schedule
    if schedule.by is not None and not all(here.can_type(schedule.given(n).sharding) for n in schedule.outputs):
        return planner(program, False)
    return found


def _bound(text: str, mesh: Mesh, shapes: Shapes, dtypes: tuple[str, ...]) -> Program:
    """The program with sizes and dtypes from the arrays."""
    dtype = dtypes[0] if dtypes else None
    try:
        inputs = inputs_of(text, mesh, dtypes)
        sizes = _sizes(inputs, shapes)
        kinds = {array.name: kind for array, kind in zip(inputs, dtypes, strict=True)}
        return parse(text, mesh=mesh, dims=sizes, dtype=dtype, dtypes=kinds, exact=True)
    except ShardcError:
        by_itself(text, mesh, dtypes)  # of two faults that of the text by itself is told, whatever the arrays
        raise


def _sizes(inputs: tuple[Input, ...], shapes: Shapes) -> dict[str, int]:
    """Of each dim, as the arrays have it."""
    if len(inputs) != len(shapes):
        names = ", ".join(array.name for array in inputs)
        raise ShardcError(
            "SHC309", f"{len(shapes)} arrays given; the text has {len(inputs)} inputs", help=f"in order: {names}"
        )
    sizes: dict[str, int] = {}
    for array, shape in zip(inputs, shapes, strict=True):
        if len(shape) != len(array.dims):
            raise ShardcError(
                "SHC303",
                f"`{array.name}` has shape {shape}; the text gives it {len(array.dims)} dims",
                span=array.span,
                help=f"[{', '.join(array.dims)}]",
            )
        for dim, size in zip(array.dims, shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                raise ShardcError(
                    "SHC206",
                    f"dim `{dim}` has two sizes, {sizes[dim]} and {size}",
                    span=array.span,
                    help="give dims of different sizes different names",
                )
    return sizes


def reshard(x: Any, spec: Any, *, planner: Planner[Planned]) -> Any:
    """The array in another sharding. See `shardc.reshard`."""
    with mesh_named_by(spec, x) as lies:
        array = as_array(x, "the array", narrowed=True)
        here = around([array], lies.is_set, lies.devices)
        return _of_keys(array, spec, here, planner) if are_keys(array) else _resharded(array, spec, here, planner)


def _of_keys(keys: Any, spec: Any, here: Around, planner: Planner[Planned]) -> Any:
    """What moves of keys is their numbers, an array that has a dim more at the end."""
    target_of(spec, keys.ndim, here)
    moved = _resharded(jax.random.key_data(keys), spec, here, planner)
    return jax.random.wrap_key_data(moved, impl=jax.random.key_impl(keys))


def _resharded(x: Any, spec: Any, here: Around, planner: Planner[Planned]) -> Any:
    if here.is_mapped:
        x = placing.from_inside(x, "the array")
    target, is_typed = target_of(spec, x.ndim, here), placing.is_traced(x) or not here.is_set
    if is_typed:
        here.check_typed(target, str(spec))
    if not target.divides(x.shape, here.free):
        raise ShardcError(
            "SHC204", f"shape {x.shape} is not divisible by {spec} on {here.free}", help="drop axes, or pad"
        )
    if is_typed:
        x = placing.onto_mesh(x, target, here)
    source = _source(x, target, here)
    if target.unreduced and not (source and source.unreduced & here.explicit >= target.unreduced):
        raise ShardcError(
            "SHC220",
            f"no sequence of moves leads to {spec}",
            note=f"nothing makes a whole array unreduced over {', '.join(sorted(target.unreduced))}",
            help="drop `unreduced`; products leave partial sums, where shardc.einsum is asked for them",
        )
    if source is None:
        x = jax.device_put(x, jax.NamedSharding(placing.mesh_in_force(), spec_of(target)))
    elif source != target:
        x = _reshard(here, tuple(x.shape), x.dtype.name, source, target, planner).called([x], here)
    if here.has_auto and placing.is_tracing(x):
        return placing.constrained(x, spec_of(here.untyped(target)))
    return x if is_typed or placing.is_traced(x) or here.is_mapped else placing.retyped(x)


def _source(x: Any, target: Sharding, here: Around) -> Sharding | None:
    """Where the path begins; None of what lies nowhere on the mesh, which has no path: it is put there."""
    if placing.is_traced(x) or here.is_mapped or not here.is_set:
        typed = here.typed(sharding_of(jax.typeof(x).sharding.spec, x.ndim))
        # With no type at all it is all for XLA to decide.
        return filled(typed, here.untyped(target), x.shape, here.free) if here.explicit else target
    if not isinstance(x, jax.Array) or not x.committed or not isinstance(x.sharding, jax.NamedSharding):
        return None
    placing.check_mesh_of(x, "the array", here)
    return sharding_of(x.sharding.spec, x.ndim)


@lru_cache(maxsize=512)
def _reshard(
    here: Around, shape: tuple[int, ...], dtype: str, source: Sharding, target: Sharding, planner: Planner[Planned]
) -> CompiledProgram:
    dims = tuple(f"d{place}" for place in range(len(shape)))
    kind = find_dtype(dtype)
    if source.unreduced and not kind.adds:
        raise ShardcError(
            "SHC214", f"partial sums of {kind}, which are not added up", help="reduce it in another type, say int32"
        )
    before, after = Pattern.exactly(source), Pattern.exactly(target)
    text = f"x{spell(dims, source)} → x{spell(dims, target)}"
    statement = Statement("x", dims, after, Use("x", dims, before, kind), kind, text)
    sizes = tuple(zip(dims, shape, strict=True))
    program = Program(here.free, sizes, kind, (Input("x", dims, before, kind),), (statement,))
    return CompiledProgram(_chosen(program, here, planner).schedule)
