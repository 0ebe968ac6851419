"""A word for jax.vmap, which maps no arrays of partial sums and ends in an error that says nothing.

What a program is given passes through an equation that does nothing but where it is mapped: there it is refused,
whether the program is called under vmap, or vmap finds it in a function that was jitted before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from shardc.emit.call.placing import is_traced
from shardc.errors import ShardcError
from shardc.ir.sharding import Array

_unmapped = Primitive("unmapped")


def unmapped(arrays: Sequence[Any], leaves: Array) -> list[Any]:
    """What a program is given that leaves partial sums, an array of them: SHC306 where vmap maps it."""
    return [_unmapped.bind(array, leaves=str(leaves)) if is_traced(array) else array for array in arrays]


def _refused(arrays: Sequence[Any], dims: Sequence[Any], *, leaves: str) -> NoReturn:
    name, brackets = leaves.split("[", 1)
    raise ShardcError(
        "SHC306",
        f"`{leaves}` is unreduced, and jax.vmap maps no arrays of partial sums",
        help=f"reduce `{name}` in the program, or name the mapped dim in it: {name}[N, {brackets}",
    )


_unmapped.def_impl(lambda array, *, leaves: array)
_unmapped.def_abstract_eval(lambda array, *, leaves: array)
mlir.register_lowering(_unmapped, lambda context, array, *, leaves: [array])
ad.deflinear2(_unmapped, lambda change, array, *, leaves: [change])
batching.primitive_batchers[_unmapped] = _refused
