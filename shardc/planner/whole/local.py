"""The local ways of an operation: every choice of operands' shardings that needs no communication, and its price."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardc.ir.calls import linear_operands
from shardc.ir.expressions import Call, Product
from shardc.ir.sharding import Axes, Dims, Sharding, ShardingNumber
from shardc.lowering.streams import Loops, Passes
from shardc.planner.paths.graph import Graph
from shardc.planner.paths.search import Search
from shardc.planner.problem import Problem
from shardc.planner.products.functions import function_of, of_none
from shardc.planner.products.ways import Way, Work, every_priced, numbered
from shardc.planner.whole.prices import Places, PriceArray, Scale, States
from shardc.planner.whole.spaces import Spaces
from shardc.rules.placements import Space, subsets

MOST_WAYS = 3000  # of one operation; where there are more, its operands are no partial sums

_Below = Sequence[tuple[Search, frozenset[str]]]  # of each operand, and over which axes it may be unreduced
_Prices: TypeAlias = Sequence[tuple[Way, int]]
_Lies: TypeAlias = tuple[tuple[ShardingNumber, ...], tuple[Sharding, ...]]  # of operands: by numbers, and as such
_Priced: TypeAlias = tuple[_Prices, frozenset[str]]  # with prices; over what the result may be sums


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways of an operation: where each of its operands lies, then where its result does, and what the local work costs;
    what it costs if an operand that the text has with a product's tiles is moved, and which are such, by their
    places; and what it costs besides if its result is, `to_lie` there."""

    at: tuple[Places, ...]
    prices: PriceArray
    if_sent: PriceArray
    to_lie: PriceArray
    in_tiles: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        ways: _Prices,
        arrays: Sequence[States],
        scale: Scale,
        if_sent: _Prices = (),
        to_lie: _Prices = (),
        in_tiles: Sequence[int] = (),
    ) -> Ways:
        """Of operands and a result that have these states; -1 where a sharding is none of them."""
        numbers = [(*way.at, way.result) for way, _ in ways]
        at = [[own.place.get(some[place], -1) for some in numbers] for place, own in enumerate(arrays)]
        prices = _scaled(ways, scale)
        sent = _scaled(if_sent, scale) if if_sent else prices
        left = _scaled(to_lie, scale) if to_lie else np.zeros_like(prices)
        return cls(tuple(np.array(places, dtype=np.int64) for places in at), prices, sent, left, tuple(in_tiles))

    def more(self, place: int) -> PriceArray | None:
        """What each way costs more where this operand is moved; None of nothing."""
        return self.if_sent - self.prices if place in self.in_tiles else None

    def those(self, chosen: NDArray[np.bool_]) -> Ways:
        at = tuple(places[chosen] for places in self.at)
        prices, sent, left = (some[chosen] for some in (self.prices, self.if_sent, self.to_lie))
        return replace(self, at=at, prices=prices, if_sent=sent, to_lie=left)

    def beside(self, others: Ways) -> Ways:
        at = tuple(np.concatenate(pair) for pair in zip(self.at, others.at, strict=True))
        pairs = (self.prices, others.prices), (self.if_sent, others.if_sent), (self.to_lie, others.to_lie)
        prices, sent, left = (np.concatenate(pair) for pair in pairs)
        return replace(self, at=at, prices=prices, if_sent=sent, to_lie=left)


def _scaled(ways: _Prices, scale: Scale) -> PriceArray:
    """The prices of ways; few are any but another's."""
    known = {price: scale.of_price(price) for price in {price for _, price in ways}}
    return np.array([known[price] for _, price in ways], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class LocalWays:
    """The ways of an operation, and the axes over which its result may be unreduced."""

    ways: Ways
    partial: frozenset[str]


def alike(problem: Problem, expr: Product | Call, below: _Below) -> Hashable:
    """What the ways of an operation are told by, in one order of the products or in another."""
    given = tuple((operand.dims, operand.dtype, sums) for operand, (_, sums) in zip(expr.operands, below, strict=True))
    if isinstance(expr, Call):
        own: Hashable = (expr.function, expr.over, expr.numbers, problem.loops(expr))
    else:
        own = problem.streams(expr)
    return type(expr), own, given, expr.dims, expr.dtype


def local_ways(
    problem: Problem,
    expr: Product | Call,
    search: Search,
    below: _Below,
    arrays: Sequence[States],
    spaces: Spaces,
    scale: Scale,
) -> LocalWays:
    """Each way and the price of the local work; `arrays` are where the operands and the result may lie."""
    loops = problem.loops(expr) if isinstance(expr, Call) else Loops(Passes(), problem.streams(expr))
    ways, partial = _priced(problem, expr, loops, search, below, spaces)
    sent, left = (
        () if other is None else _priced(problem, expr, other, search, below, spaces)[0]
        for other in (loops.if_sent(), loops.to_lie())
    )
    return LocalWays(Ways.of(ways, arrays, scale, sent, left, loops.in_tiles if sent else ()), partial)


def _priced(
    problem: Problem, expr: Product | Call, loops: Loops, search: Search, below: _Below, spaces: Spaces
) -> _Priced:
    if isinstance(expr, Call):
        return _calls(expr, loops, search, below, spaces)
    return _products(expr, replace(problem.work(expr), streams=loops.streams), search, below, spaces)


def _products(expr: Product, work: Work, search: Search, below: _Below, spaces: Spaces) -> _Priced:
    around = search.graph
    dims = tuple(operand.dims for operand in expr.operands)
    space = spaces.of(tuple(dict.fromkeys(chain(*dims))))
    sums = tuple(partial.intersection(around.coarse_pool) for _, partial in below)
    arrays = [one for one, _ in below]
    ways = every_priced(work, expr.dims, arrays, search, sums, space)
    if len(ways) > MOST_WAYS:
        ways = every_priced(work, expr.dims, arrays, search, (frozenset[str](),) * len(below), space)
    partial = frozenset(around.pool) if len({dim for some in dims for dim in some}) > len(expr.dims) else frozenset()
    return ways, partial.union(*sums)


def _calls(expr: Call, loops: Loops, search: Search, below: _Below, spaces: Spaces) -> _Priced:
    around = search.graph
    linear = linear_operands(expr.function, expr.numbers)
    sums = frozenset[str]().union(*(below[place][1] for place in linear))
    dims = tuple(operand.dims for operand in expr.operands)
    space = spaces.of(tuple(dict.fromkeys(chain(*dims)) if dims else expr.dims))
    if not dims:
        lies = map(around.refined, _placed(around.coarse_pool, space, len(expr.dims), sums))
        return [(Way((), around.number(each), 1), of_none(expr, search, each, loops)) for each in lies], sums
    arrays, found = [one for one, _ in below], list[tuple[Way, int]]()
    function, graphs = function_of(expr, arrays, loops), tuple(one.graph for one in arrays)
    for at, lie in _every_lie(numbered(dims), linear, graphs, around.coarse_pool, space, sums):
        result = function.of(lie)
        if result is not None:
            found.append((Way(at, around.number(result[0]), 1), result[1]))
    return found, sums


@lru_cache(maxsize=256)
def _every_lie(
    dims: Sequence[Dims],
    linear: frozenset[int],
    graphs: Sequence[Graph],
    pool: Axes,
    space: Space,
    sums: frozenset[str],
) -> tuple[_Lies, ...]:
    """Where the operands of a function may lie together, whose dims may bear other names."""
    every, found = tuple(dict.fromkeys(chain(*dims))), list[_Lies]()
    for placed in _placed(pool, space, len(every), sums):
        axes_of = dict(zip(every, placed.dims, strict=True))
        partial = [placed.unreduced if place in linear else frozenset[str]() for place in range(len(dims))]
        lie = tuple(
            graph.refined(Sharding(tuple(axes_of[dim] for dim in some), over))
            for graph, some, over in zip(graphs, dims, partial, strict=True)
        )
        found.append((tuple(graph.number(own) for graph, own in zip(graphs, lie, strict=True)), lie))
    return tuple(found)


def _placed(axes: Axes, space: Space, rank: int, sums: frozenset[str]) -> Iterator[Sharding]:
    """Every sharding of so many dims; partial sums over each choice of some axes."""
    for chosen, _ in subsets(tuple(axis for axis in axes if axis in sums)):
        free = tuple(axis for axis in axes if axis not in chosen)
        yield from (Sharding(dims, frozenset(chosen)) for dims in space.placements(free, rank))
