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

A loop's body is part of the same graph, its tables times the trips; what is carried has one node, which the first trip
is given, each trip begins at, and the last leaves. What is done to fixed arrays alone is done once, before the loop.

    for L { x = relu(x · W) }      x before ── carried ══ way of x · W ══ way of relu ══ carried        ══ in each trip
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use, operands
from shardc.ir.program import Binding, For, Input, Program, Statement, bindings_of, every_statement
from shardc.planner.problem import Problem
from shardc.planner.whole.arrays import (
    Entity,
    Line,
    LoopLines,
    Lying,
    fresh,
    is_accumulated,
    is_free,
    kept,
    moved_by,
    says_nothing,
    use_counts,
)
from shardc.planner.whole.digits import DigitWays, End
from shardc.planner.whole.local import Ways
from shardc.planner.whole.nodes import LATENT, Known, Nodes, repeated
from shardc.planner.whole.prices import Scale
from shardc.planner.whole.spaces import Spaces


@dataclass(slots=True)
class FactorGraph:
    """The nodes of one program, and the lines to be planned once each node has its state."""

    problem: Problem  # inside a loop that of its body
    nodes: Nodes
    digits: DigitWays | None = None  # where products are to be looked at in digits, too
    lines: list[Line | LoopLines] = field(default_factory=list)
    given: dict[str, tuple[Entity, Lying]] = field(default_factory=dict)
    taken: list[tuple[Entity, Lying]] = field(default_factory=list)  # what operations take
    _arrays: dict[str, Entity] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _now: int = 0
    _times: int = 1  # how often what is looked at is done

    @classmethod
    def of(
        cls, problem: Problem, scale: Scale, spaces: Spaces, known: Known, digits: DigitWays | None = None
    ) -> FactorGraph:
        graph, program = cls(problem, Nodes(scale, spaces, known), digits), problem.program
        counts = use_counts(program)
        graph._taken = {array.name for array in program.inputs} | {made.name for made in every_statement(program)}
        for array in program.inputs:
            graph._give(array, counts[array.name])
        graph._block(program, {})
        return graph

    @property
    def scale(self) -> Scale:
        return self.nodes.scale

    # --- statements

    def _give(self, array: Input, left: int) -> None:
        search, within = self.problem.search(array), self.nodes.spaces.within(array.dims)
        entity = Entity(search, array.name, array.dims, array.dtype, array.pattern.unreduced, left, within)
        entity.bases.append(self.nodes.lying(entity, array.pattern, 1))
        self.given[array.name] = entity, entity.bases[0]
        self._arrays[array.name] = entity

    def _block(self, program: Program, homes: dict[str, Lying]) -> None:
        """A program's statements, or a loop's; `homes` are where its results lie that have a node already."""
        counts, outputs = use_counts(program), program.leaving
        for number, each in enumerate(program.statements):
            self._now = number
            own = {bound.name for bound in bindings_of(each) if (number, bound.name) in outputs}
            left = {bound.name: counts[number, bound.name] for bound in bindings_of(each)}
            if isinstance(each, For):
                self._loop(program, each, left, own, {name: homes[name] for name in own & homes.keys()})
            else:
                home = homes.get(each.name) if own else None
                self._state(each, bool(own), left[each.name], home)

    def _state(self, statement: Statement, is_output: bool, left: int, home: Lying | None) -> None:
        expr, pattern = statement.expr, statement.pattern
        moved = moved_by(expr)
        if moved is not None:
            self._moved(statement, moved, is_output, home)
            return
        taken, entity = self._operation(expr, statement.name, pattern)
        fixed = isinstance(expr, Named) or (isinstance(expr, Product) and expr.local)
        with_sums = not is_output and is_free(pattern)
        is_open = with_sums and not fixed and left < 2
        if not is_open:
            made = entity.bases[0]
            if home is None:  # what the text says of an array on the way it says of the axes that it names
                idle = () if is_output or fixed else self.nodes.spaces.nowhere
                home = self.nodes.lying(entity, pattern, made.times, with_sums, idle, is_output)
            if fixed:
                self.nodes.stay(made, home)
            else:
                self.nodes.move(entity, [made], home)
            entity.maker, entity.bases = made, [home]
        entity.left, entity.name = left, statement.name
        self._arrays[statement.name] = entity
        self._write(replace(statement, expr=taken), entity.bases[0], entity, is_open)

    def _moved(self, statement: Statement, use: Use, is_output: bool, home: Lying | None) -> None:
        """`B[I, J_X] = A`, or by a collective's name: the same array, which from here on lies there as well.

        `B = A` is another name for what lies there: nothing moves, and later statements read it by this name.
        """
        entity, expr = self._arrays[use.name], statement.expr
        self._arrays[statement.name] = entity
        if isinstance(expr, Use) and not is_output and says_nothing(statement.pattern):
            to = self._asked(entity, use) or entity.bases[-1]
            entity.left -= 1
        else:
            times = self._times if isinstance(expr, Named) else entity.times
            to = home or self.nodes.lying(entity, statement.pattern, times, is_output=is_output)
            self._brought(expr, use, entity, to)
            entity.bases.append(to)
        entity.name, entity.dims = statement.name, statement.dims
        self._write(statement, to, entity)

    def _brought(self, expr: Expr, use: Use, entity: Entity, to: Lying) -> None:
        """The price of a move, of any kind or of the one that is named."""
        if isinstance(expr, Named):
            self.nodes.by_name(expr, entity, self._asked(entity, use) or entity.bases[-1], to)
            entity.left -= 1
        else:
            self._use(entity, use, to)

    def _write(self, statement: Statement, lying: Lying, entity: Entity, is_open: bool = False) -> None:
        self.lines.append(Line(statement, self._now, lying, entity, is_open=is_open))

    # --- loops

    def _loop(
        self, program: Program, loop: For, left: dict[str, int], outputs: set[str], homes: dict[str, Lying]
    ) -> None:
        """A loop: its body among the nodes, and its results."""
        inside, around = program.inside(loop), (self.problem, self._arrays, self.lines, self._now, self._times)
        self._times *= self.problem.program.shape((loop.dim,))[0]
        counts = use_counts(inside)
        sums = {name for name in loop.carried if is_accumulated(inside, name)}
        carried = {
            bound.name: homes.get(bound.name) or self._carried(bound, bound.name in sums, bound.name in outputs)
            for bound in bindings_of(loop)
            if bound.name in loop.carried
        }
        arrays, lines = dict(self._arrays), list[Line | LoopLines]()
        given = [self._within(loop, array, counts[array.name], carried, sums) for array in loop.takes]
        self._arrays = {array.name: entity for array, entity in zip(loop.takes, given, strict=True)}
        self.problem, self.lines = self.problem.inside(inside), lines
        self._block(inside, carried)
        row = {bound.name: bound.dims for each in loop.body for bound in bindings_of(each)}
        left_by, (self.problem, _, self.lines, self._now, self._times) = self._arrays, around
        self._arrays = arrays
        for bound in bindings_of(loop):
            entity, lying = left_by[bound.name], left_by[bound.name].bases[-1]
            after = self._like(entity, bound.name, bound.dims, left[bound.name])
            after.bases = [
                carried.get(bound.name) or self.nodes.rows((entity, row[bound.name]), lying, after, loop.dim)
            ]
            after.bases = [replace(base, times=self._times) for base in after.bases]
            self._arrays[bound.name] = after
        self.lines.append(LoopLines(loop, self._now, lines, tuple((one, one.bases[0]) for one in given)))

    def _carried(self, bound: Binding, is_sum: bool, is_output: bool) -> Lying:
        """The one sharding of what is carried, to which it is brought before the loop: of what trips only add to, any
        partial sums."""
        entity = self._arrays[bound.name]
        carried = replace(entity, partial=self._partial(entity, is_sum))
        with_sums = not is_output and is_free(bound.pattern)
        found = self.nodes.lying(carried, bound.pattern, self._times, with_sums)
        self.nodes.move(entity, entity.sources, found, may_mask=is_sum)
        return found

    def _partial(self, entity: Entity, is_sum: bool) -> frozenset[str]:
        return frozenset(self.problem.pool) if is_sum else entity.partial

    def _within(self, loop: For, array: Input, left: int, carried: dict[str, Lying], sums: set[str]) -> Entity:
        """What a body has of an array around it."""
        outer = self._arrays[array.name]
        outer.left, outer.is_used = outer.left - 1, True
        if array.name in loop.fixed:
            return replace(outer, name=array.name, left=left, bases=list(outer.bases), asked=dict(outer.asked))
        found = self._like(outer, array.name, array.dims, left)
        if array.name in carried:
            found.bases, found.partial = [carried[array.name]], self._partial(outer, array.name in sums)
        else:
            dims = next(scanned.dims for scanned in loop.scanned if scanned.name == array.name)
            whole = self.nodes.with_all_of(loop.dim, outer, dims)
            if len(array.dims) < 2 and found.search.total_bytes <= LATENT and not outer.is_everywhere:
                whole.append(self._keep(outer, Pattern.free(len(array.dims)).along(dims.index(loop.dim))))
            found.bases = [self.nodes.rows((outer, dims), base, found, loop.dim) for base in whole]
        found.bases = [replace(base, times=self._times) for base in found.bases]
        return found

    def _like(self, entity: Entity, name: str, dims: tuple[str, ...], left: int) -> Entity:
        """An array of the same kind, with other dims."""
        shape, is_rounded = self.problem.program.shape(dims), entity.search.model is not self.problem.model
        search = self.problem.search_of(shape, entity.dtype, is_rounded)
        return Entity(search, name, dims, entity.dtype, entity.partial, left, self.nodes.spaces.within(dims))

    # --- operations

    def _operation(self, expr: Expr, name: str, pattern: Pattern) -> tuple[Expr, Entity]:
        """The nodes of an expression that is no array; it comes back with arrays as its operands."""
        found = tuple(self._operand(operand, name) for operand in operands(expr))
        if isinstance(expr, Named):
            return self._collective(expr, *found[0])
        assert isinstance(expr, Product | Call)
        search = self.problem.search(expr)
        entities = [entity for _, entity in found]
        local = self.nodes.ways(self.problem, expr, search, entities)
        made = Entity(search, name, expr.dims, expr.dtype, local.partial, 1, self.nodes.spaces.within(expr.dims))
        plain = self.nodes.possible(local.ways, (*entities, made))
        ways = self._in_digits(expr, found, made, pattern, plain)
        node, times = self.nodes.node(len(ways.prices)), max((entity.times for entity in entities), default=1)
        self.nodes.add((node,), repeated(ways.prices, times))
        taken = replace(expr, operands=tuple(self._bare(use, entity) for use, entity in found))
        made.takes, made.plain = self._take(expr, found, ways, node), len(plain.prices)
        made.bases.append(Lying(node, ways.at[-1], times, to_lie=ways.to_lie if ways.to_lie.any() else None))
        return taken, made

    def _in_digits(
        self,
        expr: Product | Call,
        found: Sequence[tuple[Use, Entity]],
        made: Entity,
        pattern: Pattern,
        ways: Ways,
    ) -> Ways:
        """With further ways of a product: from where its operands lie by what the text says to where the result may
        lie."""
        if self.digits is None or not isinstance(expr, Product) or expr.local:
            return ways
        ends = list[End]()
        for use, entity in found:
            exact = None if use.pattern is None else use.pattern.exact
            lie = [lying.places for lying in (*entity.bases, *entity.asked.values())]
            places = [int(place) for some in lie for place in some] if exact is None else [entity.place(exact)]
            ends.append(End.of(entity.search, entity.states, self.nodes.between(entity), places))
        goals = made.choices(pattern, False, self.nodes.between(made))
        ends.append(End.of(made.search, made.states, self.nodes.between(made), [int(place) for place in goals]))
        found_ways = self.digits.of(self.problem, expr, ends, ways)
        return ways.beside(Ways.of(found_ways, [end.states for end in ends], self.scale)) if found_ways else ways

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
        self, expr: Product | Call, found: tuple[tuple[Use, Entity], ...], ways: Ways, node: int
    ) -> tuple[tuple[Entity, Lying], ...]:
        """The price of each operand's coming to lie as each way takes it."""
        before: list[tuple[Entity, Lying]] = []
        for at, ((use, entity), operand) in enumerate(zip(found, operands(expr), strict=True)):
            to = Lying(node, ways.at[at], entity.times, ways.more(at))
            others = [lying for other, lying in before if other is entity]
            if isinstance(expr, Product) and expr.local and isinstance(operand, Use):
                entity.left -= 1
                self.nodes.stay(self._asked(entity, use) or entity.bases[-1], to)
            else:
                self._use(entity, use, to, others, may_mask=isinstance(expr, Call))
                self.nodes.at_home(entity, to)
            before.append((entity, to))
        self.taken += before
        return tuple(before)

    def _collective(self, named: Named, use: Use, entity: Entity) -> tuple[Expr, Entity]:
        """A collective by its name within an expression, or of an expression."""
        source, free = self._asked(entity, use) or entity.bases[-1], Pattern.free(len(named.dims))
        if not isinstance(named.operand, Use):
            source = self.nodes.lying(entity, free, entity.times, with_sums=True)
            self.nodes.move(entity, entity.sources, source)
        made = Entity(entity.search, "", named.dims, named.dtype, entity.partial, 1, entity.within)
        to = self.nodes.lying(made, free, self._times, with_sums=True)
        self.nodes.by_name(named, entity, source, to)
        made.bases.append(to)
        return replace(named, operand=self._bare(use, entity)), made

    def _bare(self, use: Use, entity: Entity) -> Use:
        """A use that asks for what is so asks for nothing."""
        exact = None if use.pattern is None else use.pattern.exact
        return replace(use, pattern=None) if exact is None or entity.is_at(exact) else use

    # --- where arrays lie

    def _use(self, entity: Entity, use: Use, to: Lying, others: Sequence[Lying] = (), may_mask: bool = False) -> None:
        """The price of an array's coming to lie as a node says, from where it is, or was moved to for `others`."""
        entity.left -= 1
        point = self._asked(entity, use)
        if point is not None:
            self.nodes.move(entity, [point], to, may_mask=may_mask)
        else:
            if entity.gains_by_a_copy:
                self._keep(entity)
            self.nodes.move(entity, entity.sources, to, others, may_mask)
        entity.is_used = True

    def _asked(self, entity: Entity, use: Use) -> Lying | None:
        """The sharding that a use asks for, unless the array is there already; later uses may begin there."""
        exact = None if use.pattern is None else use.pattern.exact
        if exact is None or entity.is_at(exact):
            return None
        place = entity.place(exact)
        if place not in entity.asked:
            point = Lying(self.nodes.node(1), np.array([place], dtype=np.int64), entity.times)
            self.nodes.move(entity, entity.sources, point)
            entity.asked[place] = point
        return entity.asked[place]

    def _keep(self, entity: Entity, pattern: Pattern | None = None) -> Lying:
        """A copy, for this use and later ones; for a loop one of which each device has all rows."""
        wanted = Pattern.free(len(entity.dims)) if pattern is None else pattern
        copy = self.nodes.lying(entity, wanted, entity.times, with_sums=pattern is None)
        self.nodes.move(entity, entity.sources, copy)
        entity.copy = copy
        self.lines.append(kept(entity, copy, self._now, self._taken))
        return copy
