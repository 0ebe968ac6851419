"""`shardc.einsum` and `shardc.reshard`: planned when called or traced, on the mesh of `jax.set_mesh`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from shardc.backend import placing
from shardc.backend.program import CompiledProgram
from shardc.errors import ShardcError
from shardc.ir.dtypes import dtype as find_dtype
from shardc.ir.mesh import Mesh
from shardc.ir.names import check_name
from shardc.ir.plan import Schedule
from shardc.ir.program import Input, Pattern, Program, Statement, Use
from shardc.ir.sharding import Sharding, spell
from shardc.notation import parse

Planner = Callable[[Program], Schedule]
Shapes = tuple[tuple[int, ...], ...]


def einsum(text: str, *arrays: Any, planner: Planner) -> Any:
    """The program of a text on these arrays. See `shardc.einsum`."""
    shapes = tuple(tuple(np.shape(array)) for array in arrays)
    return _einsum(text, mesh_in_force(), shapes, tuple(map(_dtype, arrays)), planner)(*arrays)


@lru_cache(maxsize=512)
def _einsum(text: str, mesh: Mesh, shapes: Shapes, dtypes: tuple[str, ...], planner: Planner) -> CompiledProgram:
    return CompiledProgram(planner(_bound(text, mesh, shapes, dtypes)))


def _bound(text: str, mesh: Mesh, shapes: Shapes, dtypes: tuple[str, ...]) -> Program:
    """The program with sizes and dtypes from the arrays."""
    unsized = parse(text, mesh=mesh)
    inputs = unsized.inputs
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
    kinds = {array.name: kind for array, kind in zip(inputs, dtypes, strict=True)}
    return parse(text, mesh=mesh, dims=sizes, dtype=dtypes[0] if dtypes else None, dtypes=kinds)


def reshard(x: Any, spec: jax.P, *, planner: Planner) -> Any:
    """The array in another sharding. See `shardc.reshard`."""
    mesh = mesh_in_force()
    x = x if isinstance(x, jax.Array) else np.asarray(x)
    target = _target(spec, x.ndim, mesh)
    source = _source(x)
    if not target.divides(x.shape, mesh):
        raise ShardcError("SHC204", f"shape {x.shape} is not divisible by {spec} on {mesh}", help="drop axes, or pad")
    if source is None:
        return _without_source(x, spec, target)
    if source == target:
        return x
    return _reshard(mesh, tuple(np.shape(x)), _dtype(x), source, target, planner)(x)


def _target(spec: Any, rank: int, mesh: Mesh) -> Sharding:
    """The spec as a sharding; a coded error if it is none of this array on this mesh."""
    if not isinstance(spec, jax.P) or not all(isinstance(part, str | tuple | None) for part in spec.partitions):
        raise ShardcError("SHC001", f"`{spec}` is not a spec", help='give a jax.P of axes, as in jax.P("X", None)')
    if len(spec.partitions) > rank:
        raise ShardcError("SHC303", f"{spec} is longer than the array's {rank} dims", help="a part for each dim")
    target = placing.sharding_of(spec, rank)
    written = [*target.sharded, *target.unreduced]
    unknown = sorted(set(written) - set(mesh.names))
    if unknown:
        raise ShardcError("SHC201", f"unknown mesh axis `{unknown[0]}` in {spec}", help=f"the mesh in force has {mesh}")
    if len(set(written)) < len(written):
        raise ShardcError("SHC202", f"{spec} uses an axis twice", help="an axis shards one dim")
    return target


def _source(x: Any) -> Sharding | None:
    """How an array lies, if that can be known: not of NumPy arrays, nor under jit along Auto axes."""
    if not isinstance(x, jax.Array):
        return None
    if not placing.is_traced(x):
        lies, here = x.sharding, placing.mesh_in_force()
        if isinstance(lies, jax.NamedSharding) and lies.mesh.shape != here.shape:
            where = dict(lies.mesh.shape)
            raise ShardcError(
                "SHC306", f"the array lies on a mesh {where}", help="jax.device_put it on the mesh in force"
            )
        return placing.sharding_of(lies.spec, x.ndim) if isinstance(lies, jax.NamedSharding) and x.committed else None
    mesh = jax.sharding.get_abstract_mesh()
    if any(kind != jax.sharding.AxisType.Explicit for kind in mesh.axis_types):
        return None
    return placing.sharding_of(jax.typeof(x).sharding.spec, x.ndim)


def _without_source(x: Any, spec: jax.P, target: Sharding) -> Any:
    """From nowhere on the mesh there is no path to plan: the array is put there; a traced one is constrained."""
    if target.unreduced:
        raise ShardcError(
            "SHC220",
            f"no sequence of moves leads to {spec}",
            note=f"nothing makes a whole array unreduced over {', '.join(sorted(target.unreduced))}",
            help="drop `unreduced`; products leave partial sums, where shardc.einsum is asked for them",
        )
    if placing.is_traced(x):
        return jax.lax.with_sharding_constraint(x, spec)
    return jax.device_put(x, jax.NamedSharding(placing.mesh_in_force(), spec))


@lru_cache(maxsize=512)
def _reshard(
    mesh: Mesh, shape: tuple[int, ...], dtype: str, source: Sharding, target: Sharding, planner: Planner
) -> CompiledProgram:
    dims = tuple(f"d{place}" for place in range(len(shape)))
    kind = find_dtype(dtype)
    before, after = Pattern.exactly(source), Pattern.exactly(target)
    text = f"x{spell(dims, source)} → x{spell(dims, target)}"
    statement = Statement("x", dims, after, Use("x", dims, before, kind), kind, text)
    sizes = tuple(zip(dims, shape, strict=True))
    return CompiledProgram(planner(Program(mesh, sizes, kind, (Input("x", dims, before, kind),), (statement,))))


def mesh_in_force() -> Mesh:
    """The mesh of `jax.set_mesh`; SHC306 if there is none, or inside a shard_map."""
    current = jax.sharding.get_abstract_mesh()
    if current.empty:
        raise ShardcError("SHC306", "no mesh is set", help="with jax.set_mesh(mesh): …")
    if any(kind == jax.sharding.AxisType.Manual for kind in current.axis_types):
        raise ShardcError("SHC306", "inside shard_map arrays are local already", help="call it outside")
    for name in current.axis_names:
        check_name(name, "axis")
    return Mesh(tuple(zip(current.axis_names, current.axis_sizes, strict=True)))


def _dtype(array: Any) -> str:
    found = array.dtype if hasattr(array, "dtype") else np.asarray(array).dtype
    return str(found.name)
