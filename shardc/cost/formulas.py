"""A step's time as the books write it, in the program's own symbols: `2·D·F/Y·(X-1) / W`.

W is the bandwidth of the step's axes in B/s, C the peak in FLOP/s. Sizes of dims and axes go by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from shardc.ir.collectives import AllGather, AllReduce, AllToAll, CollectivePermute, Move, ReduceScatter, Slice
from shardc.ir.sharding import Array


def local_bytes(array: Array) -> str:
    """`2·I·J/X`: the bytes of one device's block."""
    return over([*([str(array.dtype.bytes)] if array.dtype.bytes > 1 else []), *array.dims], array.sharding.sharded)


def over(above: Iterable[str], below: Iterable[str]) -> str:
    return "/".join(["·".join(above) or "1", *below])


def of_move(move: Move, before: Array) -> str:
    """The bytes received by one device, over W."""
    size = local_bytes(before)
    n = "·".join(move.axes)
    less = f"({n}-1)"
    match move:
        case AllGather():
            return f"{size}·{less} / W"
        case ReduceScatter() | AllToAll():
            return f"{size}·{less}/({n}) / W" if len(move.axes) > 1 else f"{size}·{less}/{n} / W"
        case AllReduce():
            group = f"({n})" if len(move.axes) > 1 else n
            return f"2·{size}·{less}/{group} / W"
        case CollectivePermute():
            return f"{size} / W"
        case Slice():
            return "0"
        case _:
            assert_never(move)


def of_product(dims: Iterable[str], axes: Iterable[str], contracts: bool) -> str:
    """`2·I·J·K/X / C`: multiply-adds count twice."""
    return over([*(["2"] if contracts else []), *dims], axes) + " / C"
