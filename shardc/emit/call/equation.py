"""A program with a gradient of its own as one equation, which JAX opens where it has to look inside.

    jax.make_jaxpr(f)(x, w)     c:f32[64@X,8@Y] = shardc[program=A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]] a b

What each device does is traced when the equation is lowered, the gradient when somebody asks for one. Opened at once, a
program takes as long to trace as two `jnp.einsum`s: its steps under shard_map as long as one, a jit around them and the
custom gradient two fifths of one each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from shardc.emit.call.gradient import Halves, with_gradient


@dataclass(frozen=True, eq=False)  # each is itself alone; without slots, since JAX refers to it weakly
class Equation:
    """On a mesh; `types` are those of what the program leaves, `halves` its gradient's."""

    text: str
    program: Callable[..., Any]
    halves: Callable[[], Halves]
    types: tuple[jax.ShapeDtypeStruct, ...]
    mesh: jax.sharding.AbstractMesh

    @cached_property
    def whole(self) -> Callable[..., Any]:
        """Without its gradient, traced once for all equal equations."""
        found: Callable[..., Any] = jax.jit(self.program)
        return found

    @cached_property
    def called(self) -> Callable[..., Any]:
        """With its gradient."""
        found: Callable[..., Any] = jax.jit(with_gradient(self.program, self.halves, self.mesh))
        return found

    def __call__(self, *arrays: Any) -> Any:
        if not any(isinstance(array, jax.core.Tracer) for array in arrays):
            return self.called(*arrays)
        found = _program.bind(*arrays, program=self)
        return found if len(self.types) > 1 else found[0]

    def __str__(self) -> str:
        return self.text


_program = Primitive("shardc")
_program.multiple_results = True


def _several(program: Equation, found: Any) -> Sequence[Any]:
    return tuple(found) if len(program.types) > 1 else (found,)


def _done(*arrays: Any, program: Equation) -> Sequence[Any]:
    return _several(program, program.called(*arrays))


def _types(*_: Any, program: Equation) -> list[Any]:
    return [jax.core.ShapedArray(each.shape, each.dtype, sharding=each.sharding) for each in program.types]


def _opened(*arrays: Any, program: Equation) -> Sequence[Any]:
    return _several(program, program.whole(*arrays))


def _changed(arrays: Sequence[Any], changes: Sequence[Any], *, program: Equation) -> tuple[Any, Any]:
    """Of what changes alone: zeros of the others would be made at once, for which JAX wants a mesh to be set."""
    moving = [place for place, change in enumerate(changes) if type(change) is not ad.Zero]

    def of_moving(*some: Any) -> Any:
        replaced = dict(zip(moving, some, strict=True))
        return program.called(*(replaced.get(place, array) for place, array in enumerate(arrays)))

    moved = tuple(arrays[place] for place in moving), tuple(changes[place] for place in moving)
    found, change = jax.jvp(of_moving, *moved)
    return _several(program, found), _several(program, change)


def _mapped(axis: Any, arrays: Sequence[Any], dims: Sequence[Any], *, program: Equation) -> tuple[Any, Any]:
    mapped = jax.vmap(program.called, tuple(dims), 0, axis_size=axis.size, spmd_axis_name=axis.spmd_name)
    return _several(program, mapped(*arrays)), (0,) * len(program.types)


_program.def_impl(_done)
_program.def_abstract_eval(_types)
mlir.register_lowering(_program, mlir.lower_fun(_opened, multiple_results=True))
ad.primitive_jvps[_program] = _changed
batching.fancy_primitive_batchers[_program] = _mapped
