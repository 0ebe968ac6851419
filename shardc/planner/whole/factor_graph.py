"""A program as nodes with states, and tables of prices between them.

    way      of each product and function     its local ways, from `rules`; the price of the local work
    home     of what is asked for, or used     every sharding that the text allows it
             several times
    copy     before a use, if more follow      every sharding: moved there from home or from the copy before, and kept

A use is priced by the cheapest of moving from home, from what the text itself moved, and from the last copy, to what
the way takes. Of what is used once and lies open no node is needed: it lies as its way leaves it.

    Q = x[B_X, D] · Wq;  K = x · Wk      x ── way of Q       x has one state, the copy before Q any: if it is whole,
                                         │ ╲                 K has it for nothing, and one gather is paid
                                         copy ── way of K
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shardc.ir.program import Call, Expr, Input, Named, Pattern, Product, Statement, Use, operands, straight
from shardc.planner.paths.search import Search
from shardc.planner.problem import Problem
from shardc.planner.products.ways import Way
from shardc.planner.statement.nodes import named_moves
from shardc.planner.whole.arrays import Entity, Line, Lying, fresh, is_free, moved_by, use_counts
from shardc.planner.whole.digits import DigitWays, End
from shardc.planner.whole.eliminate import Factor
from shardc.planner.whole.local import local_ways
from shardc.planner.whole.prices import NEVER, Prices, Scale, Table, between

MOST_TOGETHER = 400_000  # entries of a table between where an array lies and a use


class TooWide(Exception):
    """No state is left to a node: what is asked for cannot be, or is not among the shardings looked at."""


@dataclass(slots=True)
class FactorGraph:
    """The nodes and tables of one program, and the lines to be planned once each node has its state."""

    problem: Problem
    scale: Scale
    prices: Prices  # between the shardings of each array, as far as they are known
    digits: DigitWays | None = None  # where products are to be looked at in digits, too
    sizes: list[int] = field(default_factory=list)
    factors: list[Factor] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    given: dict[str, tuple[Entity, Lying]] = field(default_factory=dict)
    taken: list[tuple[Entity, Lying]] = field(default_factory=list)  # what operations take
    _arrays: dict[str, Entity] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _now: int = 0

    @classmethod
    def of(cls, problem: Problem, scale: Scale, prices: Prices, digits: DigitWays | None = None) -> FactorGraph:
        graph, program = cls(problem, scale, prices, digits), problem.program
        counts = use_counts(program)
        graph._taken = {array.name for array in program.inputs} | {made.name for made in straight(program)}
        for array in program.inputs:
            graph._give(array, counts[array.name])
        for number, statement in enumerate(straight(program)):
            graph._now = number
            graph._state(statement, number in program.outputs, counts[number])
        return graph

    @property
    def entries(self) -> int:
        """Of all tables."""
        return sum(factor.table.size for factor in self.factors)

    # --- statements

    def _give(self, array: Input, left: int) -> None:
        search = self.problem.search(array.dims, array.dtype)
        entity = Entity(search, array.name, array.dims, array.dtype, array.pattern.unreduced, left)
        entity.bases.append(self._lying(entity, array.pattern))
        self.given[array.name] = entity, entity.bases[0]
        self._arrays[array.name] = entity

    def _state(self, statement: Statement, is_output: bool, left: int) -> None:
        expr, pattern = statement.expr, statement.pattern
        moved = moved_by(expr)
        if moved is not None:
            self._moved(statement, moved, is_output)
            return
        taken, entity = self._operation(expr, statement.name, pattern)
        fixed = isinstance(expr, Named) or (isinstance(expr, Product) and expr.local)
        with_sums = not is_output and is_free(pattern)
        is_open = with_sums and not fixed and left < 2
        if not is_open:
            home, made = self._lying(entity, pattern, with_sums), entity.bases[0]
            if fixed:
                self._stay(made, home)
            else:
                self._move(entity, [made], home)
            entity.bases = [home]
        entity.left, entity.name = left, statement.name
        self._arrays[statement.name] = entity
        self._write(replace(statement, expr=taken), entity.bases[0], entity, is_open)

    def _moved(self, statement: Statement, use: Use, is_output: bool) -> None:
        """`B[I, J_X] = A`, or by a collective's name: the same array, which from here on lies there as well.

        `B = A` is another name for what lies there: nothing moves, and later statements read it by this name.
        """
        entity, expr = self._arrays[use.name], statement.expr
        self._arrays[statement.name] = entity
        if isinstance(expr, Use) and not is_output and _says_nothing(statement.pattern):
            to = self._asked(entity, use) or entity.bases[-1]
            entity.left -= 1
        else:
            to = self._lying(entity, statement.pattern)
            self._brought(expr, use, entity, to)
            entity.bases.append(to)
        entity.name, entity.dims = statement.name, statement.dims
        self._write(statement, to, entity)

    def _brought(self, expr: Expr, use: Use, entity: Entity, to: Lying) -> None:
        """The price of a move, of any kind or of the one that is named."""
        if isinstance(expr, Named):
            self._by_name(expr, entity, self._asked(entity, use) or entity.bases[-1], to)
            entity.left -= 1
        else:
            self._use(entity, use, to)

    def _write(self, statement: Statement, lying: Lying, entity: Entity, is_open: bool = False) -> None:
        self.lines.append(Line(statement, self._now, lying, entity, is_open=is_open))

    # --- operations

    def _operation(self, expr: Expr, name: str, pattern: Pattern) -> tuple[Expr, Entity]:
        """The nodes of an expression that is no array; it comes back with arrays as its operands."""
        found = tuple(self._operand(operand, name) for operand in operands(expr))
        if isinstance(expr, Named):
            return self._collective(expr, *found[0])
        assert isinstance(expr, Product | Call)
        search = self.problem.search(expr.dims, expr.dtype)
        entities = [entity for _, entity in found]
        ways, partial = local_ways(self.problem, expr, search, [(e.search, e.partial) for e in entities])
        made = Entity(search, name, expr.dims, expr.dtype, partial, 1)
        every = [entity.states.place for entity in (*entities, made)]
        table = [self._between(entity) for entity in (*entities, made)]
        ways = [
            (way, price)
            for way, price in ways
            if all(
                at in place and prices[place[at], place[at]] < NEVER
                for at, place, prices in zip((*way.at, way.result), every, table, strict=True)
            )
        ]
        ways += self._in_digits(expr, found, made, pattern, ways)
        node = self._node(len(ways))
        self._factor((node,), np.array([self.scale.of_price(price) for _, price in ways], dtype=np.int64))
        taken = replace(expr, operands=tuple(self._bare(use, entity) for use, entity in found))
        self._take(expr, found, ways, node)
        results = np.array([made.states.place[way.result] for way, _ in ways], dtype=np.int64)
        made.bases.append(Lying(node, results))
        return taken, made

    def _in_digits(
        self,
        expr: Product | Call,
        found: Sequence[tuple[Use, Entity]],
        made: Entity,
        pattern: Pattern,
        ways: list[tuple[Way, int]],
    ) -> list[tuple[Way, int]]:
        """Further ways of a product: from where its operands lie by what the text says to where the result may lie."""
        if self.digits is None or not isinstance(expr, Product) or expr.local:
            return []
        ends = list[End]()
        for use, entity in found:
            exact = None if use.pattern is None else use.pattern.exact
            lie = [lying.places for lying in (*entity.bases, *entity.asked.values())]
            places = [int(place) for some in lie for place in some] if exact is None else [entity.place(exact)]
            ends.append(End.of(entity.search, entity.states, self._between(entity), places))
        goals = made.choices(pattern, False, self._between(made))
        ends.append(End.of(made.search, made.states, self._between(made), [int(place) for place in goals]))
        return self.digits.of(expr, ends, ways)

    def _operand(self, expr: Expr, name: str) -> tuple[Use, Entity]:
        """An array as it is; of anything else a line of its own."""
        if isinstance(expr, Use):
            return expr, self._arrays[expr.name]
        inner = fresh(name, self._taken)
        taken, entity = self._operation(expr, inner, Pattern.free(len(expr.dims)))
        text = f"{inner}[{', '.join(expr.dims)}]"
        statement = Statement(inner, expr.dims, Pattern.free(len(expr.dims)), taken, expr.dtype, text, expr.span)
        self._write(statement, entity.bases[0], entity, is_open=True)
        return Use(inner, expr.dims, None, expr.dtype, expr.span), entity

    def _take(
        self, expr: Product | Call, found: tuple[tuple[Use, Entity], ...], ways: list[tuple[Way, int]], node: int
    ) -> None:
        """The price of each operand's coming to lie as each way takes it."""
        before: list[tuple[Entity, Lying]] = []
        for at, ((use, entity), operand) in enumerate(zip(found, operands(expr), strict=True)):
            to = Lying(node, np.array([entity.states.place[way.at[at]] for way, _ in ways], dtype=np.int64))
            others = [lying for other, lying in before if other is entity]
            if isinstance(expr, Product) and expr.local and isinstance(operand, Use):
                entity.left -= 1
                self._stay(self._asked(entity, use) or entity.bases[-1], to)
            else:
                self._use(entity, use, to, others)
            before.append((entity, to))
        self.taken += before

    def _collective(self, named: Named, use: Use, entity: Entity) -> tuple[Expr, Entity]:
        """A collective by its name within an expression, or of an expression."""
        source = self._asked(entity, use) or entity.bases[-1]
        if not isinstance(named.operand, Use):
            source = self._lying(entity, Pattern.free(len(named.dims)), with_sums=True)
            self._move(entity, entity.sources, source)
        made = Entity(entity.search, "", named.dims, named.dtype, entity.partial, 1)
        to = self._lying(made, Pattern.free(len(named.dims)), with_sums=True)
        self._by_name(named, entity, source, to)
        made.bases.append(to)
        return replace(named, operand=self._bare(use, entity)), made

    def _bare(self, use: Use, entity: Entity) -> Use:
        """A use that asks for what is so asks for nothing."""
        exact = None if use.pattern is None else use.pattern.exact
        return replace(use, pattern=None) if exact is None or entity.is_at(exact) else use

    # --- where arrays lie

    def _use(self, entity: Entity, use: Use, to: Lying, others: list[Lying] | None = None) -> None:
        """The price of an array's coming to lie as a node says, from where it is, or was moved to for `others`."""
        entity.left -= 1
        point = self._asked(entity, use)
        if point is not None:
            self._move(entity, [point], to)
        else:
            if entity.gains_by_a_copy:
                self._keep(entity)
            self._move(entity, entity.sources, to, others)
        entity.is_used = True

    def _asked(self, entity: Entity, use: Use) -> Lying | None:
        """The sharding that a use asks for, unless the array is there already; later uses may begin there."""
        exact = None if use.pattern is None else use.pattern.exact
        if exact is None or entity.is_at(exact):
            return None
        place = entity.place(exact)
        if place not in entity.asked:
            point = Lying(self._node(1), np.array([place], dtype=np.int64))
            self._move(entity, entity.sources, point)
            entity.asked[place] = point
        return entity.asked[place]

    def _keep(self, entity: Entity) -> None:
        """A copy, for this use and later ones."""
        copy = self._lying(entity, Pattern.free(len(entity.dims)), with_sums=True)
        self._move(entity, entity.sources, copy)
        entity.copy = copy
        name, dims = fresh(entity.name, self._taken), entity.dims
        use = Use(entity.name, dims, None, entity.dtype)
        kept = Statement(name, dims, Pattern.free(len(dims)), use, entity.dtype, name)
        self.lines.append(Line(kept, self._now, copy, entity, copy_of=entity.name))

    def _move(self, entity: Entity, sources: list[Lying], to: Lying, others: list[Lying] | None = None) -> None:
        """The table of moving from the cheapest of some places to another."""
        table = self._between(entity)
        given = [source for source in sources if source.is_given]
        open_ones = [source for source in sources if not source.is_given]
        while len(open_ones) > 1 and self._size([*open_ones, to]) > MOST_TOGETHER:
            open_ones.pop(0)
        found = np.full(len(to.places), NEVER, dtype=np.int64)
        for source in given:
            found = np.minimum(found, table[source.places[0], to.places])
        for other in others or ():
            found = np.minimum(found, table[other.places, to.places])
        for at, source in enumerate(open_ones):
            shape = [1] * len(open_ones)
            shape[at] = len(source.places)
            found = np.minimum(found, table[np.ix_(source.places, to.places)].reshape(*shape, len(to.places)))
        self._factor((*(source.node for source in open_ones), to.node), found)

    def _stay(self, made: Lying, to: Lying) -> None:
        """What is not to be moved."""
        if made.node != to.node:
            alike = made.places[:, None] == to.places[None, :]
            self._factor((made.node, to.node), np.where(alike, 0, NEVER).astype(np.int64))

    def _by_name(self, named: Named, entity: Entity, source: Lying, to: Lying) -> None:
        """The prices of the moves that a collective's name allows."""
        every, found = entity.states, np.full((len(source.places), len(to.places)), NEVER, dtype=np.int64)
        column = {int(place): at for at, place in enumerate(to.places)}
        for row, place in enumerate(source.places):
            for target, price in named_moves(named, every.numbers[place], entity.search):
                at = column.get(every.place.get(target, -1))
                if at is not None:
                    found[row, at] = min(int(found[row, at]), self.scale.of_price(price))
        self._factor((source.node, to.node), found)

    # --- nodes and tables

    def _lying(self, entity: Entity, pattern: Pattern, with_sums: bool = False) -> Lying:
        """A node with a state for each sharding that matches a pattern."""
        places = entity.choices(pattern, with_sums, self._between(entity))
        return Lying(self._node(len(places)), places)

    def _node(self, size: int) -> int:
        if not size:
            raise TooWide
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _size(self, lying: list[Lying]) -> int:
        return int(np.prod([len(each.places) for each in lying]))

    def _factor(self, nodes: tuple[int, ...], table: Table) -> None:
        self.factors.append(Factor(nodes, np.ascontiguousarray(table)))

    def _between(self, entity: Entity) -> Table:
        search: Search = entity.search
        key = (search.shape, search.total_bytes)
        if key not in self.prices:
            self.prices[key] = between(search, self.scale)
        return self.prices[key]


def _says_nothing(pattern: Pattern) -> bool:
    """Whether the text leaves it open how an array lies: of `T[]` there is one way."""
    return pattern.exact is None and is_free(pattern)
