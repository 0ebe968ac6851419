"""The cheapest wire bytes by brute force: every sharding a node, every move an edge. Small meshes only.

Written apart from the planner, and with none of its code, so that the two can be held against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, permutations, product

import networkx as nx

from shardc.interface.arguments import MeshLike
from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    Move,
    ReduceScatter,
    Slice,
    apply,
)
from shardc.ir.laws import product_law
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Dims, Sharding
from shardc.testing.refusals import count_of, mesh_of

_MOST_DIMS = 64
_MATMUL: tuple[Dims, Dims, Dims] = (("I", "J"), ("J", "K"), ("I", "K"))


def all_shardings(mesh: MeshLike, rank: int, unreduced: bool = True) -> Iterator[Sharding]:
    """Every sharding of an array of that rank: each axis on a dim (in any order there), unreduced, or copies."""
    count_of("rank", rank, 0, _MOST_DIMS)
    names = mesh_of(mesh).names
    places = range(-1, rank + 1 if unreduced else rank)  # −1 for copies, `rank` for unreduced
    for placement in product(places, repeat=len(names)):
        on = [[a for a, place in zip(names, placement, strict=True) if place == i] for i in range(rank + 1)]
        for orders in product(*(permutations(axes) for axes in on[:rank])):
            yield Sharding.of(orders, on[rank])


def all_moves(before: Sharding, mesh: MeshLike) -> Iterator[Move]:
    """Every move that the sharding allows."""
    rank = before.rank
    for dim, axes in enumerate(before.dims):
        for start in range(len(axes)):
            yield AllGather(axes[start:], dim)
            yield from (AllToAll(axes[start:], dim, other) for other in range(rank) if other != dim)
    given = mesh_of(mesh)
    for axis in given.names:
        if axis not in before.used:
            yield from (Slice((axis,), dim) for dim in range(rank))
    for count in range(1, len(before.unreduced) + 1):
        for subset in combinations(sorted(before.unreduced), count):
            yield AllReduce(subset)
            for order in permutations(subset):
                yield from (ReduceScatter(order, dim) for dim in range(rank))
    yield from _permutes(before, given)


def shortest_path_oracle(
    mesh: MeshLike, shape: Sequence[int], source: Sharding, target: Sharding, itemsize: int, uneven: bool = False
) -> int | None:
    """The fewest wire bytes of a reshard over whole-axis moves and exchanges, or None if none lead there.

    Exchanges are in pieces of one size; `uneven`: also of unequal sizes, from any sharding without partial sums to any.
    """
    graph = _graph(mesh_of(mesh), tuple(shape), itemsize, uneven)
    try:
        return int(nx.dijkstra_path_length(graph, source, target))
    except nx.NetworkXNoPath:
        return None


def matmul_oracle(
    mesh: MeshLike,
    sizes: Mapping[str, int],
    a: Sharding,
    b: Sharding,
    c: Sharding,
    itemsize: int,
    dims: tuple[Dims, Dims, Dims] = _MATMUL,
    uneven: bool = False,
) -> int | None:
    """The fewest wire bytes of: reshard A, reshard B, multiply locally, reshard C; over all pairs there are.

    `uneven` as of `shortest_path_oracle`.
    """
    graphs = [_graph(mesh_of(mesh), tuple(sizes[dim] for dim in names), itemsize, uneven) for names in dims]
    from_a = nx.single_source_dijkstra_path_length(graphs[0], a)
    from_b = nx.single_source_dijkstra_path_length(graphs[1], b)
    to_c = nx.single_source_dijkstra_path_length(graphs[2].reverse(copy=False), c)
    best = math.inf
    for (left, left_bytes), (right, right_bytes) in product(from_a.items(), from_b.items()):
        if left_bytes + right_bytes >= best:
            continue
        result = product_law(dims[:2], (left, right), dims[2])
        if isinstance(result, Sharding):
            best = min(best, left_bytes + right_bytes + to_c.get(result, math.inf))
    return None if math.isinf(best) else int(best)


@lru_cache(maxsize=64)
def _graph(mesh: Mesh, shape: tuple[int, ...], itemsize: int, uneven: bool = False) -> nx.DiGraph[Sharding]:
    """Shardings that divide the shape, and between them the wire bytes of the cheapest single move."""
    graph: nx.DiGraph[Sharding] = nx.DiGraph()
    graph.add_nodes_from(s for s in all_shardings(mesh, len(shape)) if s.divides(shape, mesh))
    for before in list(graph):
        local = math.prod(before.local_shape(shape, mesh)) * itemsize
        for move in all_moves(before, mesh):
            after = apply(move, before, mesh)
            if not after.divides(shape, mesh):
                continue
            weight = move.wire_bytes(before, mesh, local)
            _lighter(graph, before, after, weight)
    for before, after in permutations([s for s in graph if not s.unreduced], 2):
        fit = set(before.sharded) == set(after.sharded) and _fit(before.blocks(mesh), after.blocks(mesh))
        if uneven or fit:
            _lighter(graph, before, after, needed_bytes(mesh, shape, before, after, itemsize))
    return graph


def needed_bytes(mesh: MeshLike, shape: Sequence[int], before: Sharding, after: Sharding, itemsize: int) -> int:
    """The most bytes that some device needs and does not hold, device by device; of values not unreduced."""
    given = mesh_of(mesh)
    return max(
        itemsize * (math.prod(after.local_shape(shape, given)) - _common(given, shape, before, after, place))
        for place in given.coordinates()
    )


def _common(mesh: Mesh, shape: Sequence[int], before: Sharding, after: Sharding, place: Mapping[str, int]) -> int:
    """The elements that a device holds and needs."""
    found = 1
    for size, old, i, new, j in zip(
        shape,
        before.local_shape(shape, mesh),
        before.block_of(place, mesh),
        after.local_shape(shape, mesh),
        after.block_of(place, mesh),
        strict=True,
    ):
        found *= len({*range(size)} & {*range(i * old, (i + 1) * old)} & {*range(j * new, (j + 1) * new)})
    return found


def _lighter(graph: nx.DiGraph[Sharding], before: Sharding, after: Sharding, weight: int) -> None:
    known = graph.get_edge_data(before, after)
    if known is None or weight < known["weight"]:
        graph.add_edge(before, after, weight=weight)


def _fit(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether blocks can be cut and joined: in each dim one count divides the other."""
    return all(old % new == 0 or new % old == 0 for old, new in zip(before, after, strict=True))


def _permutes(before: Sharding, mesh: Mesh) -> Iterator[CollectivePermute]:
    """To every sharding by the same axes that cuts each dim into as many blocks."""
    axes = mesh.ordered(before.sharded)
    blocks = before.blocks(mesh)
    for dims in _layouts(mesh, axes, before.rank):
        if dims != before.dims and Sharding(dims).blocks(mesh) == blocks:
            yield CollectivePermute(axes, dims)


@lru_cache(maxsize=4096)
def _layouts(mesh: Mesh, axes: Axes, rank: int) -> tuple[tuple[Axes, ...], ...]:
    """Every way to shard with exactly these axes."""
    return tuple(
        sharding.dims for sharding in all_shardings(mesh, rank, unreduced=False) if set(sharding.sharded) == set(axes)
    )
