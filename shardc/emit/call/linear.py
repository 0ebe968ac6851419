"""A function that is linear in some of its arguments, of which it is known how it is turned around.

    along   held, what moves               →  how what is left changes
    back    held, a change of what is left →  that of what moves

JAX's forward mode goes along, its reverse mode is forward mode turned around: back. So a gradient that is planned as a
whole has a forward mode too, which a `jax.custom_vjp` lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Arrays = Sequence[Any]


@dataclass(frozen=True, eq=False)  # each is itself alone
class Linear:
    """`types` are those of the results; where they are not known `along` is traced for them."""

    along: Callable[..., Arrays]
    back: Callable[[Arrays, Arrays], Arrays]
    types: tuple[Any, ...] = ()

    def __call__(self, held: Arrays, moving: Arrays) -> Arrays:
        found: Arrays = _linear.bind(*held, *moving, function=self, held=len(held))
        return found

    def __str__(self) -> str:
        return "of shardc"


_linear = Primitive("shardc_linear")
_linear.multiple_results = True


def _along(*arrays: Any, function: Linear, held: int) -> Arrays:
    return function.along(*arrays)


def _types(*given: Any, function: Linear, held: int) -> list[Any]:
    if function.types:
        return list(function.types)
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=_lies(each)) for each in given]
    return list(jax.make_jaxpr(function.along)(*shapes).out_avals)


def _lies(given: Any) -> Any:
    return None if given.sharding.mesh.empty else given.sharding


def _turned(changes: Arrays, *arrays: Any, function: Linear, held: int) -> list[Any]:
    found = function.back(arrays[:held], [ad.instantiate_zeros(change) for change in changes])
    moved = zip(arrays[held:], found, strict=True)
    return [None] * held + [change if ad.is_undefined_primal(array) else None for array, change in moved]


def _changed(arrays: Arrays, changes: Arrays, *, function: Linear, held: int) -> tuple[Any, Any]:
    moving = [place for place, change in enumerate(changes) if type(change) is not ad.Zero]

    def of_moving(*some: Any) -> Any:
        replaced = dict(zip(moving, some, strict=True))
        return tuple(function.along(*(replaced.get(place, array) for place, array in enumerate(arrays))))

    found: tuple[Any, Any] = jax.jvp(of_moving, [arrays[n] for n in moving], [changes[n] for n in moving])
    return found


def _mapped(axis: Any, arrays: Arrays, dims: Arrays, *, function: Linear, held: int) -> tuple[Any, Any]:
    """What moves is mapped, all of it, so that back each has its own; what is held need not be."""
    front = [
        batching.bdim_at_front(array, dim, axis.size) for array, dim in zip(arrays[held:], dims[held:], strict=True)
    ]
    places = (*dims[:held], *[0] * len(front))

    def mapped(one: Callable[..., Any], count: int) -> Callable[..., Any]:
        return jax.vmap(one, places[:held] + (0,) * count, 0, axis_size=axis.size, spmd_axis_name=axis.spmd_name)

    def back(given: Arrays, changes: Arrays) -> Arrays:
        one = mapped(lambda *both: function.back(both[:held], both[held:]), len(changes))
        found: Arrays = one(*given, *changes)
        return found

    whole = Linear(mapped(function.along, len(front)), back)
    found = whole(arrays[:held], front)
    return found, (0,) * len(found)


_linear.def_impl(_along)
_linear.def_abstract_eval(_types)
mlir.register_lowering(_linear, mlir.lower_fun(_along, multiple_results=True))
ad.primitive_transposes[_linear] = _turned
ad.primitive_jvps[_linear] = _changed
batching.fancy_primitive_batchers[_linear] = _mapped
