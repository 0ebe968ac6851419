"""What the book's own rules make of a product and of a reshard, as one writes them down on paper: nothing is searched.

A[I, J_X] · B[J, K]       case 2: AllGather_X A
A[I_X, J] · B[J, K_X]     case 4: AllGather_X of that which the result does not want so, else of the smaller
A[I, J_X] · B[J_X, K]     case 3: nothing; ReduceScatter_X or AllReduce_X of the result
A[B_X, I] · C[B, K]       a dim that both keep: Slice_X C
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardc.ir.collectives import AllGather, AllReduce, AllToAll, Move, ReduceScatter, Slice
from shardc.ir.expressions import Pattern
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Dims, Sharding, shared


def before_product(
    operand_dims: Sequence[Dims],
    result_dims: Dims,
    operands: Sequence[Sharding],
    wanted: Pattern,
    sizes: Sequence[int],
) -> tuple[Sharding, ...]:
    """How operands of these sizes must lie so that their blocks meet. What is unreduced stays so."""
    lies = [dict(zip(dims, each.dims, strict=True)) for dims, each in zip(operand_dims, operands, strict=True)]
    axes_of: dict[str, Axes] = {}
    for dim in dict.fromkeys(dim for each in lies for dim in each):
        own = [each[dim] for each in lies if dim in each]
        others = [{axis for other in each for axis in each[other] if other != dim} for each in lies if dim in each]
        axes_of[dim] = _met(own, others, kept=dim in result_dims)
    for axis in dict.fromkeys(axis for axes in axes_of.values() for axis in axes):
        while len(on := [dim for dim, axes in axes_of.items() if axis in axes]) > 1:
            dim = _dropped(
                axis, on, result_dims, wanted, [(dims, n) for dims, n in zip(operand_dims, sizes, strict=True)]
            )
            axes_of[dim] = axes_of[dim][: axes_of[dim].index(axis)]
    return tuple(
        Sharding(tuple(axes_of[dim] for dim in dims), each.unreduced)
        for dims, each in zip(operand_dims, operands, strict=True)
    )


def _met(own: Sequence[Axes], others: Sequence[set[str]], kept: bool) -> Axes:
    """`J_X, J → J`; of a dim that the result keeps `B_X, B → B_X`, where a Slice makes one of the other."""
    longest = max(own, key=len)
    if kept and all(axes == longest[: len(axes)] for axes in own) and not any(map(set(longest).intersection, others)):
        return longest
    return shared(*own)


def _dropped(axis: str, on: Sequence[str], result: Dims, wanted: Pattern, operands: Sequence[tuple[Dims, int]]) -> str:
    """Which of the dims that an axis shards is gathered: one that is summed, or not wanted so, or the smaller's."""
    for dim in on:
        if dim not in result:
            return dim
    asked = dict(zip(result, wanted.dims, strict=True))
    return min(on, key=lambda dim: (axis in (asked[dim] or ()), min(size for dims, size in operands if dim in dims)))


def reduced(left: Sharding, wanted: Pattern, mesh: Mesh) -> Iterator[Move]:
    """`C[I]{U_X} → C[I_X]` by a ReduceScatter where that is what is wanted, else `C[I]` by an AllReduce."""
    waiting = left.unreduced - wanted.unreduced
    for dim, (axes, asked) in enumerate(zip(left.dims, wanted.dims, strict=True)):
        tail = (asked or ())[len(axes) :] if (asked or ())[: len(axes)] == axes else ()
        scattered = next((tail[:n] for n in range(len(tail), 0, -1) if waiting.issuperset(tail[:n])), ())
        if scattered:
            yield ReduceScatter(scattered, dim)
            waiting -= set(scattered)
    if waiting:
        yield AllReduce(mesh.ordered(waiting), left.reduction)


def goal(left: Sharding, wanted: Pattern) -> Sharding:
    """What a pattern asks for; a dim of which it says nothing keeps what it has, as far as its axes are free."""
    taken = {axis for axes in wanted.dims for axis in axes or ()} | wanted.unreduced
    dims = []
    for axes, asked in zip(left.dims, wanted.dims, strict=True):
        free = next((n for n, axis in enumerate(axes) if axis in taken), len(axes))
        dims.append(axes[:free] if asked is None else asked)
    return Sharding(tuple(dims), wanted.unreduced)


def resharded(before: Sharding, after: Sharding) -> Iterator[Move]:
    """`A[I_X, J] → A[I, J_X]` by an AllToAll; else what is too much is gathered, and what is missing sliced."""
    for source, target in ((s, t) for s in range(len(before.dims)) for t in range(len(before.dims)) if s != t):
        kept = len(shared(before.dims[source], after.dims[source]))
        tail = before.dims[source][kept:]
        if tail and after.dims[target] == before.dims[target] + tail:
            yield (move := AllToAll(tail, source, target))
            before = move.leaves(before)
    for dim, (own, asked) in enumerate(zip(before.dims, after.dims, strict=True)):
        if tail := own[len(shared(own, asked)) :]:
            yield (gathered := AllGather(tail, dim))
            before = gathered.leaves(before)
    for dim, (own, asked) in enumerate(zip(before.dims, after.dims, strict=True)):
        if tail := asked[len(own) :]:
            yield Slice(tail, dim)
