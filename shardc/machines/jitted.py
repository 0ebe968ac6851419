"""A jitted function of somebody else's, compiled: its text, its mesh, how its arguments lie, what the compiler said."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import jax

from shardc.emit.call import placing
from shardc.errors import ShardcError
from shardc.ir.dtypes import dtype
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Sharding
from shardc.machines import tpu
from shardc.machines.laid_out import Compiled
from shardc.machines.moved import moved
from shardc.machines.named import said
from shardc.machines.stderr import caught_stderr

_LEFT_OUT = re.compile(r"\w+\[([\d,]*)\]\S* constant\(\{\.\.\.\}\)")
_MOST_CONSTANTS = 1 << 20
_REMATERIALIZES = "nvoluntary full rematerialization"


@dataclass(frozen=True, slots=True)
class Lowering:
    """A compiled function. `inputs` are the leaves of its arguments, None where a sharding is not of named axes."""

    text: str  # HLO
    mesh: Mesh
    platform: str
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array | None, ...]
    explicit: bool  # every axis is Explicit
    memory: tuple[int, ...]  # bytes of arguments, outputs and temporaries; empty if the compiler keeps no count
    warnings: str  # of XLA, that it replicates an array to reshard it
    jaxpr: Any
    flops: float  # of one device; 0 if the compiler does not say


def lower(function: Any, args: Sequence[Any], onto: Any = None) -> Lowering:
    """Compiles a function for the mesh of its arguments, or for `onto`, a JAX mesh of the same axes.

    Arguments are arrays or jax.ShapeDtypeStructs, in any pytree, with NamedShardings; what jax.jit was given of such
    is moved with them. SHC306 if none has one or if their meshes differ, SHC308 if the function cannot be
    traced or compiled.
    """
    given = _jax_mesh(args)
    mesh = _concrete(given, onto)
    jitted = function if hasattr(function, "trace") else jax.jit(function)
    placed = tuple(args)
    if given is not mesh:
        jitted, placed = moved(jitted, mesh), jax.tree.map(lambda leaf: _placed(leaf, mesh), placed)
    with _in_force(mesh, onto), caught_stderr() as caught:
        traced = _traced(jitted, placed)
        made = tpu.compiled(_lowered(traced), mesh)
    repeat(caught.text)
    return _described(traced, made, mesh, placed, caught.text)


def mesh_of(args: Sequence[Any]) -> Mesh:
    """The mesh on which the arguments lie; SHC306 if there is none."""
    return _named(_jax_mesh(args))


def _jax_mesh(args: Sequence[Any]) -> Any:
    found = []
    for leaf in jax.tree.leaves(tuple(args)):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, jax.NamedSharding) and not sharding.mesh.empty:
            found.append(sharding.mesh)
    if not found:
        raise ShardcError(
            "SHC306",
            "no argument has a NamedSharding, so there is no mesh",
            help="jax.ShapeDtypeStruct(shape, dtype, sharding=jax.NamedSharding(mesh, jax.P(…))), or placed arrays",
        )
    axes = {tuple(mesh.shape.items()): mesh for mesh in found}
    if len(axes) > 1:
        spelled = " and ".join(str(dict(shape)) for shape in axes)
        raise ShardcError("SHC306", f"the arguments lie on different meshes: {spelled}", help="put all on one mesh")
    concrete = [mesh for mesh in found if isinstance(mesh, jax.sharding.Mesh)]
    return concrete[0] if concrete else found[0]


def _named(mesh: Any) -> Mesh:
    return Mesh.of(dict(mesh.shape))


def _concrete(given: Any, onto: Any) -> Any:
    """The mesh to compile for: its devices are those of `onto`, or the given ones, or the first there are."""
    if onto is None and isinstance(given, jax.sharding.Mesh):
        return given
    devices = (placing.make_mesh(_named(given)) if onto is None else onto).devices
    return jax.sharding.Mesh(devices, given.axis_names, axis_types=given.axis_types)


def _placed(leaf: Any, mesh: Any) -> Any:
    """The same argument as a shape only, on another mesh of the same axes."""
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, jax.NamedSharding):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=jax.NamedSharding(mesh, sharding.spec))


def _in_force(mesh: Any, onto: Any) -> AbstractContextManager[Any]:
    """The mesh is set unless the caller has set one, for the same devices."""
    free = jax.sharding.get_abstract_mesh().empty or onto is not None
    return jax.set_mesh(mesh) if free else nullcontext()


def _traced(jitted: Any, args: Sequence[Any]) -> Any:
    try:
        return jitted.trace(*args)
    except ShardcError:
        raise
    except Exception as error:
        _refuse("the function cannot be traced", error)


def _lowered(traced: Any) -> Any:
    try:
        return traced.lower()
    except Exception as error:
        _refuse("the function cannot be lowered", error)


def _refuse(what: str, error: Exception) -> NoReturn:
    """SHC308, with the user's line; the error itself is the cause."""
    help = "call it under jax.jit with these arguments, which raises the same"
    if "ncompatible devices" in str(error):
        help = (
            "write jax.P(…) instead of a NamedSharding of other devices, inside the function or in its out_shardings, "
            "so that it takes the mesh in force"
        )
    if "should match the mesh passed to shard_map" in str(error):
        help = "leave out `mesh=` of jax.shard_map, so that it takes the mesh in force, which is the slice's"
    raise ShardcError("SHC308", f"{what}: {said(error)}", help=help) from error


_OF_ITSELF = re.compile(r"[IWE]\d{4} \S+ +\d+ (?:tpu|llo|shardy)_")


def repeat(text: str) -> None:
    """What was caught goes where it was going, but for what is reported, and the TPU compiler's talk of itself."""
    for line in text.splitlines():
        if line.strip() and _REMATERIALIZES not in line and not _OF_ITSELF.match(line):
            print(line, file=sys.stderr)


def _described(traced: Any, compiled: Compiled, mesh: Any, args: Sequence[Any], written: str) -> Lowering:
    made, stats = compiled.made, compiled.memory_analysis()
    sizes = (
        (stats.argument_size_in_bytes, stats.output_size_in_bytes, stats.temp_size_in_bytes)
        if stats is not None
        else ()
    )
    shapes = jax.tree.leaves(traced.args_info)
    names = traced.jaxpr.jaxpr.debug_info.arg_names or ("",) * len(shapes)
    outputs = [jax.typeof(leaf) if not hasattr(leaf, "shape") else leaf for leaf in jax.tree.leaves(traced.out_info)]
    return Lowering(
        _text(made),
        _named(mesh),
        mesh.devices.flat[0].platform,
        _arrays(names, shapes, made.input_shardings[0]),
        _arrays([f"result{place}" for place in range(len(outputs))], outputs, made.output_shardings),
        all(kind == jax.sharding.AxisType.Explicit for kind in mesh.axis_types),
        sizes,
        "\n".join(line for line in written.splitlines() if _REMATERIALIZES in line),
        traced.jaxpr,
        _flops(made),
    )


def _text(made: Any) -> str:
    """HLO with its tables of a number for each device, which the usual text leaves out beyond ten; no large ones."""
    text: str = made.as_text()
    left_out = [prod(int(n) for n in sizes.split(",") if n) for sizes in _LEFT_OUT.findall(text)]
    if not left_out or sum(left_out) > _MOST_CONSTANTS:
        return text
    try:
        module = made.runtime_executable().hlo_modules()[0]
        options = importlib.import_module(type(module).__module__).HloPrintOptions()
        options.print_large_constants = True
        return str(module.to_string(options))
    except (AttributeError, ImportError, IndexError, TypeError):  # none of it is JAX's public interface
        return text


def _flops(made: Any) -> float:
    found = made.cost_analysis()
    return max(0.0, float(found.get("flops", 0.0))) if isinstance(found, dict) else 0.0


def _arrays(names: Sequence[str], leaves: Sequence[Any], shardings: Any) -> tuple[Array | None, ...]:
    """Each leaf as an array of the notation's kind."""
    found = jax.tree.leaves(shardings, is_leaf=lambda leaf: leaf is None or isinstance(leaf, jax.sharding.Sharding))
    if not len(names) == len(leaves) == len(found):
        return ()
    return tuple(_array(*both) for both in zip(names, leaves, found, strict=True))


def _array(name: str, leaf: Any, lies: Any) -> Array | None:
    sharding = _sharding(lies, len(leaf.shape))
    if sharding is None:
        return None
    try:
        kind = dtype(str(leaf.dtype))
    except ShardcError:
        return None
    return Array(name, tuple(f"d{place}" for place in range(len(leaf.shape))), tuple(leaf.shape), sharding, kind)


def _sharding(lies: Any, rank: int) -> Sharding | None:
    if not isinstance(lies, jax.NamedSharding):
        return None
    known = all(part is None or isinstance(part, str | tuple) for part in lies.spec.partitions)
    return placing.sharding_of(lies.spec, rank) if known and len(lies.spec.partitions) <= rank else None
