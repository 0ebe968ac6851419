"""States that no best assignment has, found before elimination so that its tables stay small.

A table's price may be handed from table to table along a node that they share, as long as the sum stays what it is.
After some sweeps over the nodes, there and back, the least entries of all tables add up to a bound, and a node's state
whose own entries raise it above the price of an assignment that is known is in no best one.

    a —f— b —g— c     there, for each state of b what f costs at least goes from f to g; back, from g to f

This is sequential reweighted message passing: V. Kolmogorov, "A new look at reweighted message passing", 2015.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shardc.planner.whole.eliminate import MOST, Factor, Solved, improved, laid, price_of, solve
from shardc.planner.whole.prices import NEVER

SWEEPS = 2  # there and back, before states are left out
TURNS = 40  # of such sweeps at most
FEW = 20_000  # entries of all tables, of which elimination is quicker
GAINED = 0.003  # of what is between bound and known price a turn gains at least, or it is the last
LOOKED = 4  # turns, after which the likely states are gone through
LIKELY = 20_000  # entries of all tables of these
MOST_OF_LIKELY = 300_000  # entries of one table, while they are
HALVED = 14  # times, to find them
MOST_LEFT = 500_000  # entries of all tables, that are gone through in the end
SLACK = 1e-9  # of a price, and of NEVER a thousandth of that, may be lost in sums of floats
_States = NDArray[np.int64]
_Costs = NDArray[np.float64]
_Number = TypeVar("_Number", np.int64, np.float64)


@dataclass(frozen=True, slots=True)
class Pruned:
    """For each node the states that are left, by their numbers before, and what each costs at least above a bound; and
    the best assignment that was met."""

    kept: tuple[_States, ...]
    above: tuple[_Costs, ...]
    bound: float
    best: tuple[int, ...]
    price: int  # of that

    @property
    def sizes(self) -> list[int]:
        return [len(states) for states in self.kept]

    def factors(self, of: Sequence[Factor]) -> list[Factor]:
        """The tables of these states."""
        return [Factor(each.nodes, _those(each.table, each.nodes, self.kept)) for each in of]

    def with_at_most(self, room: float) -> Pruned:
        """Of the states that are left those that cost no more than that above the bound."""
        chosen = [np.flatnonzero(costs <= max(room, costs.min())) for costs in self.above]
        return replace(self, kept=_chosen(self.kept, chosen), above=_chosen(self.above, chosen))

    def entries(self, of: Sequence[Factor]) -> int:
        """Of all tables."""
        return sum(math.prod(len(self.kept[node]) for node in each.nodes) for each in of)


def solve_pruned(sizes: Sequence[int], factors: Sequence[Factor], known: int = NEVER) -> Solved:
    """The best states, after those are gone that no best assignment has.

    Where it is seen that none is as cheap as what is known, no states, at the price of what cannot be. Where too many
    are left to go through, the best that were met, and a bound.
    """
    pruned = prune(sizes, factors, known)
    if pruned is None:
        return Solved((), NEVER, NEVER)
    if pruned.entries(factors) <= MOST_LEFT:
        return _solved(pruned, factors)
    price = min(NEVER, pruned.price)
    return Solved(pruned.best, price, min(price, int(pruned.bound * (1 - SLACK))))


def _solved(pruned: Pruned, factors: Sequence[Factor], most: int = MOST) -> Solved:
    found = solve(pruned.sizes, pruned.factors(factors), most)
    return replace(found, states=tuple(int(own[at]) for own, at in zip(pruned.kept, found.states, strict=True)))


def _likely(pruned: Pruned, factors: Sequence[Factor]) -> Pruned:
    """The states that cost least above the bound, as many as are gone through at once."""
    in_order, nodes = [np.sort(costs) for costs in pruned.above], [factor.nodes for factor in factors]
    least, most = 0.0, float(max(costs[-1] for costs in in_order))
    for _ in range(HALVED):
        middle = (least + most) / 2
        sizes = [int(costs.searchsorted(max(middle, costs[0]), "right")) for costs in in_order]
        if sum(math.prod([sizes[node] for node in each]) for each in nodes) <= LIKELY:
            least = middle
        else:
            most = middle
    return pruned.with_at_most(least)


def prune(sizes: Sequence[int], factors: Sequence[Factor], known: int = NEVER) -> Pruned | None:
    """Without the states that are above a known price, or that of the best assignment that is easily found.

    Turn after turn, until few are left or the bound no longer rises towards that price; every few turns the states
    that are likely are gone through. None where nothing is as cheap as what is known.
    """
    kept: tuple[_States, ...] = tuple(map(np.arange, sizes))
    shared, before = _Shared.of(sizes, factors), -1.0
    best, price = tuple[int, ...](), NEVER
    for turn in range(TURNS):
        bound, above = shared.swept(SWEEPS)
        met = [[int(states[at]) for states, at in zip(kept, shared.assigned(), strict=True)]]
        if turn % LOOKED == LOOKED - 1 and shared.entries > LIKELY:
            found = Pruned(kept, above, bound, best, price)
            met.append([*_solved(_likely(found, factors), factors, MOST_OF_LIKELY).states])
        for states in (improved(assigned, factors, sizes) for assigned in met):
            if not best or price_of(factors, states) < price:
                best, price = tuple(states), price_of(factors, states)
        known = min(known, price)
        room = known * (1 + SLACK) + NEVER * SLACK / 1000 - bound
        left = [np.flatnonzero(costs <= room) for costs in above]
        if not all(states.size for states in left):
            return None
        shared = shared.restricted(left)
        kept, above = _chosen(kept, left), _chosen(above, left)
        if shared.entries <= FEW or bound - before < GAINED * (known - before):
            break
        before = bound
    return Pruned(kept, above, bound, best, price)


@dataclass(frozen=True, slots=True)
class _Link:
    """A node's place in a table: which table, which of its dims, and whether it is that table's first or last node."""

    table: int
    place: int
    after: tuple[int, ...]  # the dims that are left behind it, once those before are gone
    shape: tuple[int, ...]  # of a price for each state of the node, as a table of all nodes
    is_first: bool
    is_last: bool

    @classmethod
    def of(cls, table: int, nodes: Sequence[int], place: int) -> _Link:
        after = tuple(range(1, len(nodes) - place))
        shape = tuple(-1 if other == place else 1 for other in range(len(nodes)))
        return cls(table, place, after, shape, nodes[place] == min(nodes), nodes[place] == max(nodes))


@dataclass(frozen=True, slots=True)
class _Shared:
    """Tables whose sum is what it was, among which prices are handed on; and of each node what it keeps for itself."""

    nodes: tuple[tuple[int, ...], ...]  # of each table
    tables: list[_Costs]
    own: list[_Costs]
    links: tuple[tuple[_Link, ...], ...]  # of each node

    @classmethod
    def of(cls, sizes: Sequence[int], factors: Sequence[Factor]) -> _Shared:
        links, factors = [list[_Link]() for _ in sizes], _joined(factors)
        for at, factor in enumerate(factors):
            for place, node in enumerate(factor.nodes):
                links[node].append(_Link.of(at, factor.nodes, place))
        tables = [factor.table.astype(np.float64) for factor in factors]
        nodes = tuple(factor.nodes for factor in factors)
        return cls(nodes, tables, [np.zeros(size) for size in sizes], tuple(map(tuple, links)))

    @property
    def entries(self) -> int:
        return sum(table.size for table in self.tables)

    @property
    def bound(self) -> float:
        """No assignment costs less."""
        return sum(float(costs.min()) for costs in (*self.tables, *self.own))

    def swept(self, times: int) -> tuple[float, tuple[_Costs, ...]]:
        """From the first node to the last, back, and so on. A bound, and what each state of a node costs above it."""
        for time in range(times):
            bound, there = self.bound if time == times - 1 else 0.0, time % 2 == 0
            nodes = range(len(self.own)) if there else range(len(self.own) - 1, -1, -1)
            above = [self._handed_on(node, there) for node in nodes]
        return bound, tuple(above if there else above[::-1])

    def _handed_on(self, node: int, there: bool) -> _Costs:
        """What the tables of a node cost at least goes to those that have nodes still to come, in equal parts: as many
        as there are tables to come or tables past, so that some stays with the node where more are past.

        What each state costs more than the best, all of it taken together.
        """
        links = self.links[node]
        least = [_min_marginal(self.tables[link.table], link) for link in links]
        total = sum(least, self.own[node])
        above: _Costs = total - total.min()
        later, earlier = sum(not link.is_last for link in links), sum(not link.is_first for link in links)
        to_come, past = (later, earlier) if there else (earlier, later)
        part = total / max(1, past, to_come)
        for link, taken in zip(links, least, strict=True):
            is_to_come = not (link.is_last if there else link.is_first)
            self.tables[link.table] += (part - taken if is_to_come else -taken).reshape(link.shape)
        self.own[node] = total - part * to_come
        return above

    def assigned(self) -> list[int]:
        """An assignment: node by node what the tables say, given the states of those before."""
        states = [-1] * len(self.own)
        for node, links in enumerate(self.links):
            total = self.own[node].copy()
            for link in links:
                known = tuple(
                    slice(None) if states[other] < 0 else slice(states[other], states[other] + 1)
                    for other in self.nodes[link.table]
                )
                total += _min_marginal(self.tables[link.table][known], link)
            states[node] = int(total.argmin())
        return states

    def restricted(self, left: Sequence[_States]) -> _Shared:
        """With these states alone."""
        tables = [_those(table, nodes, left) for nodes, table in zip(self.nodes, self.tables, strict=True)]
        own = [costs[states] for costs, states in zip(self.own, left, strict=True)]
        return _Shared(self.nodes, tables, own, self.links)


def _joined(factors: Sequence[Factor]) -> list[Factor]:
    """The same sum in fewer tables: what another has the nodes of as well is added to that."""
    found, wider = dict[frozenset[int], Factor](), dict[int, list[frozenset[int]]]()
    for factor in sorted(factors, key=lambda each: -len(each.nodes)):
        nodes = frozenset(factor.nodes)
        around = next((each for each in wider.get(factor.nodes[0], ()) if nodes <= each), None)
        if around is not None:
            found[around] = _added(found[around], factor)
            continue
        found[nodes] = factor
        for node in nodes:
            wider.setdefault(node, []).append(nodes)
    return [*found.values()]


def _added(table: Factor, factor: Factor) -> Factor:
    """A table with another of some of its nodes."""
    total = table.table + laid(factor, table.nodes)
    return Factor(table.nodes, np.minimum(total, NEVER))


def _min_marginal(table: _Costs, link: _Link) -> _Costs:
    """The least of a table for each state of the node that is linked."""
    found = table
    for _ in range(link.place):  # one dim after another: what is compared lies side by side, in long rows
        found = np.minimum.reduce(found, axis=0)
    return np.minimum.reduce(found, axis=link.after) if link.after else found


def _chosen(every: Sequence[NDArray[_Number]], states: Sequence[_States]) -> tuple[NDArray[_Number], ...]:
    """Of each node these."""
    return tuple(own[chosen] for own, chosen in zip(every, states, strict=True))


def _those(table: NDArray[_Number], nodes: tuple[int, ...], kept: Sequence[_States]) -> NDArray[_Number]:
    """A table's entries of the states that are kept; the table itself where these are all."""
    for dim, node in enumerate(nodes):
        if len(kept[node]) < table.shape[dim]:
            table = table.take(kept[node], axis=dim)
    return table
