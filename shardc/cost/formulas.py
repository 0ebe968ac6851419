"""A step's time as the books write it, in the program's own symbols: `2·D·F/Y·(X-1) / W`.

W is the bandwidth of one mesh axis in B/s, C the peak in FLOP/s, HBM that of memory in B/s. Dims and axes
stand for their sizes, a leading number for the bytes of an element (or the two operations of a multiply-add).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from shardc.ir.collectives import AllGather, AllReduce, AllToAll, CollectivePermute, Move, ReduceScatter, Slice
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Axes


def local_bytes(array: Array) -> str:
    """`2·I·J/X`: the bytes of one device's block."""
    return over([*([str(array.dtype.bytes)] if array.dtype.bytes > 1 else []), *array.dims], array.sharding.sharded)


def over(above: Iterable[str], below: Iterable[str]) -> str:
    return "/".join(["·".join(above) or "1", *below])


def of_move(move: Move, before: Array, mesh: Mesh, ring: bool) -> str:
    """Bytes through the links, over their bandwidth; k axes of a torus carry together, hence `(k·W)`."""
    wide = tuple(axis for axis in move.axes if mesh.size(axis) > 1)
    if not wide or isinstance(move, Slice):
        return "0"
    size, n = local_bytes(before), "·".join(wide)
    group = f"({n})" if len(wide) > 1 else n
    width = f"({len(wide)}·W)" if ring and len(wide) > 1 else "W"
    match move:
        case AllGather():
            return f"{size}·({n}-1) / {width}"
        case ReduceScatter():
            return f"{size}·({n}-1)/{group} / {width}"
        case AllReduce():
            return f"2·{size}·({n}-1)/{group} / {width}"
        case AllToAll() if not ring:
            return f"{size}·({n}-1)/{group} / W"
        case AllToAll() if len(wide) == 1 and mesh.size(wide[0]) % 2:
            return f"{size}·({n}²-1)/(4·{n}) / W"
        case AllToAll():
            longest = max(wide, key=mesh.size)
            return f"{size}·{longest}/4 / W"
        case CollectivePermute():
            return f"{size} / {width}"
        case _:
            assert_never(move)


def of_latency(axes: Axes, mesh: Mesh, ring: bool) -> str:
    """`(⌈X/2⌉ + ⌈Y/2⌉)·hop`: the way round half of each ring; one hop through a switch."""
    if not ring:
        return "hop"
    hops = [f"⌈{axis}/2⌉" for axis in axes if mesh.size(axis) > 1]
    return (hops[0] if len(hops) == 1 else f"({' + '.join(hops)})") + "·hop"


def of_product(dims: Iterable[str], axes: Iterable[str], contracts: bool) -> str:
    """`2·I·J·K/X / C`: multiply-adds count twice."""
    return over([*(["2"] if contracts else []), *dims], axes) + " / C"


def of_memory(arrays: Sequence[Array]) -> str:
    """`(2·I·J + 2·J·K) / HBM`: every operand and the result once through memory."""
    return f"({' + '.join(local_bytes(array) for array in arrays)}) / HBM"
