"""The least price between all pairs of shardings of one array, as a table.

The moves from sharding to sharding are those that a search takes (`paths.graph`); here all of them are priced at once
and closed under following one another, with the routes in digits where no path of moves brings as little:

                    → [I, J]  [I_X, J]  [I, J_X]
    [I, J]            0       0         0            slices
    [I_X, J]          3V/4    0         3V/16        AllGather, AllToAll
    [I, J_X]          3V/4    3V/16     0

A price here is one 64-bit integer: what the objective counts, exactly, and in the bits below as much of the other
measure as there is room for. `NEVER` is more than any plan's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardc.cost.copied import share_s
from shardc.cost.model import CostModel
from shardc.cost.rate import PICO, Rate
from shardc.ir.collectives import Move
from shardc.ir.sharding import Sharding, ShardingNumber
from shardc.lowering.scatters import LocalBlock
from shardc.planner.options import Objective
from shardc.planner.paths.graph import Graph, edge_costs
from shardc.planner.paths.search import Search
from shardc.planner.whole.spaces import Within
from shardc.rules.placements import subsets

PriceArray = NDArray[np.int64]  # of one array or two: a price for each of their shardings
Places = NDArray[np.int64]  # of each of several ways, or of a node's states: the place in an array's States
NEVER = 1 << 56
BITS = 55  # of a price that some plan may have
MAX_ROUTES = 100  # between shardings of one array that are worked out; of more, all are left to the search


@dataclass(frozen=True, slots=True)
class Scale:
    """How two measures share a price: the objective's, then so many bits of the other in units of 2^`unit`."""

    objective: Objective
    bits: int
    unit: int

    @classmethod
    def of(cls, objective: Objective, most_ps: int, most_bytes: int) -> Scale | None:
        """For programs whose plans take no more than that; None where no machine word holds them."""
        first, second = (most_ps, most_bytes) if objective is Objective.TIME else (most_bytes, most_ps)
        bits = min(BITS - first.bit_length(), 24)
        return cls(objective, bits, max(0, second.bit_length() - bits)) if bits > 0 else None

    def of_arrays(self, time_ps: PriceArray, wire_bytes: PriceArray) -> PriceArray:
        first, second = (time_ps, wire_bytes) if self.objective is Objective.TIME else (wire_bytes, time_ps)
        kept = np.minimum(first, NEVER >> self.bits)  # what is above has no room
        return np.minimum((kept << self.bits) + (second >> self.unit), NEVER)

    def of_price(self, price: int) -> int:
        """Of one of the objective's own prices."""
        time, wire = self.objective.measures(price)
        first, second = (time, wire) if self.objective is Objective.TIME else (wire, time)
        return min((first << self.bits) + (second >> self.unit), NEVER)

    def first(self, price: int) -> int:
        """What the objective counts, of a price: picoseconds or bytes."""
        return price >> self.bits


class Rates(NamedTuple):
    """Of each round and move, as `cost.rate` has one."""

    latency: NDArray[np.float64]
    per_byte: NDArray[np.float64]
    near_bytes: NDArray[np.float64]
    near_per_byte: NDArray[np.float64]

    def seconds(self, local_bytes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of each move, of so many bytes."""
        per_byte = np.where(local_bytes > self.near_bytes, self.per_byte, self.near_per_byte)
        found: NDArray[np.float64] = np.maximum(self.latency, local_bytes * per_byte).sum(axis=0)
        return found


@dataclass(frozen=True, slots=True)
class States:
    """The shardings of arrays in one space over the axes of a graph, in an order that depends on nothing else."""

    numbers: tuple[ShardingNumber, ...]  # in the graph
    place: dict[ShardingNumber, int]  # of each number
    source: NDArray[np.int64]  # of each move: from which place
    target: NDArray[np.int64]
    rates: Rates
    wire: NDArray[np.int64]
    parts: NDArray[np.int64]
    is_apart: NDArray[np.bool_]  # of each move: what it leaves is copied to become an output
    blocks: NDArray[np.int64]  # of each sharding: into how many it cuts an array
    is_whole: NDArray[np.bool_]  # without partial sums: these come first


@lru_cache(maxsize=64)
def states(around: Graph, model: CostModel, array: LocalBlock | None, within: Within) -> States:
    """As `edge_costs` has them: of any array, or of this one."""
    numbers = _numbers(around, within)
    place = {number: at for at, number in enumerate(numbers)}
    moves = edge_costs(around, model, array)
    rows, rates, done = list[tuple[int, ...]](), list[Rate](), list[Move]()
    for at, number in enumerate(numbers):
        found = moves.edges(number)
        for target, price, (move,) in found.moves:
            rate, wire, parts = found.prices[price]
            if target in place:
                rows.append((at, place[target], wire, parts))
                rates.append(rate)
                done.append(move)
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 4).T
    source, target, wire, parts = (columns[at] for at in range(4))
    lie = [around.shardings[number] for number in numbers]
    blocks = np.array([around.mesh.product(sharding.sharded) for sharding in lie], dtype=np.int64)
    is_whole = np.array([not sharding.unreduced for sharding in lie], dtype=bool)
    apart = {move: model.leaves_output_apart(move, around.rank) for move in dict.fromkeys(done)}
    is_apart = np.array([apart[move] for move in done], dtype=bool)
    return States(numbers, place, source, target, _rates(rates), wire, parts, is_apart, blocks, is_whole)


def _rates(rates: list[Rate]) -> Rates:
    """Nothing for rounds that a move does not have. Most moves take as long as others do."""
    every = {id(rate): rate for rate in rates}
    rounds, column = [list(rate.rounds()) for rate in every.values()], {each: at for at, each in enumerate(every)}
    found = np.zeros((4, max(map(len, rounds), default=1), len(rounds)))
    for at, some in enumerate(rounds):
        for number, each in enumerate(some):
            found[:, number, at] = each.latency_s, each.s_per_byte, each.near_bytes, each.near_s_per_byte
    return Rates(*found[:, :, [column[id(rate)] for rate in rates]])


@lru_cache(maxsize=64)
def _numbers(around: Graph, within: Within) -> tuple[ShardingNumber, ...]:
    """Without partial sums, then with sums over one axis, over two, …"""
    every = (
        Sharding(dims, frozenset(chosen))
        for chosen, free in subsets(around.coarse_pool)
        for dims in within.space.placements(free, around.rank)
    )
    found = (around.number(around.refined(sharding)) for sharding in every)
    return tuple(dict.fromkeys(chain(found, map(around.number, within.more))))


class Between(NamedTuple):
    """Prices from each sharding of an array to each other; NEVER where it cannot lie so, or nothing leads there."""

    least: PriceArray
    onward: PriceArray  # where a collective reads what comes last: a share is then cut out for it
    last: PriceArray  # of single moves, those whose result becomes an output as it is

    def ending(self, places: Places) -> PriceArray:
        """The least prices to these places where no copy is made to become an output: of staying, or by such a move."""
        found = np.empty((len(self.last), len(places)), dtype=np.int64)
        for at, place in enumerate(places):
            before = np.delete(np.arange(len(self.last)), place)
            found[:, at] = (self.onward[:, before] + self.last[before, place]).min(axis=1, initial=NEVER)
            found[place, at] = 0
        return found


def between(search: Search, all_states: States, scale: Scale) -> Between:
    """Of an array, by every path of moves and of routes in digits."""
    fits = np.array([search.divides(number) for number in all_states.numbers], dtype=bool)
    found = _edges(search, all_states, scale)
    found[~fits, :] = NEVER
    found[:, ~fits] = NEVER
    last = _edges(search, all_states, scale, ~all_states.is_apart)
    _add_routes(search, all_states, scale, found)
    can_lie = np.ix_(np.flatnonzero(fits), np.flatnonzero(fits))
    closed, whole = found[can_lie], int(np.count_nonzero(all_states.is_whole[fits]))
    shares = _shares(search, all_states, scale)
    if shares is None:
        _close(closed, whole)
        found[can_lie] = closed
        return Between(found, found, last)
    onward = found.copy()
    found[can_lie], onward[can_lie] = _close_with_shares(closed, whole, shares[fits])
    return Between(found, onward, last)


def masked(search: Search, every: States, found: PriceArray) -> PriceArray:
    """The same with the further way of a copy that is kept among zeros: last, and for nothing."""
    found = found.copy()
    for place, number in enumerate(every.numbers):  # those of fewer partial sums come first
        for edge in search.graph.masks(number):
            target = every.place.get(edge.target)
            if target is not None and search.divides(edge.target):
                np.minimum(found[:, target], found[:, place], out=found[:, target])
    return found


def _edges(search: Search, every: States, scale: Scale, chosen: NDArray[np.bool_] | slice = slice(None)) -> PriceArray:
    """One move each, of all or of those that are chosen."""
    count = len(every.numbers)
    found = np.full((count, count), NEVER, dtype=np.int64)
    size = search.total_bytes // every.blocks[every.source]
    time = np.ceil(every.rates.seconds(size) * PICO - 1e-6).astype(np.int64)
    prices = scale.of_arrays(time, every.wire * size // every.parts)
    np.minimum.at(found, (every.source[chosen], every.target[chosen]), prices[chosen])
    np.fill_diagonal(found, 0)
    return found


def _close(found: PriceArray, whole: int) -> None:
    """Floyd and Warshall: by way of each sharding in turn. Nothing leads from the first, which are `whole`, to partial
    sums, which are the others: these are on the way from others alone, and nothing goes on to them from the first."""
    for middle in range(len(found)):
        start, end = (0, whole) if middle < whole else (whole, len(found))
        part = found[start:, :end]
        np.minimum(part, found[start:, middle, None] + found[None, middle, :end], out=part)


def _shares(search: Search, every: States, scale: Scale) -> PriceArray | None:
    """The price of cutting out a share that lies so; None where that is not known, or does not count."""
    alone = search.model.alone
    if alone.measured is None or search.objective is not Objective.TIME:
        return None
    elements = search.total_bytes // search.dtype.bytes // every.blocks
    time = np.ceil(share_s(elements, alone) * PICO).astype(np.int64)
    return scale.of_arrays(time, np.zeros_like(time))


def _close_with_shares(found: PriceArray, whole: int, shares: PriceArray) -> tuple[PriceArray, PriceArray]:
    """The same where a Slice takes what its share does to be cut out, unless it comes last, as part of what reads it;
    and where that is a collective.

        [I_X, J_Y] → [I, J_XY]      Slice, AllToAll: a share is cut out
        [I_X, J] → [I, J_Y]         AllGather, Slice: none is
    """
    cuts = found == 0
    for middle in range(len(cuts)):  # one Slice after another is one
        cuts |= cuts[:, middle, None] & cuts[None, middle]
    onward = np.where(cuts, shares, found)
    np.fill_diagonal(onward, 0)
    _close(onward, whole)
    least = onward.copy()
    for middle in range(len(found)):
        at_once = np.flatnonzero(cuts[middle])
        least[:, at_once] = np.minimum(least[:, at_once], onward[:, middle, None])
    return least, onward


def _add_routes(search: Search, every: States, scale: Scale, found: PriceArray) -> None:
    """The routes in digits, where whole axes do not get there at once."""
    around = search.graph
    pairs = _in_digits(around, every.numbers)
    if len(pairs) > MAX_ROUTES:
        return
    for source, target in pairs:
        if found[source, source] == NEVER or found[target, target] == NEVER:
            continue
        way = search.route(every.numbers[source], every.numbers[target])
        if way is not None:
            found[source, target] = min(int(found[source, target]), scale.of_price(way[0]))


@lru_cache(maxsize=32)
def _in_digits(around: Graph, numbers: tuple[ShardingNumber, ...]) -> tuple[tuple[int, int], ...]:
    """The places of the shardings between which whole axes may not get at once."""
    if len(numbers) > MAX_ROUTES:
        return ()
    return tuple(
        (source, target)
        for source, start in enumerate(numbers)
        for target, end in enumerate(numbers)
        if around.needs_digits(start, end)
    )
