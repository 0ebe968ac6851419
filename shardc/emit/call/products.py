"""`jnp.einsum` of two arrays, as it comes out: one `dot_general`, and a transposition where the order asks for one.

`jnp.einsum` finds this out by a search for the best order of any number of operands, and traces what it finds as a
function of its own: a millisecond for each new shape, four fifths of what it takes to trace the product. What a plan
multiplies are two arrays in an order that is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

_Places = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Contraction:
    """The operands the other way round or not; the dims that they share, those summed first; the result's order."""

    is_turned: bool
    dims: tuple[tuple[_Places, _Places], tuple[_Places, _Places]]
    order: _Places | None


def einsum(spec: str, *operands: Any, preferred_element_type: Any = None) -> Any:
    """What `jnp.einsum` gives."""
    if preferred_element_type is not None and _is_for_cpus():
        operands = tuple(operand.astype(preferred_element_type) for operand in operands)
    found = _contraction(spec)
    if found is None or operands[0].dtype != operands[1].dtype:
        return jnp.einsum(spec, *operands, preferred_element_type=preferred_element_type)
    left, right = operands[::-1] if found.is_turned else operands
    wanted = left.dtype if preferred_element_type is None else preferred_element_type
    with jax.named_scope(spec):
        whole = jax.lax.dot_general(left, right, found.dims, preferred_element_type=wanted)
        return whole if found.order is None else jax.lax.transpose(whole, found.order)


def _is_for_cpus() -> bool:
    """Whether it is traced for CPUs: their compiler takes products of bf16 that are summed in f32, and then refuses
    three of a thousand (jaxlib 0.10 and 0.12: `ab,cda->bcd`). It computes all of them in f32."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    platform: str = jax.default_backend() if device is None else device.platform
    return platform == "cpu"


@lru_cache(maxsize=512)
def _contraction(spec: str) -> _Contraction | None:
    """Of `ij,jk->ik`; None for one operand or three, and where a dim of one alone is summed, or stands twice."""
    given, result = spec.split("->")
    if given.count(",") != 1:
        return None
    left, right = given.split(",")
    shared = set(left) & set(right)
    alone = (set(left) | set(right)) - shared - set(result)
    if alone or any(len(set(names)) < len(names) for names in (left, right, result)):
        return None
    batch = [name for name in result if name in shared]
    summed = sorted(shared.difference(result))

    def left_over(first: str, second: str) -> str:
        return "".join([*batch, *(name for name in first + second if name not in shared)])

    is_turned = left_over(left, right) != result  # as jnp.einsum has it, whether or not that spares a transposition
    first, second = (right, left) if is_turned else (left, right)
    names = left_over(first, second)
    dims = tuple((tuple(map(first.index, each)), tuple(map(second.index, each))) for each in (summed, batch))
    return _Contraction(
        is_turned, (dims[0], dims[1]), None if names == result else tuple(names.index(name) for name in result)
    )
