"""A mapped function inside another shard_map, with a gradient that JAX can take there.

    f = shard_map(body)           between the two only f's own arguments
    df = shard_map(body's vjp)

JAX 0.10 differentiates a shard_map into two, and hands what the first leaves inside to the second. Inside another
shard_map it then writes that value's type with the axes of both, which its compiler refuses. Here the second makes
anew what it needs. The price: no forward mode (jax.jvp), and no gradient of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def with_own_gradient(body: Callable[..., Any], ins: Any, outs: Any, names: set[str]) -> Callable[..., Any]:
    """`body` mapped over the axes `names`."""
    forward = jax.shard_map(body, in_specs=ins, out_specs=outs, axis_names=names)

    def backward(arrays: tuple[Any, ...], change: Any) -> tuple[Any, ...]:
        moving = [place for place, array in enumerate(arrays) if jnp.issubdtype(array.dtype, jnp.inexact)]

        def pulled(arrays: tuple[Any, ...], change: Any) -> list[Any]:
            def of_moving(*some: Any) -> Any:
                replaced = dict(zip(moving, some, strict=True))
                return body(*(replaced.get(place, array) for place, array in enumerate(arrays)))

            return list(jax.vjp(of_moving, *(arrays[place] for place in moving))[1](change))

        own = [ins[place] for place in moving]
        mapped = jax.shard_map(pulled, in_specs=(tuple(ins), outs), out_specs=own, axis_names=names)
        found = dict(zip(moving, mapped(arrays, change), strict=True))
        return tuple(found.get(place) for place in range(len(arrays)))  # None: integers do not change

    whole: Any = jax.custom_vjp(forward)
    whole.defvjp(lambda *arrays: (forward(*arrays), arrays), backward)
    found: Callable[..., Any] = whole
    return found
