"""A program as the book's own rules do it, statement by statement, from the left: what a plan is held against.

`rules.written` says what is gathered before a product and what is reduced after it. Nothing is searched, no idle axis
is used, and nothing is kept for a later statement but what its text says. The steps are priced as a plan's are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from shardc.cost.copied import turned, with_first
from shardc.cost.model import CostModel
from shardc.cost.rate import picoseconds
from shardc.cost.sums import cost_of, loop_cost
from shardc.errors import ShardcError
from shardc.ir.calls import linear_operands
from shardc.ir.expressions import Call, Expr, Named, Pattern, Product, Use
from shardc.ir.operations import IllegalMove
from shardc.ir.plan import Block, Cost, Einsum, Loop, Rule, Schedule, StatementNumber, Step, Strategy, ValueNumber
from shardc.ir.program import For, Program, Statement, bindings_of, same_array
from shardc.ir.sharding import Array, Axes, Sharding, row_of
from shardc.planner.options import Objective
from shardc.planner.paths.named import named_edges
from shardc.planner.planned import PlannedProgram, PlannedStatement, gaps_of, settled
from shardc.planner.problem import Problem
from shardc.planner.program.partial import needed
from shardc.planner.program.trips import left_by
from shardc.planner.statement.build import NAMED, Builder
from shardc.planner.statement.reductions import across, is_across
from shardc.rules.functions import applied, reduced_across
from shardc.rules.products import local_product
from shardc.rules.written import before_product, goal, reduced, resharded

_AS_WRITTEN = Rule("as written")


class _NoRule(Exception):
    """The book has no rule for this."""


@dataclass(frozen=True, slots=True)
class Written:
    """The steps, priced as a plan's are, and what all of them cost."""

    block: Block
    cost: Cost


def as_written(program: Program, model: CostModel, given: Sequence[Array]) -> Written | None:
    """The program from inputs that lie so; None where the rules lead nowhere."""
    try:
        found = settled(written_schedule(program, model, given), model)
        return Written(found.block, cost_of(found, model))
    except (IllegalMove, ShardcError, _NoRule):
        return None


def or_as_written(found: PlannedProgram, model: CostModel, objective: Objective) -> PlannedProgram:
    """The program as written in place of a plan whose searches ended with their budget, if it costs less."""
    program, planned = found.schedule.program, found.statements
    told = [each for each in planned if isinstance(each, PlannedStatement)]
    if len(told) < len(planned):  # loops are planned as they are
        return found
    written = as_written(program, model, [found.schedule.values[number] for number in found.schedule.inputs])
    if written is None:
        return found
    block = replace(written.block, steps=needed(written.block.steps, written.block.outputs))
    schedule = Schedule(program, block)
    statements = tuple(_led(each, StatementNumber(n), block, objective) for n, each in enumerate(told))
    before = {str(gap) for each in told for gap in gaps_of(each)}
    gaps = (str(gap) for each in statements for gap in gaps_of(each))
    notes = (*gaps, *(note for note in found.notes if note not in before))
    instead = PlannedProgram(schedule, statements, cost_of(schedule, model), notes)
    return instead if instead.price(objective) < found.price(objective) else found


def _led(planned: PlannedStatement, number: StatementNumber, block: Block, objective: Objective) -> PlannedStatement:
    """A statement whose plan is as it is written."""
    steps = tuple(step for step in block.steps if step.statement == number)
    costs = [step.cost for step in steps]
    price = sum(objective.price(picoseconds(cost.time_s), cost.wire_bytes) for cost in costs)
    own = Strategy(block.values, steps, sum(cost.wire_bytes for cost in costs), sum(cost.time_s for cost in costs))
    return planned.led_by(own, planned.gap and replace(planned.gap, price=objective.first(price)))


def written_schedule(program: Program, model: CostModel, given: Sequence[Array]) -> Schedule:
    """Raises IllegalMove, ShardcError or _NoRule where the rules lead nowhere."""
    writer = _Writer(Problem(program, model, Objective.TIME, program.mesh.names), given)
    writer.write()
    results = (program.results[place] for place in program.outputs)
    return Schedule(program, writer.block([result.name for result in results]))


class _Writer:
    """The steps so far of a program, or of a loop's body."""

    def __init__(self, problem: Problem, given: Sequence[Array]) -> None:
        names = {array.name for array in given} | {bound.name for bound in problem.program.results}
        self.problem = problem
        self.inputs = len(given)
        self.builder = Builder(problem, list(given), [], StatementNumber(0), "", names)
        # Per name the values that hold it, the last last.
        self.held: dict[str, list[ValueNumber]] = {a.name: [ValueNumber(n)] for n, a in enumerate(given)}

    def write(self) -> None:
        """Every step of every statement."""
        for number, statement in enumerate(self.problem.program.statements):
            if isinstance(statement, For):
                self._looped(StatementNumber(number), statement)
            else:
                self._statement(StatementNumber(number), statement)

    def block(self, names: Iterable[str]) -> Block:
        """The steps so far, which leave these."""
        inputs, outputs = tuple(map(ValueNumber, range(self.inputs))), tuple(self.held[name][-1] for name in names)
        return Block(tuple(self.builder.values), inputs, outputs, tuple(self.builder.steps))

    def _statement(self, number: StatementNumber, statement: Statement) -> None:
        builder, first = self.builder, len(self.builder.steps)
        builder.statement, builder.name = number, statement.name
        value = self._value(statement.expr, statement.pattern, statement.name)
        value = self._lying(value, statement.pattern, statement.name)
        builder.price_copies(first, value)
        self._bind(statement.name, value, anew=not same_array(statement))

    def _bind(self, name: str, value: ValueNumber, anew: bool) -> None:
        self.held[name] = [*(() if anew else self.held.get(name, ())), value]

    # --- moves

    def _lying(self, value: ValueNumber, pattern: Pattern, name: str) -> ValueNumber:
        """An array reduced, then in the sharding that is asked for."""
        for move in reduced(self._sharding(value), pattern, self.problem.mesh):
            value = self.builder.move(value, move, name, _AS_WRITTEN)
        return self._at(value, goal(self._sharding(value), pattern), name)

    def _at(self, value: ValueNumber, sharding: Sharding, name: str) -> ValueNumber:
        if sharding.unreduced != self._sharding(value).unreduced:
            raise _NoRule
        for move in resharded(self._sharding(value), sharding):
            value = self.builder.move(value, move, name, _AS_WRITTEN)
        return value

    def _sharding(self, value: ValueNumber) -> Sharding:
        return self.builder.values[value].sharding

    # --- expressions

    def _value(self, expr: Expr, wanted: Pattern, name: str) -> ValueNumber:
        """The value of an expression, near to what is wanted of it."""
        match expr:
            case Use():
                return self._used(expr)
            case Product():
                return self._product(expr, wanted, name)
            case Named():
                return self._named(expr, wanted, name)
            case Call():
                return self._call(expr, wanted, name)

    def _used(self, use: Use) -> ValueNumber:
        held = self.held[use.name]
        if use.pattern is None:
            return held[-1]
        exactly = [value for value in held if use.pattern.matches(self._sharding(value))]
        return exactly[-1] if exactly else self._lying(held[-1], use.pattern, use.name)

    def _below(self, expr: Expr, kept: frozenset[str] = frozenset()) -> ValueNumber:
        """An operand; its partial sums are summed, but for those that are kept."""
        name, free = self.builder.inner(expr), Pattern.free(len(expr.dims))
        value = self._value(expr, free, name)
        for move in reduced(self._sharding(value), replace(free, unreduced=kept), self.problem.mesh):
            value = self.builder.move(value, move, name, _AS_WRITTEN)
        return value

    def _product(self, expr: Product, wanted: Pattern, name: str) -> ValueNumber:
        # A local product's text means operands as they are.
        kept = frozenset(self.problem.mesh.names) if expr.local else wanted.unreduced
        values = tuple(self._below(operand, kept) for operand in expr.operands)
        dims = tuple(operand.dims for operand in expr.operands)
        if not expr.local:
            lies, mesh = tuple(map(self._sharding, values)), self.problem.mesh
            sizes = [self.builder.values[value].local_bytes(mesh) for value in values]
            targets = before_product(dims, expr.dims, lies, wanted, sizes)
            values = self._all_at(expr, values, targets)
        left = local_product(dims, expr.dims, tuple(map(self._sharding, values)))
        if left is None:
            raise _NoRule
        return self.builder.multiplied(expr, values, left, name)

    def _all_at(
        self, expr: Product | Call, values: Sequence[ValueNumber], targets: Sequence[Sharding]
    ) -> tuple[ValueNumber, ...]:
        names = [self.builder.inner(operand) for operand in expr.operands]
        return tuple(self._at(*each) for each in zip(values, targets, names, strict=True))

    def _named(self, expr: Named, wanted: Pattern, name: str) -> ValueNumber:
        value = self._value(expr.operand, Pattern.free(len(expr.dims)), self.builder.inner(expr.operand))
        search = self.problem.search(expr)
        edges = list(named_edges(expr, search.graph.number(self._sharding(value)), search))
        if not edges:
            raise _NoRule
        fitting = (edge for edge in edges if wanted.matches(search.graph.shardings[edge.target]))
        return self.builder.move(value, next(fitting, edges[0]).move, name, NAMED)

    def _call(self, expr: Call, wanted: Pattern, name: str) -> ValueNumber:
        """Operands as the first with all the dims lies; what has no operands of its own, as it is wanted."""
        if not expr.operands:
            lies = goal(Sharding.replicated(len(expr.dims)), Pattern(wanted.dims))
            return self.builder.applied(expr, (), lies, name)
        linear = linear_operands(expr.function, expr.numbers)
        sums = [wanted.unreduced if place in linear else frozenset[str]() for place in range(len(expr.operands))]
        values = [self._below(operand, kept) for operand, kept in zip(expr.operands, sums, strict=True)]
        if len(values) == 1 and is_across(expr, self.builder.values[values[0]], expr.operands[0].dims):
            return self._across(expr, values[0], name)
        targets = self._alike(expr, values)
        at = self._all_at(expr, values, targets)
        dims = [operand.dims for operand in expr.operands]
        left = applied(expr.function, expr.over, dims, expr.dims, targets, expr.numbers)
        if left is None:
            raise _NoRule
        return self.builder.applied(expr, at, left, name)

    def _across(self, expr: Call, value: ValueNumber, name: str) -> ValueNumber:
        dims, mesh = expr.operands[0].dims, self.problem.mesh
        if reduced_across(expr.function, expr.over, dims, expr.dims, self._sharding(value), mesh) is None:
            raise _NoRule
        return across(self.builder, mesh, expr, value, name)

    def _alike(self, expr: Call, values: Sequence[ValueNumber]) -> list[Sharding]:
        """One sharding of every dim: of the operand with most dims, then of the others, where its axes are free."""
        order = sorted(range(len(values)), key=lambda place: -len(expr.operands[place].dims))
        axes_of: dict[str, Axes] = {}
        for place in order:
            for dim, axes in zip(expr.operands[place].dims, self._sharding(values[place]).dims, strict=True):
                taken = {axis for own in axes_of.values() for axis in own}
                free = dim not in expr.over and not taken.intersection(axes)
                axes_of.setdefault(dim, axes if free else ())
        return [
            Sharding(tuple(axes_of[dim] for dim in operand.dims), self._sharding(value).unreduced)
            for operand, value in zip(expr.operands, values, strict=True)
        ]

    # --- loops

    def _looped(self, number: StatementNumber, loop: For) -> None:
        """What is carried as it is asked for, each trip, and back to where it is carried."""
        self.builder.statement, program = number, self.problem.program
        (trips,), asked = program.shape((loop.dim,)), {bound.name: bound.pattern for bound in bindings_of(loop)}
        carried = [self._lying(self.held[name][-1], asked[name], name) for name in loop.carried]
        rows = [self._rows(array.name, array.dims, loop.dim) for array in loop.scanned]
        outside = [*(self.held[name][-1] for name in loop.fixed), *carried]
        given = [replace(self.builder.values[v], name=a.name) for v, a in zip(outside, loop.takes, strict=False)]
        scanned = [
            replace(row_of(self.builder.values[value]), name=array.name)  # which may be another's, dims named anew
            for value, array in zip(rows, loop.scanned, strict=True)
        ]
        body = _Writer(self.problem.within(program.inside(loop)), [*given, *scanned])
        body.write()
        for name, value in zip(loop.carried, carried, strict=True):
            back = body._at(body.held[name][-1], self._sharding(value), name)
            body._bind(name, back, anew=False)
        op = Loop(loop.dim, trips, loop.down, body.block(loop.leaves), len(loop.fixed), len(loop.carried))
        self._left(loop, op, (*outside, *rows))

    def _left(self, loop: For, op: Loop, operands: tuple[ValueNumber, ...]) -> None:
        """The loop, and what it leaves under its names: what is stacked has the dim first."""
        arrays, first = left_by(loop, op), len(self.builder.values)
        if not arrays:  # `for K { h = h }`
            return
        results = tuple(map(ValueNumber, range(first, first + len(arrays))))
        self.builder.values += arrays
        cost = loop_cost(op)
        self.builder.steps.append(Step(op, operands, results, self.builder.statement, cost, _AS_WRITTEN))
        for value, bound in zip(results, bindings_of(loop), strict=True):
            self._bind(bound.name, self._turned(value, bound.dims, op.dim), anew=True)

    def _rows(self, name: str, dims: tuple[str, ...], along: str) -> ValueNumber:
        """An array whose rows every device has whole, the dim of these first."""
        place, value = dims.index(along), self.held[name][-1]
        axes = self._sharding(value).dims
        value = self._at(value, replace(self._sharding(value), dims=(*axes[:place], (), *axes[place + 1 :])), name)
        return self._turned(value, with_first(self.builder.values[value].dims, place), along)

    def _turned(self, value: ValueNumber, dims: tuple[str, ...], along: str) -> ValueNumber:
        before = self.builder.values[value]
        if before.dims == dims:
            return value
        after, cost = turned(before, dims, self.problem.model)
        return self.builder.append(Einsum(), (value,), after, cost, Rule(f"rows along {along}"))
