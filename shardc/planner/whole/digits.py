"""Products in digits, as further ways of a product: from where its operands lie to where its result is to lie.

    T = A[I_Y, J] · B[J_Y, L]        with T[I, L_YX] wanted: X of L's rest is sliced first, Y gathered of A, …

What such a product takes and leaves are whole shardings, and the moves in digits between are in its price; so it is a
way like others. It is one only where it is clearly cheaper than the best of the plain ways between the same shardings,
as a statement's plan has it (`planner.digits.products`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

import numpy as np

from shardc.ir.expressions import Product
from shardc.ir.sharding import ShardingNumber
from shardc.planner.digits.products import in_digits
from shardc.planner.paths.search import Search
from shardc.planner.problem import Problem
from shardc.planner.products.ways import Way, numbered
from shardc.planner.whole.local import Ways
from shardc.planner.whole.prices import NEVER, PriceArray, Scale, States

MOST_OF_ONE = 400  # choices of where operands and result of one product lie, in whole shardings
MOST_PRICED = 250  # of all products of a program that are priced in digits
OF_MORE_AXES = 8  # a choice counts as so many for each axis beyond three: it takes that much longer to price

_Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class End:
    """An operand of a product, or its result: where it may lie before, or after, the product and its moves."""

    search: Search
    states: States
    between: PriceArray
    places: Sequence[int]  # without partial sums

    @classmethod
    def of(cls, search: Search, states: States, between: PriceArray, places: Sequence[int]) -> End:
        whole = [at for at in places if not search.graph.shardings[states.numbers[at]].unreduced]
        return cls(search, states, between, tuple(dict.fromkeys(whole)))

    def number(self, place: int) -> ShardingNumber:
        return self.states.numbers[place]


@dataclass(slots=True)
class DigitWays:
    """The ways in digits of a program's products, of equal products worked out once."""

    scale: Scale
    left: int = MOST_PRICED
    _known: dict[_Key, list[tuple[Way, int]]] = field(default_factory=dict)

    def of(self, problem: Problem, expr: Product, ends: Sequence[End], ways: Ways) -> list[tuple[Way, int]]:
        """Those that are clearly cheaper than plain ones; `ends` are the operands, then the result.

        None where there are too many to go through.
        """
        if not len(ways.prices):
            return []
        key = self._key(expr, ends)
        if key in self._known:
            return self._known[key]
        count = OF_MORE_AXES ** max(0, len(problem.mesh.axes) - 3) * prod(len(end.places) for end in ends)
        if count > min(MOST_OF_ONE, self.left):
            return []
        self.left -= count
        return self._known.setdefault(key, list(self._found(problem, expr, ends, ways)))

    def _key(self, expr: Product, ends: Sequence[End]) -> _Key:
        """Products that differ in their dims' names alone are one."""
        dims = numbered((*(operand.dims for operand in expr.operands), expr.dims))
        return dims, *((end.search.shape, end.search.dtype, end.places) for end in ends)

    def _found(self, problem: Problem, expr: Product, ends: Sequence[End], ways: Ways) -> Iterator[tuple[Way, int]]:
        objective, goal = problem.objective, ends[-1]
        for before, price in _plainly(ends, ways):
            sources = tuple(end.number(place) for end, place in zip(ends, before, strict=False))
            lie = tuple(end.search.graph.shardings[number] for end, number in zip(ends, sources, strict=False))
            for place in goal.places:
                first = self.scale.first(int(price[place]))
                if not first or price[place] >= NEVER or not goal.search.divides(goal.number(place)):
                    continue
                below, to = objective.below(objective.clearly_less(first)), goal.number(place)
                found = in_digits(problem, expr, lie, goal.search.graph.shardings[to], below)
                if found is not None:
                    yield Way(sources, to, 1), found.price


def _plainly(ends: Sequence[End], ways: Ways) -> Iterator[tuple[tuple[int, ...], PriceArray]]:
    """For each choice of where the operands lie the least price of plain ways to each place of the result."""
    *to, left = ways.at
    onward = ends[-1].between[left]
    choices: list[tuple[int, ...]] = [()]
    for end in ends[:-1]:
        choices = [(*chosen, place) for chosen in choices for place in end.places]
    for chosen in choices:
        total = ways.prices.copy()
        for end, place, taken in zip(ends, chosen, to, strict=False):
            total += end.between[place, taken]
        yield chosen, np.minimum((total[:, None] + onward).min(axis=0), NEVER)
