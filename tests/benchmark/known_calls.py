"""What `shardc.einsum`, `reshard` and a plan's callable do where they are called: `tests/golden/known_calls.json`.

    python tests/benchmark/known_calls.py             # which calls differ from the table now
    python tests/benchmark/known_calls.py --write     # the same, and the table is written

Calls are drawn: on meshes of Explicit, Auto and Manual axes, under vmap, and for a gradient; with arrays that lie as is
asked or not, of other types and ranks, from NumPy or from other devices; with what is asked for right or wrong. Of each
the table has what it is refused with, in full, or the type that JAX gives the result and the collectives that it
traces, as one version of it names them. Nothing is compiled.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from asked import kept, told
from jax.extend.core import jaxprs_in_params

import shardc
from shardc.emit.call.program import CompiledProgram

TABLE = Path(__file__).parents[1] / "golden" / "known_calls.json"
CALLS, SEED = 480, 3
MESHES = ((2, 2, 2), (4, 2), (2, 4), (8,))
HOW = ("traced", "traced", "gradient", "vmap", "eager")
WHAT = ("reshard", "reshard", "einsum", "einsum", "einsum", "plan")
MOVED = re.compile("all_gather|psum|reduce_scatter|all_to_all|ppermute|axis_index|shard_map|reshard|constraint|dot_gen")
OVER = ("axis_name", "axes", "manual_axes", "in_specs", "out_specs", "sharding", "dst_sharding", "perm")
EXPLICIT, AUTO = jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto
OTHERS = ("W", ("X", "X"), ("Y", "X"), None)


@dataclass(frozen=True)
class Called:
    """`kinds` is a letter for each axis: Explicit, Auto, Manual. `arrays` say of each its shape, how it lies, its type
    and where it is from; `asked` is a text or a spec. Under vmap the mapped dim lies over `batch`."""

    what: str
    how: str
    sizes: tuple[int, ...]
    kinds: str
    arrays: tuple[tuple[tuple[int, ...], tuple[Any, ...], str, str], ...]
    asked: Any
    batch: str | None = None

    @property
    def names(self) -> str:
        return "XYZ"[: len(self.sizes)]


def calls() -> Iterator[Called]:
    draw = random.Random(SEED)
    for _ in range(CALLS):
        sizes, what, how = draw.choice(MESHES), draw.choice(WHAT), draw.choice(HOW)
        names = "XYZ"[: len(sizes)]
        kinds = "".join(draw.choice("EEEAAM") for _ in names)
        free = [name for name, kind in zip(names, kinds, strict=True) if kind != "M" or draw.random() < 0.05]
        if what == "reshard":
            shape = draw.choice(((16, 8), (16, 8), (8, 16, 4), (12, 8)))
            goal = _lies(draw, free, len(shape) - (draw.random() < 0.1))
            if draw.random() < 0.15:
                goal = tuple(draw.choice(OTHERS) if draw.random() < 0.5 else part for part in goal)
            arrays, wanted = (_array(draw, shape, _lies(draw, free, len(shape))),), goal
        else:
            lie = [_lies(draw, free, 2) for _ in range(3)]
            text = draw.choice(
                ("{} · {} → {}", "{} · {} → {}", "T = relu({}); C[I, K] = T · {}; D{2} = C", "{0} → {2}")
            )
            spelled = [
                f"{name}{_spelled(dims, dim)}" for name, dims, dim in zip("ABC", ("IJ", "JK", "IK"), lie, strict=True)
            ]
            spelled[2] = "C" + _spelled("IJ", lie[2]) if text.startswith("{0}") else spelled[2]
            wanted = text.replace("D{2}", "D" + spelled[2][1:]).format(*spelled)
            if free and draw.random() < 0.1:
                lie = [(None, (axis := draw.choice(free),)), ((axis,), None), (None, None)]
                wanted = f"A[I, J_{axis}] · B[J_{axis}, K] → C[I, K]{{U_{axis}}}"
            shapes = ((16, 8), (8, 16))[: 2 if "·" in wanted else 1]
            arrays = tuple(
                _array(draw, shape, dims if draw.random() < 0.93 else _lies(draw, free, 2))
                for shape, dims in zip(shapes, lie, strict=False)
            )
        arrays = arrays[1:] if draw.random() < 0.03 else arrays
        used = {axis for _, lies, _, _ in arrays for axes in lies for axis in axes or ()}
        batch = draw.choice((None, *(name for name in free if name not in used)))
        yield Called(what, how, sizes, kinds, arrays, wanted, batch if how == "vmap" else None)


def _lies(draw: random.Random, free: list[str], rank: int) -> tuple[Any, ...]:
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in draw.sample(free, len(free)):
        if rank and draw.random() < 0.6:
            draw.choice(dims).append(name)
    return tuple(tuple(dim) or None for dim in dims)


def _array(draw: random.Random, shape: tuple[int, ...], lies: tuple[Any, ...]) -> Any:
    if draw.random() < 0.06:
        shape = draw.choice((shape[:-1], (*shape, 2), tuple(size + 2 for size in shape)))
        lies = (*lies, None)[: len(shape)]
    kind = draw.choice(("float32",) * 20 + ("int32", "bfloat16"))
    return shape, lies, kind, draw.choice(("here",) * 10 + ("numpy", "numpy", "default", "few", "turned", "auto"))


def _spelled(dims: str, lies: tuple[Any, ...]) -> str:
    return (
        "[" + ", ".join(f"{dim}_{''.join(axes)}" if axes else dim for dim, axes in zip(dims, lies, strict=True)) + "]"
    )


def said(call: Called) -> list[str]:
    """What it is refused with; or the result's type, and what is traced."""
    kinds = tuple(AUTO if kind == "A" else EXPLICIT for kind in call.kinds)
    mesh = jax.make_mesh(call.sizes, tuple(call.names), axis_types=kinds)
    try:
        with jax.set_mesh(mesh):
            return _done(call, [_placed(*array, call, mesh) for array in call.arrays])
    except shardc.ShardcError as error:
        return [part for part in (f"{error.code} {error.message}", error.note, error.help) if part]
    except (ValueError, TypeError, NotImplementedError, AssertionError) as error:
        return [f"JAX: {type(error).__name__}"]


def _done(call: Called, arrays: list[Any]) -> list[str]:
    function = _function(call)
    if call.how == "eager":
        given: list[Any] = []
        with patch.object(CompiledProgram, "_function", lambda program, here: _noting(program, given)):
            left = jax.tree.leaves(function(*arrays))
        return [f"given {[_lying(each) for each in given]}", *map(_lying, left)]
    if call.how == "gradient":
        jaxpr = jax.make_jaxpr(lambda *given: _pulled(function, given))(*arrays)
    else:
        jaxpr = jax.make_jaxpr(function)(*arrays)
    return [", ".join(map(str, jaxpr.out_avals)), *_traced(jaxpr.jaxpr)]


def _noting(program: CompiledProgram, given: list[Any]) -> Callable[..., Any]:
    """In the place of what is compiled: what it is given is noted, and every device has all of what it leaves."""
    outputs = [program._schedule.given(number) for number in program._schedule.outputs]

    def noting(*arrays: Any) -> Any:
        given.extend(arrays)
        whole = jax.NamedSharding(jax.sharding.get_mesh(), jax.P())
        left = [jax.device_put(np.zeros(array.shape, array.dtype.jax), whole) for array in outputs]
        return left[0] if len(left) == 1 else tuple(left)

    return noting


def _lying(array: Any) -> str:
    sharding = getattr(array, "sharding", None)
    mesh = getattr(sharding, "mesh", None)
    where = f"{sharding.spec} of {mesh.axis_types}" if mesh is not None and sharding is not None else f"{sharding}"
    return f"{array.dtype} {array.shape} {where}"


def _pulled(function: Callable[..., Any], given: Sequence[Any]) -> Any:
    left, pulled = jax.vjp(function, *given)
    return pulled(jax.tree.map(jnp.ones_like, left))


def _function(call: Called) -> Callable[..., Any]:
    """What is called, inside a shard_map of the axes that are Manual."""
    does = _what(call)
    if call.how == "vmap":
        does = jax.vmap(does, spmd_axis_name=call.batch)
    manual = {name for name, kind in zip(call.names, call.kinds, strict=True) if kind == "M"}
    if not manual:
        return does
    return jax.shard_map(does, in_specs=(jax.P(),) * len(call.arrays), out_specs=jax.P(), axis_names=manual)


def _what(call: Called) -> Callable[..., Any]:
    match call.what:
        case "reshard":
            return lambda x: shardc.reshard(x, jax.P(*call.asked))
        case "einsum":
            return lambda *arrays: shardc.einsum(call.asked, *arrays)
        case _:
            mesh = {
                name: size for name, size, kind in zip(call.names, call.sizes, call.kinds, strict=True) if kind != "M"
            }
            dims = {dim: size for dim, size in (("I", 16), ("J", 8), ("K", 16)) if re.search(rf"\b{dim}", call.asked)}
            return shardc.plan(call.asked, mesh=mesh, dims=dims, dtype="f32").compile()


def _placed(shape: tuple[int, ...], lies: tuple[Any, ...], kind: str, where: str, call: Called, mesh: Any) -> Any:
    """An array, from where it is."""
    if call.how == "vmap":
        shape, lies = (8, *shape), (call.batch, *lies)
    array = np.zeros(shape, kind)
    devices = {"few": mesh.devices.reshape(-1)[:4], "turned": mesh.devices.reshape(-1)[::-1]}
    match where:
        case "numpy":
            return array
        case "default":
            return jnp.asarray(array)
        case "few":
            return jax.device_put(array, jax.NamedSharding(jax.sharding.Mesh(devices[where], ("X",)), jax.P()))
        case "turned" | "auto":
            every = devices.get(where, mesh.devices).reshape(call.sizes)
            mesh = jax.sharding.Mesh(every, tuple(call.names), axis_types=(AUTO,) * len(call.names))
    return jax.device_put(array, jax.NamedSharding(mesh, jax.P(*lies)))


def _traced(jaxpr: Any) -> Iterator[str]:
    """The collectives, products and functions mapped, with what they are over and take; equations of ours opened."""
    for equation in jaxpr.eqns:
        name, types = equation.primitive.name, ", ".join(str(each.aval) for each in equation.invars)
        over = [f"{key} {_sorted(equation.params[key])}" for key in OVER if key in equation.params]
        if MOVED.search(name):
            yield f"{name} {' '.join(over)} of {types}"
        if name == "shardc":
            given = [
                jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, sharding=v.aval.sharding) for v in equation.invars
            ]
            yield f"{name} {equation.params['program']}"
            yield from _traced(jax.make_jaxpr(equation.params["program"].called)(*given).jaxpr)
        for inside in jaxprs_in_params(equation.params):
            yield from _traced(inside)


def _sorted(value: Any) -> str:
    return str(sorted(value)) if isinstance(value, set | frozenset) else str(value)


def key(call: Called) -> str:
    return str(call).removeprefix("Called")


def now() -> dict[str, list[str]]:
    return {"jax": [jax.__version__]} | {key(call): said(call) for call in calls()}


def known() -> dict[str, list[str]]:
    return kept(TABLE)


def main() -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    told(__doc__, TABLE, now)


if __name__ == "__main__":
    main()
