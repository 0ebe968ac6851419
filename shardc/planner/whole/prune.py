"""States that no best assignment has, found before elimination so that its tables stay small.

A table's price may be handed from table to table along a node that they share, as long as the sum stays what it is.
After some rounds of sharing evenly, the least entries of all tables add up to a bound, and a node's state whose own
entries raise it above the price of an assignment that is known is in no best one.

    f(a, b) + g(b, c)     for each state of b, what f and g cost at least is evened out between them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.planner.whole.eliminate import Factor, improved
from shardc.planner.whole.prices import NEVER

ROUNDS = 4  # of sharing, before states are left out
TURNS = 40  # of such rounds at most
FEW = 2000  # entries of all tables, of which elimination is quicker
GAINED = 0.01  # of what is between bound and known price a turn gains at least, or it is the last
SLACK = 1e-9  # of a price, and of NEVER a thousandth of that, may be lost in sums of floats
_States = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pruned:
    """For each node the states that are left, and the tables of these."""

    kept: tuple[_States, ...]
    factors: tuple[Factor, ...]

    @property
    def sizes(self) -> list[int]:
        return [len(states) for states in self.kept]


def prune(sizes: Sequence[int], factors: Sequence[Factor], known: int = NEVER) -> Pruned | None:
    """Without the states that are above a known price, or that of the best assignment that is easily found.

    Turn after turn, until few are left or the bound no longer rises towards that price. None where nothing is as cheap
    as what is known.
    """
    found = Pruned(tuple(map(np.arange, sizes)), tuple(factors))
    shared = [factor.table.astype(np.float64) for factor in factors]
    of_node = [[at for at, factor in enumerate(factors) if node in factor.nodes] for node in range(len(sizes))]
    known_price, before = known, -1.0
    for _ in range(TURNS):
        for turn in range(ROUNDS):
            nodes = range(len(sizes)) if turn % 2 == 0 else range(len(sizes) - 1, -1, -1)
            for node in nodes:
                _share(node, of_node[node], found.factors, shared)
        known_price = min(known_price, _assigned(found.sizes, found.factors, shared, of_node))
        bound = sum(float(table.min()) for table in shared)
        better = _without_the_dear(found, shared, of_node, known_price)
        if better is None:
            return None
        found, shared = better
        if sum(table.size for table in shared) <= FEW or bound - before < GAINED * (known_price - before):
            break
        before = bound
    return found


def _without_the_dear(
    found: Pruned, shared: list[NDArray[np.float64]], of_node: Sequence[Sequence[int]], known: int
) -> tuple[Pruned, list[NDArray[np.float64]]] | None:
    """Without the states of which every assignment costs more than one that is known."""
    least, kept = [float(table.min()) for table in shared], list[_States]()
    room = known * (1 + SLACK) + NEVER * SLACK / 1000 - sum(least)
    for node, mine in enumerate(of_node):
        start = np.zeros(len(found.kept[node]))
        above = sum((_min_marginal(found.factors[at], shared[at], node) - least[at] for at in mine), start)
        kept.append(np.flatnonzero(above <= room))
    if not all(states.size for states in kept):
        return None
    tables = [table[np.ix_(*(kept[node] for node in f.nodes))] for f, table in zip(found.factors, shared, strict=True)]
    factors = tuple(_restricted(factor, kept) for factor in found.factors)
    return Pruned(tuple(old[states] for old, states in zip(found.kept, kept, strict=True)), factors), tables


def _share(node: int, mine: Sequence[int], factors: Sequence[Factor], shared: list[NDArray[np.float64]]) -> None:
    """What the tables of a node cost at least, state by state, is shared evenly among them."""
    if len(mine) < 2:
        return
    marginals = [_min_marginal(factors[at], shared[at], node) for at in mine]
    even = sum(marginals, np.zeros_like(marginals[0])) / len(mine)
    for at, least in zip(mine, marginals, strict=True):
        shape = [-1 if other == node else 1 for other in factors[at].nodes]
        shared[at] += (even - least).reshape(shape)


def _min_marginal(factor: Factor, table: NDArray[np.float64], node: int) -> NDArray[np.float64]:
    others = tuple(place for place, other in enumerate(factor.nodes) if other != node)
    found: NDArray[np.float64] = table.min(axis=others)
    return found


def _assigned(
    sizes: Sequence[int],
    factors: Sequence[Factor],
    shared: list[NDArray[np.float64]],
    of_node: Sequence[Sequence[int]],
) -> int:
    """The price of an assignment: node by node what the shared tables say, then improved."""
    states = [-1] * len(sizes)
    for node, mine in enumerate(of_node):
        total = np.zeros(sizes[node])
        for at in mine:
            at_known = tuple(
                slice(None) if states[other] < 0 else slice(states[other], states[other] + 1)
                for other in factors[at].nodes
            )
            total += _min_marginal(factors[at], shared[at][at_known], node)
        states[node] = int(total.argmin())
    states = improved(states, factors, sizes)
    return sum(int(factor.table[tuple(states[n] for n in factor.nodes)]) for factor in factors)


def _restricted(factor: Factor, kept: Sequence[_States]) -> Factor:
    return Factor(factor.nodes, np.ascontiguousarray(factor.table[np.ix_(*(kept[node] for node in factor.nodes))]))
