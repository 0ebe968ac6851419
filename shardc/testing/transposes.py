"""The transposes of collectives, as JAX's derivatives have them, in the letters of laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardc.errors import ShardcError
from shardc.interface.arguments import MeshLike
from shardc.ir.operations import IllegalMove
from shardc.ir.sharding import Array, Sharding
from shardc.testing.laws import MESHES, Law, LawCase, tried
from shardc.testing.letters import after, names_of, read
from shardc.testing.refusals import meshes_given

# What JAX's derivative of each is: for blocks x and y of all devices, the sum of move(x)·y is that of x·transpose(y).
# A Slice reads what all devices hold alike, so that its derivative is one partial sum of it on each.
TRANSPOSES: dict[str, str] = {
    "AllGather_p(d)": "ReduceScatter_p(d)",
    "ReduceScatter_p(d)": "AllGather_p(d)",
    "JointGather_pq(d,e)": "JointScatter_pq(d,e)",
    "JointScatter_pq(d,e)": "JointGather_pq(d,e)",
    "AllToAll_p(d,e)": "AllToAll_p(e,d)",
    "JointExchange_pq(d,e,d,f)": "JointExchange_qp(f,d,e,d)",
    "CollectivePermute_pq(d)": "CollectivePermute_qp(d)",
    "CollectivePermute_pq(d,e)": "CollectivePermute_qp(d,e)",
    "AllReduce_p": "AllReduce_p",
    "Mask_p": "Mask_p",
    "Slice_p(d)": "Spread_p(d)",
    "Spread_p(d)": "Slice_p(d)",
}


def is_transpose(move: str, other: str, meshes: Sequence[MeshLike] = MESHES[:2]) -> bool:
    """Whether the sum of move(x)·y is that of x·other(y), for blocks that no law ties together, in every reading.

    >>> is_transpose("AllGather_p(d)", "ReduceScatter_p(d)"), is_transpose("AllGather_p(d)", "Slice_p(d)")
    (True, False)
    """
    if not set(names_of(other)) <= set(names_of(move)):
        raise ShardcError("SHC001", f"`{other}` has letters that `{move}` has not", help="give both the same letters")
    return all(_is_transposed(case, move, other) for case in tried(Law(move, move), meshes_given(meshes), 2))


def _is_transposed(case: LawCase, move: str, other: str) -> bool:
    (there, x, forth), mesh = _forth(case.array, case, move), case.mesh
    free = frozenset(mesh.names).difference(*there.sharding.dims)
    for unreduced in (free, frozenset[str]()):  # of copies a derivative has one partial sum each
        lies = Array("A", there.dims, there.shape, Sharding(there.sharding.dims, unreduced), there.dtype)
        try:
            _, y, back = _forth(lies, case, other)
        except IllegalMove:
            continue
        return bool(back.shape == x.shape and (forth * y).sum() == (x * back).sum())
    return False


def _forth(array: Array, case: LawCase, move: str) -> tuple[Array, Any, Any]:
    """The array after a move; blocks before it, drawn on each device, and those after it."""
    blocks = np.random.default_rng(0).integers(-9, 10, case.mesh.sizes + array.local_shape(case.mesh))
    found = after(array, read(move, case.groups, case.dims), lambda: blocks, case.mesh)
    assert found is not None, "sizes are shared out by all that the meshes have"
    return found[0], blocks, found[1]
