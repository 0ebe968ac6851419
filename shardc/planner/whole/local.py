"""The local ways of an operation: every choice of operands' shardings that needs no communication, and its price."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardc.ir.calls import linear_operands
from shardc.ir.expressions import Call, Product
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.paths.search import Search
from shardc.planner.problem import Problem
from shardc.planner.products.functions import function_of, of_none
from shardc.planner.products.ways import Way, every_way
from shardc.planner.whole.prices import Places, PriceArray, Scale, States
from shardc.planner.whole.spaces import Spaces
from shardc.rules.placements import Space, subsets

MOST_WAYS = 3000  # of one operation; where there are more, its operands are no partial sums

_Below = Sequence[tuple[Search, frozenset[str]]]  # of each operand, and over which axes it may be unreduced
_Priced: TypeAlias = tuple[list[tuple[Way, int]], frozenset[str]]  # with prices; over what the result may be sums


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways of an operation: where each of its operands lies, then where its result does, and what the local work
    costs."""

    at: tuple[Places, ...]
    prices: PriceArray

    @classmethod
    def of(cls, ways: Sequence[tuple[Way, int]], arrays: Sequence[States], scale: Scale) -> Ways:
        """Of operands and a result that have these states; -1 where a sharding is none of them."""
        numbers = [(*way.at, way.result) for way, _ in ways]
        at = [[own.place.get(some[place], -1) for some in numbers] for place, own in enumerate(arrays)]
        prices = np.array([scale.of_price(price) for _, price in ways], dtype=np.int64)
        return cls(tuple(np.array(places, dtype=np.int64) for places in at), prices)

    def those(self, chosen: NDArray[np.bool_]) -> Ways:
        return Ways(tuple(places[chosen] for places in self.at), self.prices[chosen])

    def beside(self, others: Ways) -> Ways:
        at = tuple(np.concatenate(pair) for pair in zip(self.at, others.at, strict=True))
        return Ways(at, np.concatenate([self.prices, others.prices]))


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
        own = problem.work(expr).streams
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
    if isinstance(expr, Call):
        ways, partial = _calls(problem, expr, search, below, spaces)
    else:
        ways, partial = _products(problem, expr, search, below, spaces)
    return LocalWays(Ways.of(ways, arrays, scale), partial)


def _products(problem: Problem, expr: Product, search: Search, below: _Below, spaces: Spaces) -> _Priced:
    around = search.graph
    dims = tuple(operand.dims for operand in expr.operands)
    space = spaces.of(tuple(dict.fromkeys(chain(*dims))))
    graphs = tuple(one.graph for one, _ in below)
    sums = tuple(partial.intersection(around.coarse_pool) for _, partial in below)
    ways = every_way(dims, expr.dims, graphs, around, sums, space)
    if len(ways) > MOST_WAYS:
        ways = every_way(dims, expr.dims, graphs, around, (frozenset[str](),) * len(below), space)
    work = problem.work(expr)
    partial = frozenset(around.pool) if len({dim for some in dims for dim in some}) > len(expr.dims) else frozenset()
    return [(way, problem.way_price(work, way, [one for one, _ in below], search)) for way in ways], partial.union(
        *sums
    )


def _calls(problem: Problem, expr: Call, search: Search, below: _Below, spaces: Spaces) -> _Priced:
    around = search.graph
    linear = linear_operands(expr.function, expr.numbers)
    sums = frozenset[str]().union(*(below[place][1] for place in linear))
    dims = [operand.dims for operand in expr.operands]
    every = tuple(dict.fromkeys(dim for some in dims or [expr.dims] for dim in some))
    found = list[tuple[Way, int]]()
    for placed in _placed(around.coarse_pool, spaces.of(every), len(every), sums):
        axes_of = dict(zip(every, placed.dims, strict=True))
        partial = [placed.unreduced if place in linear else frozenset[str]() for place in range(len(dims))]
        lie = [
            around.refined(Sharding(tuple(axes_of[dim] for dim in some), over))
            for some, over in zip(dims, partial, strict=True)
        ]
        if not dims:
            lies = around.refined(placed)
            found.append((Way((), around.number(lies), 1), of_none(expr, search, lies, problem.loops(expr))))
            continue
        result = function_of(expr, [one for one, _ in below], lie, problem.loops(expr))
        if result is not None:
            at = tuple(one.graph.number(sharding) for (one, _), sharding in zip(below, lie, strict=True))
            found.append((Way(at, around.number(result[0]), 1), result[1]))
    return found, sums


def _placed(axes: Axes, space: Space, rank: int, sums: frozenset[str]) -> Iterator[Sharding]:
    """Every sharding of so many dims; partial sums over each choice of some axes."""
    for chosen, _ in subsets(tuple(axis for axis in axes if axis in sums)):
        free = tuple(axis for axis in axes if axis not in chosen)
        yield from (Sharding(dims, frozenset(chosen)) for dims in space.placements(free, rank))
