"""Where an array of a program may lie, and by which node of the graph that is chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import assert_never

import numpy as np

from shardc.ir.calls import linear_operands
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use, uses
from shardc.ir.program import For, Program, Statement, bindings_of, read_by
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.paths.search import Search
from shardc.planner.whole.prices import NEVER, Places, PriceArray, States, states
from shardc.planner.whole.spaces import Within


@dataclass(frozen=True, slots=True)
class Lying:
    """A node by which an array lies: of each of its states the sharding."""

    node: int
    places: Places
    times: int  # how often a move from here is done: in a loop once for each trip
    more: PriceArray | None = None  # what it costs besides to come to each place by a move: an operation takes longer,
    is_output: bool = False  # or by a gather: what one leaves is copied to become an output
    to_lie: PriceArray | None = None  # what it costs besides to be moved from each place: it lies nowhere else

    @property
    def is_given(self) -> bool:
        return len(self.places) == 1


@dataclass(slots=True)
class Entity:
    """An array, whatever names it has: where it lies as the text says, and the last copy that was kept."""

    search: Search
    name: str  # in the program that is planned
    dims: tuple[str, ...]
    dtype: DType
    partial: frozenset[str]  # the axes over which it may be unreduced
    left: int  # uses to come
    within: Within  # the shardings that are looked at
    bases: list[Lying] = field(default_factory=list)
    asked: dict[int, Lying] = field(default_factory=dict)  # where uses have asked for it, by place
    copy: Lying | None = None
    is_used: bool = False
    maker: Lying | None = None  # as what made it left it, if it is brought to a home
    takes: tuple[
        tuple[Entity, Lying], ...
    ] = ()  # what made it, by the states of one node; plainly by the first so many
    plain: int = 0

    @property
    def states(self) -> States:
        return states(self.search.graph, self.search.model, self.search.array, self.within)

    @property
    def kind(self) -> Hashable:
        """What its states and the prices between them are told by."""
        return self.search.shape, self.search.total_bytes, self.search.model, self.within

    @property
    def is_everywhere(self) -> bool:
        """Whether by what the text says each device has all of it."""
        return self.is_at(Sharding.replicated(len(self.dims)))

    @property
    def sources(self) -> list[Lying]:
        return [*self.bases, *self.asked.values(), *([] if self.copy is None else [self.copy])]

    @property
    def times(self) -> int:
        """How often what is done with it is done."""
        return self.bases[-1].times

    @property
    def gains_by_a_copy(self) -> bool:
        """Whether a copy may serve this use and a later one: an open home is such a copy for the first."""
        return self.left > 0 and (self.is_used or self.bases[0].is_given)

    def place(self, sharding: Sharding) -> int:
        return self.states.place[self.search.graph.number(sharding)]

    def is_at(self, sharding: Sharding) -> bool:
        """Whether it lies so by what the text says."""
        return any(base.is_given and base.places[0] == self.place(sharding) for base in self.bases)

    def choices(self, pattern: Pattern, with_sums: bool, table: PriceArray, idle: Axes = ()) -> Places:
        """The places of the shardings that match a pattern and that the array can be in. Of idle axes, if there are
        any, the pattern says nothing."""
        exact, around = pattern.exact, self.search.graph
        if exact is not None and not idle:
            return np.array([self.place(exact)], dtype=np.int64)
        every = enumerate(self.states.numbers)
        found = [
            place
            for place, number in every
            if table[place, place] < NEVER and self._fits(pattern, around.shardings[number], with_sums, idle)
        ]
        return np.array(found, dtype=np.int64)

    def _fits(self, pattern: Pattern, sharding: Sharding, with_sums: bool, idle: Axes) -> bool:
        if with_sums:
            return sharding.unreduced <= self.partial
        return pattern.matches(_without(sharding, idle))


def _without(sharding: Sharding, gone: Axes) -> Sharding:
    if not gone:
        return sharding
    kept = tuple(tuple(axis for axis in axes if axis not in gone) for axes in sharding.dims)
    return Sharding(kept, sharding.unreduced.difference(gone), sharding.reduction)


def is_free(pattern: Pattern) -> bool:
    """Whether the text says nothing of how an array lies."""
    return not pattern.unreduced and all(axes is None for axes in pattern.dims)


def says_nothing(pattern: Pattern) -> bool:
    """The same, where there is something to say: of `T[]` there is one way."""
    return pattern.exact is None and is_free(pattern)


def use_counts(program: Program) -> Counter[str | tuple[int, str]]:
    """How often each array is used: inputs by name, others by the number of their statement and their name.

    A moved array stays the same one; for a loop, which may use it in each trip, an array counts twice.
    """
    first: dict[str, str | tuple[int, str]] = {array.name: array.name for array in program.inputs}
    found = Counter[str | tuple[int, str]]()
    for number, each in enumerate(program.statements):
        for name in read_by(each):
            found[first[name]] += 2 if isinstance(each, For) else 1
        moved = moved_by(each.expr) if isinstance(each, Statement) else None
        first |= {made.name: (number, made.name) if moved is None else first[moved.name] for made in bindings_of(each)}
    return found


def is_accumulated(body: Program, name: str) -> bool:
    """Whether all that a trip does with what it carries under this name is linear: `G = G + T`, but not
    `x = x + relu(x)`. Then it may be carried as partial sums, which are reduced once, after the last trip."""
    of = {name}
    for each in body.statements:
        if isinstance(each, For):
            held = of.intersection(read_by(each))
            if not all(one in each.carried and is_accumulated(body.inside(each), one) for one in held):
                return False
            continue
        reads = of.intersection(read_by(each))
        if reads and not _is_linear(each.expr, of):
            return False
        of = of | {each.name} if reads else of - {each.name}
    return True


def _is_linear(expr: Expr, of: set[str]) -> bool:
    """Whether an expression is linear in these arrays, together."""
    match expr:
        case Use():
            return True
        case Named():
            return False
        case Call(operands=below):
            linear = linear_operands(expr.function, expr.numbers)
        case Product(operands=below):
            linear = frozenset(range(len(below)))
        case _:
            assert_never(expr)
    holds = [place for place, each in enumerate(below) if any(use.name in of for use in uses(each))]
    if isinstance(expr, Product) and len(holds) > 1:
        return False
    return all(place in linear and _is_linear(below[place], of) for place in holds)


def moved_by(expr: object) -> Use | None:
    """The array that a statement only moves, by a reshard or a collective."""
    match expr:
        case Use():
            return expr
        case Named(operand=Use() as use):
            return use
        case _:
            return None


def fresh(base: str, taken: set[str]) -> str:
    """A name that nothing bears."""
    names: Iterator[str] = (f"{base[:58]}_{number}" for number in count(1))
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name


@dataclass(frozen=True, slots=True)
class Line:
    """A statement of the program to be planned, and by which node the sharding of what it binds is chosen.

    `number` is the statement as written; a copy, and an expression within a statement, are lines of their own. What is
    open lies as its way leaves it, for the one line that uses it.
    """

    statement: Statement
    number: int
    lying: Lying
    entity: Entity
    copy_of: str | None = None
    is_open: bool = False


def kept(entity: Entity, copy: Lying, number: int, taken: set[str]) -> Line:
    """A line that keeps a copy of an array, by a new name."""
    name, dims = fresh(entity.name, taken), entity.dims
    use = Use(entity.name, dims, None, entity.dtype)
    statement = Statement(name, dims, Pattern.free(len(dims)), use, entity.dtype, name)
    return Line(statement, number, copy, entity, copy_of=entity.name)


@dataclass(frozen=True, slots=True)
class LoopLines:
    """The same of a loop: the lines of its body, and where what it reads of outside lies first."""

    loop: For
    number: int
    lines: list[Line | LoopLines]
    given: tuple[tuple[Entity, Lying], ...]


def every_line(lines: Sequence[Line | LoopLines]) -> Iterator[Line]:
    for line in lines:
        if isinstance(line, LoopLines):
            yield from every_line(line.lines)
        else:
            yield line
