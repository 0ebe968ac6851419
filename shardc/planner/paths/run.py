"""One search from priced shardings: what is met, the most promising first, and when it ends."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from shardc.ir.collectives import Move
from shardc.ir.digits import Reshape
from shardc.ir.sharding import ShardingNumber
from shardc.rules.routes import Route

Arrival: TypeAlias = tuple[ShardingNumber, Route]  # from which sharding, by which moves
Successor: TypeAlias = tuple[ShardingNumber, int, Route]  # to which sharding, at what price, by which moves


@dataclass(frozen=True, slots=True)
class Paths:
    """Cheapest prices from the seeds to every sharding reached, and the last moves to each (None at a seed).

    A search that ended with its budget proves no more than that no path to its goal costs less than the `bound`.
    """

    price: dict[ShardingNumber, int]
    last: dict[ShardingNumber, Arrival | None]
    bound: int | None = None

    def moves_to(self, number: ShardingNumber) -> tuple[ShardingNumber, list[Move | Reshape]]:
        """The seed from which a sharding is reached, and the moves, in order."""
        found: list[Move | Reshape] = []
        arrival = self.last[number]
        while arrival is not None:
            number, moves = arrival
            found += reversed(moves)
            arrival = self.last[number]
        return number, found[::-1]


class Moves(Protocol):
    """What a run asks: a Search."""

    def bound(self, number: ShardingNumber, goal: ShardingNumber | None) -> int: ...
    def successors(
        self, number: ShardingNumber, goal: ShardingNumber | None, last: Arrival | None
    ) -> Iterable[Successor] | None: ...
    def from_seeds(
        self, number: ShardingNumber, seeds: dict[ShardingNumber, int], price: int
    ) -> Iterator[tuple[ShardingNumber, tuple[int, Route]]]: ...
    def shortcut(
        self, seed: ShardingNumber, start: int, number: ShardingNumber, goal: ShardingNumber | None, found: Successor
    ) -> Successor: ...
    def brings_too_much(self, price: int) -> bool: ...


class Run:
    """A* from seeds up to a goal, if there is one, and if a path there can cost at most the limit; else Dijkstra's.

    Equal prices are broken by the order of discovery, which is that of seeds, dims and mesh axes.
    """

    def __init__(
        self, moves: Moves, seeds: dict[ShardingNumber, int], goal: ShardingNumber | None, limit: int | None
    ) -> None:
        self.moves, self.seeds, self.goal = moves, seeds, goal
        self.price = dict(seeds)
        self.last: dict[ShardingNumber, Arrival | None] = dict.fromkeys(seeds)
        self.origin = {number: number for number in seeds}  # from which seed each is reached
        self.settled: set[ShardingNumber] = set()
        self.limit = math.inf if limit is None else limit
        queue = (
            (cost + moves.bound(number, goal), place, number) for place, (number, cost) in enumerate(seeds.items())
        )
        self.queue = list(queue)  # by what a path through each costs at least
        self.count = len(self.queue)
        heapq.heapify(self.queue)

    def paths(self) -> Paths | None:
        """Where the budget ends first, the best path to the goal that is known; None where none is."""
        price, goal = self.price, self.goal
        while self.queue:
            bound, _, number = heapq.heappop(self.queue)
            if bound > self.limit:
                break
            if number in self.settled:
                continue
            self.settled.add(number)
            if number == goal:
                break
            successors = self._successors(number)
            if successors is None:
                return None if goal is None or goal not in price else Paths(price, self.last, min(bound, price[goal]))
            here = price[number]
            for target, added, route in successors:
                known = price.get(target)
                if known is None or here + added < known:
                    self._meet(number, (target, here + added, route), is_new=known is None)
        return Paths({number: price[number] for number in price if number in self.settled}, self.last)

    def _successors(self, number: ShardingNumber) -> Iterable[Successor] | None:
        if self.goal is None and len(self.seeds) > 1:
            for seed, (cost, route) in self.moves.from_seeds(number, self.seeds, self.price[number]):
                self._keep(number, self.seeds[seed] + cost, (seed, route))
        return self.moves.successors(number, self.goal, self.last[number])

    def _meet(self, number: ShardingNumber, found: Successor, is_new: bool) -> None:
        """A cheaper way to a sharding, or the first, to which a shortcut may be cheaper still."""
        target, cost, route = found
        before, left = number, self.moves.bound(target, self.goal)
        if is_new:
            seed = self.origin[number]
            if cost + left > self.limit and self._is_out_of_reach(seed, target, left):
                return
            shorter = self.moves.shortcut(seed, self.seeds[seed], target, self.goal, (number, cost, route))
            before, cost, route = shorter
        if cost + left > self.limit or self.moves.brings_too_much(cost + left):
            return
        if target == self.goal:
            self.limit = cost
        self._keep(target, cost, (before, route))
        self.settled.discard(target)  # it may be met again from behind a shortcut
        self.count += 1
        heapq.heappush(self.queue, (cost + left, self.count, target))

    def _is_out_of_reach(self, seed: ShardingNumber, target: ShardingNumber, left: int) -> bool:
        """Whether not even a shortcut may lead through a sharding within the limit."""
        spent = self.seeds[seed] + left
        return spent > self.limit or spent + self.moves.bound(seed, target) > self.limit

    def _keep(self, number: ShardingNumber, cost: int, arrival: Arrival) -> None:
        self.price[number], self.last[number], self.origin[number] = cost, arrival, self.origin[arrival[0]]
