"""For every sharding that an expression's value can be in: the price, and where it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeAlias

from shardc.ir.collectives import Move
from shardc.ir.expressions import Call, Expr, Product, Use
from shardc.ir.plan import ValueNumber
from shardc.ir.sharding import Axes, Sharding, ShardingNumber
from shardc.planner.paths.run import Paths
from shardc.planner.paths.search import Search
from shardc.rules.products import After, Before, Reshard, Why, cases_of


@dataclass(frozen=True, slots=True)
class Held:
    """A leaf: value number `value` of the plan so far; None for an input whose sharding the planner chooses.

    A value that no text binds is a copy: an earlier use moved the array there.
    """

    value: ValueNumber | None
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class Multiplied:
    """A local product of the operands' tables at these shardings, and why there are moves beside it.

    Of products no other way costs less than `proved`, if the search among them ended with its budget.
    """

    tables: tuple[Table, ...]
    at: tuple[ShardingNumber, ...]
    proved: int = 0

    @property
    def operands(self) -> list[tuple[Table, ShardingNumber]]:
        return list(zip(self.tables, self.at, strict=True))

    @property
    def seeds(self) -> list[tuple[Table, ShardingNumber]]:
        """How each operand lies before it is moved for the product."""
        return [table.start(number) for table, number in self.operands]

    def cases(self, result: tuple[str, ...]) -> dict[str, int]:
        """The case of each mesh axis; `result` are the dims of the result."""
        mesh = self.tables[0].search.graph.mesh
        lie = [table.sharding(seed) for table, seed in self.seeds]
        return cases_of(mesh.names, [table.expr.dims for table in self.tables], result, lie)

    def before(self, result: tuple[str, ...]) -> Before:
        """Why an operand moves."""
        dims = frozenset(dim for table in self.tables for dim in table.expr.dims)
        return Before(self.cases(result), dims.difference(result))

    def pair(self, product: Product) -> Product:
        """The product of these operands: of a chain, the pair that was taken."""
        return replace(product, operands=tuple(table.expr for table in self.tables))


@dataclass(frozen=True, slots=True)
class Applied:
    """A function of the operands' tables at these shardings."""

    tables: tuple[Table, ...]
    at: tuple[ShardingNumber, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """A named collective on the operand's table at this sharding."""

    table: Table
    at: ShardingNumber
    move: Move


@dataclass(frozen=True, slots=True)
class Waypoint:
    """The sharding that a use asks for, reached from the table of what is held."""

    table: Table
    at: ShardingNumber


Origin: TypeAlias = Held | Multiplied | Applied | Moved | Waypoint


@dataclass(slots=True)
class Table:
    """Where an expression's value can be and at what price. `fixed` tables may not be moved on."""

    expr: Expr
    search: Search
    seeds: dict[ShardingNumber, int]
    origins: dict[ShardingNumber, Origin]
    fixed: bool = False
    _paths: Paths | None = field(default=None, repr=False)
    _towards: dict[ShardingNumber, Paths] = field(default_factory=dict, repr=False)
    _above: dict[ShardingNumber, int] = field(
        default_factory=dict, repr=False
    )  # limits that prices were found to be above

    def paths(self, goal: ShardingNumber | None = None) -> Paths:
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

    def price(self, number: ShardingNumber, limit: int | None) -> int | None:
        """The price of one sharding; None if it is above the limit, or the array cannot be so."""
        if self._paths is None and number not in self._towards and not self.fixed:
            if limit is not None and self._above.get(number, -1) >= limit:
                return None
            if number not in self.seeds and not self.search.divides(number):
                return None
            found = self.search.paths(self.seeds, number, limit)
            if number not in found.price:
                if limit is not None:
                    self._above[number] = limit
                return None
            self._towards[number] = found
        price = self.paths(number).price.get(number)
        return None if price is None or (limit is not None and price > limit) else price

    def is_sent(self, number: ShardingNumber, alike: Mapping[ValueNumber, Sequence[ValueNumber]]) -> bool:
        """Whether a collective leaves the value as it lies so: one that moves it there, or one that moved it before.
        Of `alike`, the values that are one array, the first is as it was made."""
        held = [origin.value for origin in self.origins.values() if isinstance(origin, Held) and not origin.is_copy]
        if any(value is not None and alike.get(value, (value,))[0] != value for value in held):
            return True
        price = self.price(number, None)
        return price is not None and self.search.objective.first(price) > 0

    def start(self, number: ShardingNumber) -> tuple[Table, ShardingNumber]:
        """From where a value is moved to a sharding: of a use that asks for what its operation takes, where it lay."""
        seed = self.paths(number).moves_to(number)[0]
        origin = self.origins[seed]
        if self.search.options.as_asked and isinstance(origin, Waypoint):
            return origin.table.start(origin.at)
        return self, seed

    def proved(self, number: ShardingNumber) -> int:
        """What the price is proved not to be below, if a search for it ended with its budget."""
        paths = self.paths(number)
        origin = self.origins[paths.moves_to(number)[0]]
        return max(paths.bound or 0, origin.proved if isinstance(origin, Multiplied) else 0)

    def after(self, seed: ShardingNumber) -> Why:
        """Why the value moves on, once it is made."""
        return After(self._summed(seed)) if isinstance(self.origins[seed], Multiplied) else Reshard()

    def _summed(self, seed: ShardingNumber) -> dict[str, int]:
        """The case of each axis in the product that a table has; of partial sums that came with an operand, in that
        which left them."""
        origin = self.origins[seed]
        if not isinstance(origin, Multiplied):
            return {}
        found = origin.cases(self.expr.dims)
        for table, number in origin.operands:
            over = table.sharding(number).unreduced
            before = table._summed(table.paths(number).moves_to(number)[0]) if over else {}
            found |= {axis: before[axis] for axis in over if axis in before}
        return found

    def cases(self, number: ShardingNumber) -> dict[str, int]:
        """The case of each axis in the products that this sharding is made of, the gravest of several."""
        return self._cases_from(self.paths(number).moves_to(number)[0])

    def _cases_from(self, seed: ShardingNumber) -> dict[str, int]:
        match self.origins[seed]:
            case Multiplied() as made:
                return _gravest([made.cases(self.expr.dims), *(table._cases_from(at) for table, at in made.seeds)])
            case Applied(tables, at):
                return _gravest(table.cases(number) for table, number in zip(tables, at, strict=True))
            case Moved(table, at) | Waypoint(table, at):
                return table.cases(at)
            case Held():
                return {}

    def bound(self, number: ShardingNumber) -> int:
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

    def sharding(self, number: ShardingNumber) -> Sharding:
        return self.search.graph.shardings[number]

    def add(self, number: ShardingNumber, price: int, origin: Origin) -> None:
        if number not in self.seeds or price < self.seeds[number]:
            self.seeds[number] = price
            self.origins[number] = origin


def _gravest(every: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found = dict[str, int]()
    for cases in every:
        found |= {axis: max(case, found.get(axis, 1)) for axis, case in cases.items()}
    return found


def unmoved(table: Table) -> Table:
    """A use where it is written, not moved: what `·_LOCAL` and a named collective take."""
    if not isinstance(table.expr, Use):
        return table
    origins = {at: origin for at, origin in table.origins.items() if not (isinstance(origin, Held) and origin.is_copy)}
    return Table(table.expr, table.search, {at: table.seeds[at] for at in origins}, origins, fixed=True)


def aligned(tables: tuple[Table, ...]) -> Iterator[tuple[ShardingNumber, ...]]:
    """Of a function's operands, shardings that can go together: each has the axes of those before on shared dims."""
    known: list[str] = []
    joins = []
    for table in tables:
        shared = [dim for dim in table.expr.dims if dim in known]
        alike: dict[tuple[Axes, ...], list[ShardingNumber]] = {}
        for number in table.paths().price:
            alike.setdefault(_on(shared, table.expr.dims, table.sharding(number)), []).append(number)
        joins.append((shared, alike))
        known += table.expr.dims

    def joined(at: tuple[ShardingNumber, ...], axes_of: dict[str, Axes]) -> Iterator[tuple[ShardingNumber, ...]]:
        if len(at) == len(tables):
            yield at
            return
        shared, alike = joins[len(at)]
        for number in alike.get(tuple(axes_of[dim] for dim in shared), ()):
            table = tables[len(at)]
            more = axes_of if len(at) + 1 == len(tables) else axes_of | _placed(table, number)
            yield from joined((*at, number), more)

    return joined((), {})


def _placed(table: Table, number: ShardingNumber) -> dict[str, Axes]:
    return dict(zip(table.expr.dims, table.sharding(number).dims, strict=True))


def _on(dims: list[str], every: tuple[str, ...], sharding: Sharding) -> tuple[Axes, ...]:
    return tuple(sharding.dims[every.index(dim)] for dim in dims)


def few_alike(expr: Call, tables: tuple[Table, ...]) -> Iterator[tuple[ShardingNumber, ...]]:
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
