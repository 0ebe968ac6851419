"""For every sharding that an expression's value can be in: the price, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from shardc.ir.collectives import Move
from shardc.ir.program import Expr, Use
from shardc.ir.sharding import Sharding
from shardc.planner.paths.path import Paths
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
        if goal is None and self.search.quick:
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


def as_written(table: Table) -> Table:
    """A use where it is written, not moved: what `·_LOCAL` and a named collective take."""
    if not isinstance(table.expr, Use):
        return table
    origins = {at: origin for at, origin in table.origins.items() if not (isinstance(origin, Held) and origin.is_copy)}
    return Table(table.expr, table.search, {at: table.seeds[at] for at in origins}, origins, fixed=True)
