"""What all nodes of a program's expressions share while it is planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from shardc.cost.model import CostModel
from shardc.cost.rate import picoseconds
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Call, Expr, Product, Use
from shardc.ir.functions import FUNCTIONS
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Loop, Op, Rule, ValueNumber
from shardc.ir.program import Input, Program, Statement, bindings_of
from shardc.ir.sharding import Array, Axes, Sharding
from shardc.lowering.loops import Account, account_of
from shardc.lowering.streams import Loops, Passes, Sources, Streams
from shardc.planner.budget import QUICK, Meter
from shardc.planner.idle import idle_together
from shardc.planner.options import CHEAPEST, Method, Objective, Options
from shardc.planner.paths.graph import Graph, sharding_graph
from shardc.planner.paths.search import Search
from shardc.planner.products.ways import Way, Work

# A shape, a type, whether it is sent as another, where it lies.
_Searched: TypeAlias = tuple[tuple[int, ...], DType, bool, frozenset[Sharding]]
Seen: TypeAlias = tuple[tuple[str, ...], ...]  # as of Step
# An operation, its operands, what it leaves.
StepKey: TypeAlias = tuple[Op, tuple[ValueNumber, ...], Seen, tuple[str, ...], Sharding, DType]
_Asked: TypeAlias = tuple[Product, tuple[frozenset[str], ...]]  # a product, and over what its operands may be unreduced


@dataclass(frozen=True, slots=True)
class Environment:
    """What is there before a statement: the values so far, of each name those that hold it, and which are one array."""

    values: tuple[Array, ...] = ()
    held: Mapping[str, tuple[ValueNumber, ...]] = field(default_factory=dict)  # per name, the values that hold it
    # Per value, all that are the same array.
    alike: Mapping[ValueNumber, tuple[ValueNumber, ...]] = field(default_factory=dict)

    def with_value(self, array: Array) -> Environment:
        """With a new value that its name holds first."""
        own = (ValueNumber(len(self.values)), *self.held.get(array.name, ()))
        return Environment((*self.values, array), {**self.held, array.name: own}, self.alike)

    def holding_first(self, name: str, value: ValueNumber) -> Environment:
        return self.holding(name, (value, *self.held.get(name, ())))

    def holding(self, name: str, values: tuple[ValueNumber, ...]) -> Environment:
        """With a name that holds these values and no others."""
        return Environment(self.values, {**self.held, name: values}, self.alike)

    def same(self, before: ValueNumber, after: ValueNumber) -> Environment:
        """With a value that is the same array as another."""
        alike = (*self.alike.get(before, (before,)), after)
        return Environment(self.values, self.held, {**self.alike, **dict.fromkeys(alike, alike)})


def key_of(op: Op, operands: tuple[ValueNumber, ...], seen: Seen, result: Array) -> StepKey:
    """Equal for steps that leave the same: they are done once, as compilers do it."""
    return op, operands, seen, result.dims, result.sharding, result.dtype


def is_done_again(op: Op, rule: Rule) -> bool:
    """Whether a step stands as often as it is asked for: what the text names, and loops, which are not compared."""
    return rule.is_named or isinstance(op, Loop)


@dataclass(slots=True)
class Scratch:
    """What one call of the planner writes down on its way, and nobody reads after it: the work that it counts, and what
    it need not work out twice."""

    meter: Meter = field(default_factory=Meter.unlimited)
    searches: dict[_Searched, Search] = field(default_factory=dict)
    products: dict[_Asked, list[tuple[Way, int]]] = field(default_factory=dict)  # priced so far


def _is_in_another_order(product: Product) -> bool:
    """Whether it lays one array with its dims in another order, and does no more."""
    dims = product.operands[0].dims
    return len(product.operands) == 1 and {*dims} == {*product.dims} and dims != product.dims


@dataclass(frozen=True)
class Problem:
    """A program with its prices, the axes that may move, and what is there so far."""

    program: Program
    model: CostModel
    objective: Objective
    pool: Axes
    options: Options = CHEAPEST
    environment: Environment = Environment()
    scratch: Scratch = field(default_factory=Scratch, compare=False, repr=False)
    as_one: Axes | None = None  # the axes that move as one, where a program around this one says so

    @cached_property
    def together(self) -> Axes:
        """Axes of the pool that move as one."""
        return idle_together(self.program, self.pool) if self.as_one is None else self.as_one

    @cached_property
    def account(self) -> Account:
        """What its operations read and write; which program it is takes a while to see."""
        return account_of(self.program)

    @property
    def mesh(self) -> Mesh:
        return self.program.mesh

    @property
    def meter(self) -> Meter:
        return self.scratch.meter

    @property
    def limit(self) -> int | None:
        """The highest price that one product or reshard may have."""
        below = self.options.below
        return None if below is None else self.objective.below(below)

    def passes(self, call: Call) -> Passes:
        """How often a function over dims goes through its operand."""
        if self.model.alone.measured is None or not FUNCTIONS[call.function].through:
            return Passes()
        return self.account.passes(call)

    def loops(self, call: Call) -> Loops:
        """What is known of the loops of a function."""
        passes = self.passes(call)
        lies = self.account.type_of(call.operands[0]) if any(passes) else None
        if self.model.alone.measured is None or not FUNCTIONS[call.function].through:
            return Loops(passes, self.streams(call), lies)
        left = self.account.passes(call, is_left=True).written - passes.written
        return Loops(passes, None, lies, self.account.passes(call, is_sent=True), Passes(written=left))

    def given(self, environment: Environment) -> Problem:
        """The same problem, where this is there."""
        return replace(self, environment=environment, as_one=self.together)

    def afresh(self, meter: Meter | None = None) -> Problem:
        """The same problem with no limit on its price, and nothing searched yet."""
        options = replace(self.options, below=None, most_wire=None)
        return replace(self, options=options, scratch=Scratch(self.meter if meter is None else meter))

    def over(self, pool: Axes) -> Problem:
        """The same problem, moving only these axes."""
        return replace(self.afresh(), pool=pool, as_one=None)

    def within(self, body: Program) -> Problem:
        """The problem of a loop's body, which is searched as this one is."""
        found = self.afresh()
        options = replace(found.options, leaner=False)
        return replace(found, program=body, options=options, environment=Environment(), as_one=self.together)

    def inside(self, body: Program) -> Problem:
        """The same problem, where a loop's body is looked at: by its text it is told what its operations read and
        write."""
        return replace(self, program=body, as_one=self.together)

    def by_routes(self) -> Problem:
        """The same problem, where there is no time for a search."""
        found = self.afresh(Meter(QUICK, QUICK, is_soft=True))
        return replace(found, options=replace(found.options, method=Method.ROUTES))

    def work(self, product: Product) -> Work:
        """The arithmetic of a product, and what of it passes through memory."""
        return replace(Work.of(self.program, product), streams=self.streams(product))

    def streams(self, expr: Product | Call) -> Streams | None:
        """What of an operation passes through memory, where that is known. Of a chip alone: what a function makes is
        written in another order of dims as it is made, which takes as little as the function."""
        if self.model.alone.measured is not None:
            return self.account.streams(expr)
        if not isinstance(expr, Product) or not _is_in_another_order(expr):
            return None
        (operand,) = expr.operands
        made = self.bound.get(operand.name) if isinstance(operand, Use) else operand
        return Streams((Sources(operand.dtype, ()),), written=False) if isinstance(made, Call) else None

    @cached_property
    def bound(self) -> Mapping[str, Expr]:
        """What each name is that is bound once, and not given."""
        given = {array.name for array in self.program.inputs}
        every = [each for each in self.program.statements if isinstance(each, Statement)]
        times = Counter(made.name for each in self.program.statements for made in bindings_of(each))
        return {each.name: each.expr for each in every if times[each.name] == 1 and each.name not in given}

    def product_price(self, work: Work, parts: int, read: Sequence[int], written: int) -> int:
        """Of a local product alone, shared by so many devices: operands and a result of so many bytes on each."""
        seconds = self.model.alone.product_s(work.amount(work.total // parts, read, written))
        return self.objective.price(picoseconds(seconds), 0)

    def way_price(self, work: Work, way: Way, operands: Sequence[Search], result: Search) -> int:
        """The same of a way, whose operands and result are the arrays of these searches."""
        read = [search.local_bytes(number) for search, number in zip(operands, way.at, strict=True)]
        return self.product_price(work, way.parts, read, result.local_bytes(way.result))

    def graph(self, rank: int) -> Graph:
        return sharding_graph(self.mesh, rank, self.pool, self.together, self.options.is_typed)

    def search(self, array: Expr | Input) -> Search:
        return self.search_of(self.program.shape(array.dims), array.dtype, self.is_rounded(array))

    def is_rounded(self, array: Expr | Input) -> bool:
        """Whether it is searched as what is sent in half the bytes."""
        if array.dtype.name != "f32" or self.model.alone.measured is None:
            return False
        from shardc.lowering.read import read_of  # only of a slice it is known

        return read_of(self.program).is_rounded(array)

    @property
    def narrow(self) -> CostModel:
        """The prices of what is sent in half the bytes."""
        from shardc.cost.cheaper import narrow

        return narrow(self.model)

    def search_of(self, shape: tuple[int, ...], dtype: DType, is_rounded: bool) -> Search:
        given = frozenset[Sharding]() if self.options.largest_step is None else self._lies(shape, dtype)
        key, known = (shape, dtype, is_rounded, given), self.scratch.searches
        if key not in known:
            graph, model = self.graph(len(shape)), self.narrow if is_rounded else self.model
            known[key] = Search(graph, shape, dtype, model, self.objective, self.options, self.meter, given)
        return known[key]

    def _lies(self, shape: tuple[int, ...], dtype: DType) -> frozenset[Sharding]:
        """How the arrays of this shape and type lie that are there."""
        there = self.environment
        arrays = (there.values[value] for values in there.held.values() for value in values)
        return frozenset(array.sharding for array in arrays if (array.shape, array.dtype) == (shape, dtype))
