"""Local products: the ways to do one, over shardings by their numbers, its arithmetic, and which ways lead to a goal.

Where operands are given and the result's sharding is known, few of the many ways need a search. No path to an operand's
sharding, nor from the result's to the goal, costs less than the bytes to come at the fastest rate; so products are
taken in the order of that bound, and none is searched whose bound is above the price of one that is known:

    A[I_X, J] · B[J, K_X] → C[I, K_X]     106 local products on X=2, Y=2, Z=2; 3 or so are searched
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import NamedTuple, Protocol, TypeAlias

from shardc.cost.alone import Alone, Amount
from shardc.cost.model import CostModel
from shardc.cost.rate import picoseconds
from shardc.ir.dtypes import DType, multiplied
from shardc.ir.expressions import Product
from shardc.ir.mesh import Mesh
from shardc.ir.plan import StepCost
from shardc.ir.program import Program
from shardc.ir.sharding import Array, Dims, Sharding, ShardingNumber
from shardc.lowering.streams import Streams
from shardc.planner.budget import BOUND, Meter, Spent
from shardc.planner.options import Objective
from shardc.planner.paths.graph import Graph
from shardc.rules.placements import ANYWHERE, Space
from shardc.rules.products import local_product, local_products


@dataclass(frozen=True, slots=True)
class Way:
    """A local product: the numbers of the operands' shardings and of the result's, and into how many it is shared."""

    at: tuple[ShardingNumber, ...]
    result: ShardingNumber
    parts: int


class Searched(Protocol):
    """An array, as its search has it."""

    graph: Graph
    total_bytes: int
    model: CostModel
    objective: Objective


_Asked: TypeAlias = tuple[tuple[Dims, ...], Dims, tuple[Graph, ...], Graph, tuple[frozenset[str], ...], Space]


def every_priced(
    work: Work,
    result: Dims,
    below: Sequence[Searched],
    left: Searched,
    unreduced: tuple[frozenset[str], ...],
    space: Space = ANYWHERE,
) -> list[tuple[Way, int]]:
    """Every local product over the axes of the searches' graphs, as `rules.products.local_products` lists them, and its
    price alone; `below` are the searches of the operands, `left` that of the result.

    They are the same for dims of other names: `n[B, D] · V[D, F]` and `P[B, F] · W[F, D]` are asked for once.
    """
    *dims, last = numbered((*work.operand_dims, result))
    product = tuple(dims), last, tuple(each.graph for each in below), left.graph, unreduced, space
    sizes = (*(each.total_bytes for each in below), left.total_bytes)
    return [*_every_priced(product, replace(work, dims=(), operand_dims=()), sizes, left.model.alone, left.objective)]


@lru_cache(maxsize=256)
def _every_priced(
    product: _Asked, work: Work, sizes: tuple[int, ...], alone: Alone, objective: Objective
) -> tuple[tuple[Way, int], ...]:
    """Of arrays of so many bytes. Ways that leave each device as much take as long."""
    _, _, graphs, graph, *_ = product
    found, known = list[tuple[Way, int]](), dict[tuple[int, ...], int]()
    for way in _every_way(*product):
        places = zip(sizes, (*graphs, graph), (*way.at, way.result), strict=True)
        key = (way.parts, *(size // around.counts[number] for size, around, number in places))
        if key not in known:
            parts, *read, written = key
            seconds = alone.product_s(work.amount(work.total // parts, read, written))
            known[key] = objective.price(picoseconds(seconds), 0)
        found.append((way, known[key]))
    return tuple(found)


def numbered(every: Sequence[Dims]) -> tuple[Dims, ...]:
    """Dims with numbers for names, in the order in which they come: products that differ in names alone are one."""
    names: dict[str, str] = {}
    return tuple(tuple(names.setdefault(dim, str(len(names))) for dim in dims) for dims in every)


@lru_cache(maxsize=256)
def _every_way(
    dims: tuple[Dims, ...],
    result: Dims,
    graphs: tuple[Graph, ...],
    graph: Graph,
    unreduced: tuple[frozenset[str], ...],
    space: Space = ANYWHERE,
) -> tuple[Way, ...]:
    found = []
    for way in local_products(dims, result, graph.coarse_pool, unreduced, space):
        lie = [graph.refined(sharding) for sharding in way.operands]
        found.append(_way(graphs, graph, lie, graph.refined(way.result)))
    return tuple(found)


def _way(graphs: Sequence[Graph], graph: Graph, lie: Sequence[Sharding], left: Sharding) -> Way:
    at = tuple(own.number(sharding) for own, sharding in zip(graphs, lie, strict=True))
    axes = graph.mesh.ordered({axis for sharding in lie for axis in sharding.sharded})
    return Way(at, graph.number(left), graph.mesh.product(axes))


def way_at(
    dims: Sequence[Dims], result: Dims, graphs: Sequence[Graph], graph: Graph, at: Sequence[ShardingNumber]
) -> Way | None:
    """The local product of operands that lie so; None where their blocks do not meet."""
    lie = [own.shardings[number] for own, number in zip(graphs, at, strict=True)]
    left = local_product(dims, result, lie)
    return None if left is None else _way(graphs, graph, lie, left)


@dataclass(frozen=True, slots=True)
class Work:
    """The arithmetic of a product: the dims it runs over, and whether it multiplies and adds (2) or one of them (1)."""

    dims: tuple[str, ...]
    operand_dims: tuple[tuple[str, ...], ...]
    total: int
    contracts: bool
    dtype: DType  # in which it multiplies
    leaves: DType
    streams: Streams | None = None  # where it is known what passes through memory; else all does, once
    rounds: int = 0  # of a product of two arrays, how many are of f32
    counted: bool | None = None  # of many products of matrices, whether the result's last dim tells them apart

    @classmethod
    def of(cls, program: Program, expr: Product) -> Work:
        below = tuple(operand.dims for operand in expr.operands)
        dims = tuple(dict.fromkeys(dim for names in below for dim in names))
        contracts = len(below) > 1 and any(dim not in expr.dims for dim in dims)
        sums = len(below) > 1 or len(dims) > len(expr.dims)  # a transposition does no arithmetic
        total = math.prod(program.shape(dims)) * (2 if contracts else int(sums))
        types = [operand.dtype for operand in expr.operands]
        rounds = sum(each.name == "f32" for each in types) if contracts else 0
        both = set(below[0]).intersection(below[-1], expr.dims) if contracts else ()
        counted = expr.dims[-1] in both if both else None
        return cls(dims, below, total, contracts, multiplied(types), expr.dtype, rounds=rounds, counted=counted)

    def amount(self, flops: int, read: Sequence[int], written: int) -> Amount:
        """Of so many operations, and of operands and a result of so many bytes. A sum over a dim of which each device
        has one element is the array as it lies."""
        if self.total and [*read] == [written] and self.dtype == self.leaves:
            return Amount(0, 0, 0, self.dtype)
        streams = self._streams_of(read, written)
        dtype = self.dtype if streams is None or not any(streams.passes) else streams.read[streams.through].gone
        found = Amount.of(streams, flops, read, written, dtype)
        terms = 0 if streams is None else self._terms(streams, flops, read, written)
        return found._replace(leaves=self.leaves, smallest=min(read, default=0), rounds=self.rounds, terms=terms)

    def _terms(self, streams: Streams, flops: int, read: Sequence[int], written: int) -> int:
        """Of how many terms each number is, where many small matrices are multiplied so."""
        if self.counted is None or not all(read) or not written or any(streams.passes):
            return 0
        from shardc.lowering.small import Matrices, terms  # seldom, as `_streams_of` has it

        types = [each.own for each in streams.read]
        left, right = (size // dtype.bytes for size, dtype in zip(read, types, strict=True))
        return terms(Matrices.of(flops // 2, left, right, written // self.leaves.bytes, self.counted), types)

    def in_memory(self, read: Sequence[Array], written: Array, mesh: Mesh) -> tuple[list[Array], list[Array]]:
        """The arrays that are read from memory, those gone through there first, and the result if it is written."""
        streams = self._streams_of([each.local_bytes(mesh) for each in read], written.local_bytes(mesh))
        if streams is None:
            return [*read], [written]
        through = read[streams.through]
        passed = [replace(through, dtype=streams.read[streams.through].gone)] if any(streams.passes) else []
        taken, left = streams.in_memory(read, written)
        return [*passed, *taken], left

    def cost(self, read: Sequence[Array], written: Array, model: CostModel) -> StepCost:
        """Of these blocks, which leave that one; of elements, as of any function of such (`cost.settled`)."""
        found, streams = self._cost(read, written, model), self.streams
        if streams is None:
            return found
        if streams.passes.largest:
            cut = streams._replace(passes=streams.passes.if_cut())
            found = replace(found, if_cut=replace(self, streams=cut)._cost(read, written, model))
        left = streams.to_lie()
        if left is not None:
            found = replace(found, to_lie=replace(self, streams=left)._cost(read, written, model))
        if not streams.in_tiles:
            return found
        sent = replace(self, streams=streams.if_sent())._cost(read, written, model) if streams.in_place else None
        return replace(found, if_sent=sent, in_tiles=streams.in_tiles)

    def _cost(self, read: Sequence[Array], written: Array, model: CostModel) -> StepCost:
        mesh, alone = model.mesh, model.alone
        flops = self.flops([array.sharding for array in read], mesh)
        amount = self.amount(flops, [each.local_bytes(mesh) for each in read], written.local_bytes(mesh))
        axes = mesh.ordered(axis for array in read for axis in array.sharding.sharded)
        by_operations = partial(alone.product_formula, self.dims, axes, self.contracts, self.dtype)
        by_bytes = partial(alone.memory_formula, *self.in_memory(read, written, mesh), amount)
        formula = partial(alone.formula, amount, by_operations, by_bytes)
        in_loop = self.contracts and any(amount.passes)
        found = StepCost(0, flops, alone.product_s(amount), formula, alone.waits_for_memory(amount), in_loop=in_loop)
        is_product = self.contracts and not in_loop
        return alone.product_started(found) if is_product else alone.function_started(found, amount.starts)

    def _streams_of(self, read: Sequence[int], written: int) -> Streams | None:
        """Of blocks of so many bytes. A matrix and a vector are a loop, unless the vector is read twice; and so it is
        where a device has one element of what an operand has for itself, P of `C[P_X, N] = A[P_X, M] · B[N, M]`."""
        streams = self.streams
        if streams is None or len(read) != 2 or not self.contracts or any(streams.passes):
            return streams
        elements = [size // each.own.bytes for size, each in zip(read, streams.read, strict=True)]
        is_vector = max(elements) == min(elements) * (written // self.leaves.bytes) and min(elements) > 1
        if not is_vector:
            return streams
        from shardc.lowering.vectors import is_read_twice  # seldom, and with much that no other product asks for

        matrix = elements.index(max(elements))
        if matrix not in streams.computed and is_read_twice([each.own for each in streams.read], max(read)):
            return streams
        return streams.as_loop(matrix)

    def parts(self, shardings: Iterable[Sharding], mesh: Mesh) -> int:
        """Into how many it is shared, for operands in these shardings."""
        return mesh.product({axis for sharding in shardings for axis in sharding.sharded})

    def flops(self, shardings: Iterable[Sharding], mesh: Mesh) -> int:
        """Per device, for operands in these shardings."""
        return self.total // self.parts(shardings, mesh)


class Prices(Protocol):
    """What it costs to have an array in each sharding: a `Table` is one."""

    def bound(self, number: ShardingNumber) -> int:
        """What the price is not below."""

    def price(self, number: ShardingNumber, limit: int | None) -> int | None:
        """The price; None if it is above the limit, or the array cannot be so."""


class Best(NamedTuple):
    """Ways and their prices; and where the budget ended the search, a price that no way up to the goal is below."""

    ways: list[tuple[Way, int]]
    proved: int = 0


class Towards:
    """Prices of ways that lead to one sharding of the result, with as little search as that needs."""

    def __init__(
        self,
        operands: tuple[Prices, ...],
        after: Callable[[ShardingNumber], Prices],
        left: Callable[[ShardingNumber, ShardingNumber], int],
        goal: ShardingNumber,
        meter: Meter,
    ) -> None:
        """`after` gives what it costs to move the result on, from the sharding that a product leaves it in, `left` what
        that costs at least, where nothing is known but the two shardings."""
        self._operands = operands
        self._meter = meter
        self._goal = goal
        self._left = left
        self._after = cache(after)

    def best(self, ways: list[tuple[Way, int]], limit: int | None = None) -> Best:
        """Of ways and the prices of their products, those on a cheapest path to the goal, and what leads there added.

        None if that path costs more than the limit. Where the budget ends first, the best that are known.
        All of them, in their order, so that equal plans are chosen among as in a search of everything.
        """
        bounds, proved = self._bounds(ways), 0
        best, found = limit, []
        for place in sorted(range(len(ways)), key=bounds.__getitem__):
            if best is not None and bounds[place] > best:
                break
            try:
                priced = self._priced(*ways[place], best)
            except Spent:
                priced = None
            if priced is not None and (best is None or priced[1] <= best):
                price, best = priced
                found.append((place, price, best))
            if self._meter.is_spent:
                proved = bounds[place]
                if not found:
                    raise Spent(proved)
                break
        return Best([(ways[place][0], price) for place, price, total in sorted(found) if total == best], proved)

    def _bounds(self, ways: list[tuple[Way, int]]) -> list[int]:
        """What each way costs at least, up to the goal."""
        self._meter.spend(BOUND * len(ways))
        bounds = [price + self._left(way.result, self._goal) for way, price in ways]
        for place, bound in enumerate([cache(operand.bound) for operand in self._operands]):
            bounds = [price + bound(way.at[place]) for price, (way, _) in zip(bounds, ways, strict=True)]
        return bounds

    def _moved(self, way: Way) -> list[tuple[Prices, ShardingNumber]]:
        """What is moved for a way, and to which sharding: the operands, then the result."""
        return [*zip(self._operands, way.at, strict=True), (self._after(way.result), self._goal)]

    def _priced(self, way: Way, price: int, best: int | None) -> tuple[int, int] | None:
        """The price of a way up to the result, and up to the goal; None if that is impossible or above `best`."""
        moved = self._moved(way)
        left = [prices.bound(number) for prices, number in moved]
        if best is not None and price + sum(left) > best:
            return None  # what was learned of other ways since this one was bounded
        for place, (prices, number) in enumerate(moved):
            before, left[place] = price, 0
            found = prices.price(number, None if best is None else best - price - sum(left))
            if found is None:
                return None
            price += found
        return before, price
