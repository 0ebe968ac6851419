"""For every sharding that an expression's value can be in: the price, and where it came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeAlias

from shardc.ir.collectives import Move
from shardc.ir.expressions import Call, Expr, Product, Use
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.paths.run import Paths
from shardc.planner.paths.search import Search


@dataclass(frozen=True, slots=True)
class Held:
    """A leaf: value number `value` of the plan so far; None for an input whose sharding the planner chooses.

    A value that no text binds is a copy: an earlier use moved the array there.
    """

    value: int | None
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class Multiplied:
    """A local product of the operands' tables at these shardings."""

    tables: tuple[Table, ...]
    at: tuple[int, ...]

    @property
    def operands(self) -> list[tuple[Table, int]]:
        return list(zip(self.tables, self.at, strict=True))

    @property
    def seeds(self) -> list[tuple[Table, int]]:
        """How each operand lies before it is moved for the product."""
        return [(table, table.paths(number).moves_to(number)[0]) for table, number in self.operands]

    def pair(self, product: Product) -> Product:
        """The product of these operands: of a chain, the pair that was taken."""
        return replace(product, operands=tuple(table.expr for table in self.tables))


@dataclass(frozen=True, slots=True)
class Applied:
    """A function of the operands' tables at these shardings."""

    tables: tuple[Table, ...]
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """A named collective on the operand's table at this sharding."""

    table: Table
    at: int
    move: Move


@dataclass(frozen=True, slots=True)
class Waypoint:
    """The sharding that a use asks for, reached from the table of what is held."""

    table: Table
    at: int


Origin: TypeAlias = Held | Multiplied | Applied | Moved | Waypoint


@dataclass(slots=True)
class Table:
    """Where an expression's value can be and at what price. `fixed` tables may not be moved on."""

    expr: Expr
    search: Search
    seeds: dict[int, int]
    origins: dict[int, Origin]
    fixed: bool = False
    _paths: Paths | None = field(default=None, repr=False)
    _towards: dict[int, Paths] = field(default_factory=dict, repr=False)
    _above: dict[int, int] = field(default_factory=dict, repr=False)  # limits that prices were found to be above

    def paths(self, goal: int | None = None) -> Paths:
        if self.fixed:
            return Paths(self.seeds, dict.fromkeys(self.seeds))
        if goal is None and not self.search.options.searches:
            return self.search.paths(self.seeds)
        if goal is not None and self._paths is None:
            if goal not in self._towards:
                self._towards[goal] = self.search.paths(self.seeds, goal)
            return self._towards[goal]
        if self._paths is None:
            self._paths = self._spread()
        return self._paths

    def price(self, number: int, limit: int | None) -> int | None:
        """The price of one sharding; None if it is above the limit, or the array cannot be so."""
        if self._paths is None and number not in self._towards and not self.fixed:
            if limit is not None and self._above.get(number, -1) >= limit:
                return None
            if number not in self.seeds and not self.search.divides(number):
                return None
            found = self.search.paths(self.seeds, number, limit)
            if number not in found.price:
                self._above[number] = -1 if limit is None else limit
                return None
            self._towards[number] = found
        price = self.paths(number).price.get(number)
        return None if price is None or (limit is not None and price > limit) else price

    def proved(self, number: int) -> int | None:
        """What the price is proved not to be below, if a search for it ended with its budget."""
        return None if number not in self._towards else self._towards[number].bound

    def bound(self, number: int) -> int:
        """What the price of a sharding is not below."""
        bound = min([price + self.search.bound(seed, number) for seed, price in self.seeds.items()])
        return max(bound, self._above.get(number, -1) + 1)

    def _spread(self) -> Paths:
        """From one seed the search is shared with every other table of the same array."""
        if len(self.seeds) != 1:
            return self.search.paths(self.seeds)
        ((number, price),) = self.seeds.items()
        paths = self.search.paths_from(number)
        return paths if price == 0 else Paths({n: price + p for n, p in paths.price.items()}, paths.last)

    def sharding(self, number: int) -> Sharding:
        return self.search.graph.shardings[number]

    def add(self, number: int, price: int, origin: Origin) -> None:
        if number not in self.seeds or price < self.seeds[number]:
            self.seeds[number] = price
            self.origins[number] = origin


def unmoved(table: Table) -> Table:
    """A use where it is written, not moved: what `·_LOCAL` and a named collective take."""
    if not isinstance(table.expr, Use):
        return table
    origins = {at: origin for at, origin in table.origins.items() if not (isinstance(origin, Held) and origin.is_copy)}
    return Table(table.expr, table.search, {at: table.seeds[at] for at in origins}, origins, fixed=True)


def aligned(tables: tuple[Table, ...]) -> Iterator[tuple[int, ...]]:
    """Of a function's operands, shardings that can go together: each has the axes of those before on shared dims."""
    known: list[str] = []
    joins = []
    for table in tables:
        shared = [dim for dim in table.expr.dims if dim in known]
        alike: dict[tuple[Axes, ...], list[int]] = {}
        for number in table.paths().price:
            alike.setdefault(_on(shared, table.expr.dims, table.sharding(number)), []).append(number)
        joins.append((shared, alike))
        known += table.expr.dims

    def joined(at: tuple[int, ...], axes_of: dict[str, Axes]) -> Iterator[tuple[int, ...]]:
        if len(at) == len(tables):
            yield at
            return
        shared, alike = joins[len(at)]
        for number in alike.get(tuple(axes_of[dim] for dim in shared), ()):
            table = tables[len(at)]
            more = axes_of if len(at) + 1 == len(tables) else axes_of | _placed(table, number)
            yield from joined((*at, number), more)

    return joined((), {})


def _placed(table: Table, number: int) -> dict[str, Axes]:
    return dict(zip(table.expr.dims, table.sharding(number).dims, strict=True))


def _on(dims: list[str], every: tuple[str, ...], sharding: Sharding) -> tuple[Axes, ...]:
    return tuple(sharding.dims[every.index(dim)] for dim in dims)


def few_alike(expr: Call, tables: tuple[Table, ...]) -> Iterator[tuple[int, ...]]:
    """Where the operands of a function may lie: as one of them does, the others alike; and sums are made first."""
    for master in tables:
        for number in master.seeds:
            if expr.over:
                yield (number,)
            axes_of = dict.fromkeys(expr.dims, Axes())
            for table, at in ((master, number), *((table, next(iter(table.seeds))) for table in tables)):
                for dim, axes in zip(table.expr.dims, table.sharding(at).dims, strict=True):
                    taken = set(chain.from_iterable(axes_of.values()))
                    if dim not in expr.over and not axes_of.get(dim) and not taken & set(axes):
                        axes_of[dim] = axes
            alike = (
                table.search.graph.number(Sharding(tuple(axes_of.get(dim, ()) for dim in table.expr.dims)))
                for table in tables
            )
            yield tuple(alike)
