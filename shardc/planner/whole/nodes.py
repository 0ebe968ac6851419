"""Nodes and the tables between them, and the prices of moving arrays from node to node."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shardc.cost.rate import picoseconds
from shardc.ir.expressions import Call, Named, Pattern, Product
from shardc.ir.sharding import Axes, Sharding
from shardc.lowering.tpu import on_chip
from shardc.planner.paths.named import named_moves
from shardc.planner.paths.search import Search
from shardc.planner.problem import Problem
from shardc.planner.whole.arrays import Entity, Lying
from shardc.planner.whole.eliminate import Factor
from shardc.planner.whole.local import LocalWays, Ways, alike, local_ways
from shardc.planner.whole.prices import NEVER, Between, Places, PriceArray, Scale, between, masked, states
from shardc.planner.whole.spaces import Spaces

# Bytes that take no longer than a hop: rows of gains and biases, no larger, may all be brought at once, before a loop.
LATENT = 1 << 17
MOST_TOGETHER = 400_000  # entries of a table between where an array lies and a use


class TooWide(Exception):
    """No state is left to a node: what is asked for cannot be, or is not among the shardings looked at."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the graphs of one program share, whatever the order of its products: prices between the shardings of each
    array, and the ways of operations, as far as they are known."""

    between: dict[Hashable, Between] = field(default_factory=dict)
    masked: dict[Hashable, PriceArray] = field(default_factory=dict)
    ways: dict[Hashable, LocalWays] = field(default_factory=dict)


@dataclass(slots=True)
class Nodes:
    """The nodes and tables of one program."""

    scale: Scale
    spaces: Spaces
    known: Known
    sizes: list[int] = field(default_factory=list)
    factors: list[Factor] = field(default_factory=list)

    @property
    def entries(self) -> int:
        """Of all tables."""
        return sum(factor.table.size for factor in self.factors)

    def node(self, size: int) -> int:
        if not size:
            raise TooWide
        self.sizes.append(size)
        return len(self.sizes) - 1

    def add(self, nodes: tuple[int, ...], table: PriceArray) -> None:
        """A table; of a node that stands in it twice, as one that is moved to what it is itself, the diagonal."""
        once = tuple(dict.fromkeys(nodes))
        if len(once) < len(nodes):
            table = np.einsum(table, [once.index(node) for node in nodes], [*range(len(once))])
        self.factors.append(Factor(once, np.ascontiguousarray(table)))

    def lying(
        self,
        entity: Entity,
        pattern: Pattern,
        times: int,
        with_sums: bool = False,
        idle: Axes = (),
        is_output: bool = False,
    ) -> Lying:
        """A node with a state for each sharding that matches a pattern; it may say nothing of idle axes. What is
        gathered to become an output is copied. What nothing makes unreduced is not, whoever reads it."""
        if not pattern.unreduced <= entity.partial:
            raise TooWide
        places = entity.choices(pattern, with_sums, self.between(entity), idle)
        more = self._copied(entity, places) if is_output and times == 1 else None
        return Lying(self.node(len(places)), places, times, more, is_output)

    def _copied(self, entity: Entity, places: Places) -> PriceArray | None:
        """The prices of copies of an array that lies so, where it is known what these take."""
        search = entity.search
        if search.model.alone.measured is None:
            return None
        sizes = [search.local_bytes(entity.states.numbers[place]) for place in places]
        times = [picoseconds(search.model.alone.copy_s(size, on_chip(search.model.target))) for size in sizes]
        return np.array([self.scale.of_price(search.objective.price(time, 0)) for time in times], dtype=np.int64)

    def between(self, entity: Entity) -> PriceArray:
        return self._between(entity).least

    def _between(self, entity: Entity) -> Between:
        prices, key = self.known.between, entity.kind
        if key not in prices:
            prices[key] = between(entity.search, entity.states, self.scale)
        return prices[key]

    def masked(self, entity: Entity) -> PriceArray:
        """The same with what is whole made partial sums at the end: one copy of it, for nothing."""
        prices, key = self.known.masked, entity.kind
        if key not in prices:
            prices[key] = masked(entity.search, entity.states, self.between(entity))
        return prices[key]

    def ways(self, problem: Problem, expr: Product | Call, search: Search, arrays: Sequence[Entity]) -> LocalWays:
        """Those of an operation on these arrays, in the program or in a loop's body."""
        below = [(entity.search, entity.partial) for entity in arrays]
        key = alike(problem, expr, below)
        if key not in self.known.ways:
            own = self.spaces.within(expr.dims)
            lie = [*(entity.states for entity in arrays), states(search.graph, search.model, search.array, own)]
            self.known.ways[key] = local_ways(problem, expr, search, below, lie, self.spaces, self.scale)
        return self.known.ways[key]

    def possible(self, ways: Ways, arrays: Sequence[Entity]) -> Ways:
        """The ways whose operands and result, which these arrays are, can lie so."""
        fits = np.ones(len(ways.prices), dtype=bool)
        for entity, places in zip(arrays, ways.at, strict=True):
            fits &= (places >= 0) & (self.between(entity).diagonal()[places] < NEVER)
        return ways.those(fits)

    # --- tables

    def move(
        self,
        entity: Entity,
        sources: Sequence[Lying],
        to: Lying,
        others: Sequence[Lying] = (),
        may_mask: bool = False,
    ) -> None:
        """The table of moving from the cheapest of some places to another; `others` are states of the same node.

        With `may_mask` what is whole may become partial sums: to be added to such.
        """
        table = (self.masked(entity) if may_mask else self.between(entity))[:, to.places]
        if to.more is not None:
            table = self._with_more(table, entity, to, to.more)
        given = [source for source in sources if source.is_given]
        open_ones = [source for source in sources if not source.is_given]
        while len(open_ones) > 1 and _size([*open_ones, to]) > MOST_TOGETHER:
            open_ones.pop(0)
        found = np.full(len(to.places), NEVER, dtype=np.int64)
        for source in given:
            found = np.minimum(found, repeated(table[source.places[0]], source.times))
        for other in others:
            found = np.minimum(found, repeated(table[other.places, range(len(to.places))], other.times))
        for at, source in enumerate(open_ones):
            shape = [1] * len(open_ones)
            shape[at] = len(source.places)
            moves = repeated(_from(source, table), source.times)
            found = np.minimum(found, moves.reshape(*shape, len(to.places)))
        self.add((*(source.node for source in open_ones), to.node), found)

    def _with_more(self, table: PriceArray, entity: Entity, to: Lying, more: PriceArray) -> PriceArray:
        """With what it costs besides to come there by a move; to an output by one whose result is copied."""
        moved = table > 0 if not to.is_output else np.arange(len(table))[:, None] != to.places
        dearer = np.where(moved & (table < NEVER), table + more, table)
        if not to.is_output:
            return dearer
        return np.minimum(dearer, self._between(entity).ending(to.places))

    def at_home(self, entity: Entity, to: Lying) -> None:
        """What it costs besides to be read at home, where a move brought it from what made it."""
        if (
            to.more is None
            or entity.maker is None
            or _size([entity.maker, home := entity.bases[0], to]) > MOST_TOGETHER
        ):
            return
        made, at, read = (each.places for each in (entity.maker, home, to))
        is_brought = (made[:, None, None] != at[:, None]) & (at[:, None] == read)
        found = repeated(np.where(is_brought, to.more, 0).astype(np.int64), to.times)
        if home.is_given:
            self.add((entity.maker.node, to.node), found[:, 0])
        else:
            self.add((entity.maker.node, home.node, to.node), found)

    def stay(self, made: Lying, to: Lying) -> None:
        """What is not to be moved."""
        if made.node != to.node:
            alike = made.places[:, None] == to.places[None, :]
            self.add((made.node, to.node), np.where(alike, 0, NEVER).astype(np.int64))

    def by_name(self, named: Named, entity: Entity, source: Lying, to: Lying) -> None:
        """The prices of the moves that a collective's name allows."""
        every, found = entity.states, np.full((len(source.places), len(to.places)), NEVER, dtype=np.int64)
        column = {int(place): at for at, place in enumerate(to.places)}
        for row, place in enumerate(source.places):
            for target, price in named_moves(named, every.numbers[place], entity.search):
                at = column.get(every.place.get(target, -1))
                if at is not None:
                    found[row, at] = min(int(found[row, at]), self.scale.of_price(price))
        self.add((source.node, to.node), repeated(found, to.times))

    # --- loops

    def with_all_of(self, dim: str, entity: Entity, dims: tuple[str, ...]) -> list[Lying]:
        """Where each device has all of a dim of an array with these dims; brought there, where by the text none has."""
        place = dims.index(dim)
        shardings = [entity.search.graph.shardings[number] for number in entity.states.numbers]
        found = [base for base in entity.bases if any(not shardings[at].dims[place] for at in base.places)]
        if not found:
            found.append(self.lying(entity, Pattern.free(len(dims) - 1).along(place), entity.times))
            self.move(entity, entity.sources, found[0])
            entity.bases += found
        return found

    def rows(self, whole: tuple[Entity, tuple[str, ...]], lying: Lying, other: Entity, dim: str) -> Lying:
        """Where a row along a dim lies of an array with these dims, or all rows of it: by the same node.

        Each device has all of the dim: states in which it has not are ruled out.
        """
        entity, dims = whole
        places = np.array([_row(entity, dims, int(place), other, dim) for place in lying.places], dtype=np.int64)
        if (places < 0).all():
            raise TooWide
        if (places < 0).any():
            self.add((lying.node,), np.where(places < 0, NEVER, 0).astype(np.int64))
        return replace(lying, places=np.where(places < 0, places.max(), places))


def _from(source: Lying, table: PriceArray) -> PriceArray:
    """The prices of moves from there."""
    moves = table[source.places]
    if source.to_lie is None:
        return moves
    return np.where((moves > 0) & (moves < NEVER), moves + source.to_lie[:, None], moves)


def repeated(table: PriceArray, times: int) -> PriceArray:
    """The prices of what is done in each trip of a loop."""
    return table if times == 1 else np.where(table > NEVER // times, NEVER, table * times)


def _row(entity: Entity, dims: tuple[str, ...], place: int, other: Entity, dim: str) -> int:
    """The place of another array's sharding that has the same axes on the same dims; -1 where the one along which
    there are rows is sharded."""
    sharding = entity.search.graph.shardings[entity.states.numbers[place]]
    axes = dict(zip(dims, sharding.dims, strict=True))
    if axes.get(dim):
        return -1
    found = Sharding(tuple(axes.get(each, ()) for each in other.dims), sharding.unreduced)
    return other.states.place.get(other.search.graph.number(found), -1)


def _size(lying: Sequence[Lying]) -> int:
    return int(np.prod([len(each.places) for each in lying]))
