"""The assignment of states to nodes with the least sum of tables: (min, +) elimination.

    a —f— b —g— c        removing b leaves the table min over b of f(a, b) + g(b, c) between a and c

Nodes are removed one after another, each time the one that leaves the smallest table; what is left at the end is the
least sum, and going back, each node takes the state that was best given those removed after it. Where a table would
be too large, the tables of a node are split into parts, and each takes its own least over the node's states: what is
left at the end is then no more than the least sum, and the assignment found is improved node by node.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from shardc.planner.whole.prices import NEVER, PriceArray

MOST = 6_000_000  # entries of a table
SMALL = 20_000  # entries of a table that is quicker to make than to prune
FEWER = 100_000  # entries of a table, where many are made to improve an assignment
ROUNDS = 4  # of such improvements, at most
LARGE = 4096  # entries of a table that is made for one state of a node after another


@dataclass(frozen=True, slots=True)
class Factor:
    """A price for each choice of states of some nodes, in the order of the table's dims."""

    nodes: tuple[int, ...]
    table: PriceArray


@dataclass(frozen=True, slots=True)
class Solved:
    """A state for each node, what they cost together, and what no assignment is below."""

    states: tuple[int, ...]
    price: int
    bound: int


@dataclass(frozen=True, slots=True)
class Easier:
    """What is left of a sum of tables without some nodes, each of which left a small table; the others have numbers of
    their own."""

    nodes: tuple[int, ...]  # what they were
    sizes: tuple[int, ...]
    factors: tuple[Factor, ...]
    price: int  # of what is gone altogether
    removed: tuple[tuple[int, list[Factor]], ...]
    given: tuple[int, ...]  # the sizes of all nodes

    def with_states(self, found: Solved) -> Solved:
        """A solution of what is left, with the best states of the others."""
        states = [0] * len(self.given)
        for node, state in zip(self.nodes, found.states, strict=False):
            states[node] = state
        every = _back(self.removed, self.given, states) if found.states else ()
        price, bound = (min(NEVER, each + self.price) for each in (found.price, found.bound))
        return Solved(tuple(every), price, bound)


def easier(sizes: Sequence[int], factors: Sequence[Factor], max_entries: int = SMALL) -> Easier:
    """Without the nodes that leave no table larger than `max_entries`; of one state, if that is all of them."""
    of_node, price = _Tables(sizes, factors), 0
    removed = list[tuple[int, list[Factor]]]()
    while of_node.least <= max_entries:
        node, mine = of_node.next()
        removed.append((node, mine))
        found = _without(mine, node, sizes) if mine else Factor((), np.zeros((), dtype=np.int64))
        if found.nodes:
            of_node.add(found)
        else:
            price = min(NEVER, price + int(found.table))
    nodes = of_node.nodes
    number = {node: at for at, node in enumerate(nodes)}
    left = tuple(Factor(tuple(number[node] for node in each.nodes), each.table) for each in of_node.left)
    sizes_left = tuple(sizes[node] for node in nodes) or (1,)
    return Easier(nodes, sizes_left, left, price, tuple(removed), tuple(sizes))


def solve(sizes: Sequence[int], factors: Sequence[Factor], max_entries: int = MOST) -> Solved:
    """The least sum, if no table becomes larger than `max_entries`; else an assignment and a bound."""
    of_node = _Tables(sizes, factors)
    removed, bound, exact = list[tuple[int, list[Factor]]](), 0, True
    for _ in sizes:
        node, mine = of_node.next()
        removed.append((node, mine))
        parts = _parts(mine, node, sizes, max_entries)
        exact = exact and len(parts) <= 1
        for part in parts:
            found = _without(part, node, sizes)
            if found.nodes:
                of_node.add(found)
            else:
                bound += int(found.table)
    states = _back(removed, sizes, [0] * len(sizes))
    if not exact:
        states = improved(states, factors, sizes)
        states = improved_at_once(states, factors, sizes, min(FEWER, max_entries))
    price = min(NEVER, price_of(factors, states))
    return Solved(tuple(states), price, min(bound, price))


class _Tables:
    """The tables that are left, of each node its own; and how large a table each node's removal would leave, worked out
    where it is asked for."""

    def __init__(self, sizes: Sequence[int], factors: Sequence[Factor]) -> None:
        self._sizes = sizes
        self._own: dict[int, list[Factor]] = {node: [] for node in range(len(sizes))}
        for factor in factors:
            for node in factor.nodes:
                self._own[node].append(factor)
        self._leaves = dict[int, int]()
        self._queue = list[tuple[int, int]]()  # of these, and of what they were before
        self._changed = {*self._own}

    @property
    def least(self) -> float:
        """How large a table the removal of some node leaves at least."""
        first = self._first()
        return math.inf if first is None else first[0]

    @property
    def nodes(self) -> tuple[int, ...]:
        """Those that are left, in order."""
        return tuple(self._own)

    @property
    def left(self) -> tuple[Factor, ...]:
        return tuple({id(factor): factor for own in self._own.values() for factor in own}.values())

    def next(self) -> tuple[int, list[Factor]]:
        """The node that leaves the smallest table, and its own, which are gone with it."""
        first = self._first()
        assert first is not None
        return first[1], self._taken(first[1])

    def _first(self) -> tuple[int, int] | None:
        """What leaves least: how large a table, and which node."""
        for node in self._changed:
            leaves = self._leaves[node] = _size_without(node, self._own[node], self._sizes)
            heapq.heappush(self._queue, (leaves, node))
        self._changed.clear()
        while self._queue and self._leaves.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0] if self._queue else None

    def _taken(self, node: int) -> list[Factor]:
        """A node's tables, which are gone with it."""
        mine = self._own.pop(node)
        self._leaves.pop(node, None)
        self._changed.discard(node)
        gone = {id(factor) for factor in mine}
        for other in _around(node, mine):
            self._own[other] = [factor for factor in self._own[other] if id(factor) not in gone]
            self._changed.add(other)
        return mine

    def add(self, factor: Factor) -> None:
        for node in factor.nodes:
            self._own[node].append(factor)
            self._changed.add(node)

    def widest(self, spared: Set[int]) -> int:
        """Of the nodes that are left that with which most tables go, of those not spared if there are any."""
        nodes = [node for node in self._own if node not in spared] or [*self._own]
        return max(nodes, key=lambda each: (self._sizes[each] ** len(self._own[each]), -each))

    def fix(self, node: int, state: int) -> None:
        """Leaves a node this state alone: its tables lose it."""
        for factor in self._taken(node):
            left = tuple(each for each in factor.nodes if each != node)
            if left:
                at = tuple(state if each == node else slice(None) for each in factor.nodes)
                self.add(Factor(left, factor.table[at]))


def _around(node: int, factors: Sequence[Factor]) -> tuple[int, ...]:
    """The nodes that meet a node in some of its tables, in order."""
    return tuple(sorted({other for factor in factors for other in factor.nodes} - {node}))


def _size_without(node: int, factors: Sequence[Factor], sizes: Sequence[int]) -> int:
    return math.prod(sizes[other] for other in _around(node, factors))


def _parts(factors: list[Factor], node: int, sizes: Sequence[int], max_entries: int) -> list[list[Factor]]:
    """The tables of a node, together while what they leave is not too large; larger ones first."""
    parts: list[list[Factor]] = []
    for factor in sorted(factors, key=lambda each: -each.table.size):
        for part in parts:
            if _size_without(node, [*part, factor], sizes) <= max_entries:
                part.append(factor)
                break
        else:
            parts.append([factor])
    return parts


def _without(factors: list[Factor], node: int, sizes: Sequence[int]) -> Factor:
    """The least over the states of a node of the sum of its tables, without nodes of one state: an array has no more
    than 64 dims."""
    nodes = tuple(other for other in _around(node, factors) if sizes[other] > 1)
    shape = tuple(sizes[other] for other in nodes)
    tables = [laid(factor, (node, *nodes)) for factor in factors]
    least = _total(tables, (sizes[node], *shape)).min(axis=0) if math.prod(shape) < LARGE else _least(tables, shape)
    return Factor(nodes, np.minimum(least, NEVER))


def _least(tables: list[PriceArray], shape: tuple[int, ...]) -> PriceArray:
    """The same state by state: what is added and compared stays in the cache."""
    best, (states, *_) = _total([table[0] for table in tables], shape).copy(), tables[0].shape
    total = np.empty(shape, dtype=np.int64)
    for state in range(1, states):
        np.minimum(best, _total([table[state] for table in tables], shape, total), out=best)
    return best


def _total(tables: list[PriceArray], shape: tuple[int, ...], into: PriceArray | None = None) -> PriceArray:
    if len(tables) == 1:
        return np.broadcast_to(tables[0], shape)
    total = np.empty(shape, dtype=np.int64) if into is None else into
    np.add(tables[0], tables[1], out=total)
    for table in tables[2:]:
        total += table
    return total


def laid(factor: Factor, nodes: tuple[int, ...]) -> PriceArray:
    """A table with a dim for each of the nodes, of size one for those that it does not mention; what it mentions beside
    them has one state."""
    order = sorted(range(len(factor.nodes)), key=lambda place: (*nodes, factor.nodes[place]).index(factor.nodes[place]))
    table = factor.table.transpose(order)
    sizes = iter(table.shape)
    return table.reshape([next(sizes) if node in factor.nodes else 1 for node in nodes])


def _back(removed: Sequence[tuple[int, list[Factor]]], sizes: Sequence[int], known: Sequence[int]) -> list[int]:
    """The states, from the node removed last to the first; of equal ones the first. `known` are those of the rest."""
    states = [*known]
    for node, factors in reversed(removed):
        states[node] = _best(node, factors, states, sizes)
    return states


def _best(node: int, factors: Sequence[Factor], states: Sequence[int], sizes: Sequence[int]) -> int:
    return int(_costs(node, factors, states, sizes).argmin())


def _costs(node: int, factors: Sequence[Factor], states: Sequence[int], sizes: Sequence[int]) -> PriceArray:
    """What each state of a node costs, given the others."""
    total = np.zeros(sizes[node], dtype=np.int64)
    for factor in factors:
        total += factor.table[tuple([slice(None) if n == node else states[n] for n in factor.nodes])]
    return total


def improved(states: list[int], factors: Sequence[Factor], sizes: Sequence[int]) -> list[int]:
    """Node after node takes its best state given the others, until none gains: each time those that have a choice, and
    beside which something changed since."""
    of_node: dict[int, list[Factor]] = {node: [] for node, size in enumerate(sizes) if size > 1}
    for factor in factors:
        for node in of_node.keys() & factor.nodes:
            of_node[node].append(factor)
    waiting, better = {*of_node}, True
    while better:
        better = False
        for node, mine in of_node.items():
            if node not in waiting:
                continue
            waiting.remove(node)
            costs, before = _costs(node, mine, states, sizes), states[node]
            states[node] = found = int(costs.argmin())
            better = better or bool(costs[found] < costs[before])
            if found != before:
                waiting.update(of_node.keys() & _around(node, mine))
    return states


def improved_at_once(states: list[int], factors: Sequence[Factor], sizes: Sequence[int], max_entries: int) -> list[int]:
    """All nodes but a few take their best states at once, given those few, others in each round; until none gains.

    a —f— b —g— c —h— a      with a as it is, b and c are two nodes of a chain, which are solved exactly
    """
    spared, price = set[int](), price_of(factors, states)
    for _ in range(ROUNDS):
        states, fixed = _given_a_few(states, factors, sizes, max_entries, spared)
        before, price = price, price_of(factors, states)
        if price == before and fixed <= spared:
            break
        spared |= fixed
    return states


def _given_a_few(
    states: list[int], factors: Sequence[Factor], sizes: Sequence[int], max_entries: int, spared: Set[int]
) -> tuple[list[int], set[int]]:
    """Nodes are removed while that leaves no table that is too large; else one keeps its state."""
    of_node, removed, fixed = _Tables(sizes, factors), list[tuple[int, list[Factor]]](), set[int]()
    while of_node.least < math.inf:
        if of_node.least > max_entries:
            node = of_node.widest(spared)
            of_node.fix(node, states[node])
            fixed.add(node)
            continue
        node, mine = of_node.next()
        removed.append((node, mine))
        if mine and (found := _without(mine, node, sizes)).nodes:
            of_node.add(found)
    return _back(removed, sizes, states), fixed


def price_of(factors: Sequence[Factor], states: Sequence[int]) -> int:
    """What these states cost together."""
    return sum(int(factor.table[tuple(states[n] for n in factor.nodes)]) for factor in factors)
