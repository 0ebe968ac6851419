"""From the tables of a search to the steps of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from shardc.cost import formulas
from shardc.cost.alone import Amount
from shardc.cost.copied import copy_cost, laid_cost
from shardc.cost.model import CostModel
from shardc.cost.sums import move_cost
from shardc.ir.applied import applied
from shardc.ir.collectives import JointScatter, Move, Slice, apply
from shardc.ir.digits import Reshape, digits_of, names_after, reshaped, shape_after
from shardc.ir.expressions import Call, Expr, Product, Use
from shardc.ir.names import MAX_NAME
from shardc.ir.plan import Einsum, Op, Rule, StatementNumber, Step, StepCost, ValueNumber
from shardc.ir.program import For, Input
from shardc.ir.sharding import Array, Sharding, ShardingNumber
from shardc.lowering.copies import copies_to_reshape
from shardc.lowering.forms import Laid
from shardc.lowering.timed import writes_after
from shardc.planner.digits.chosen import Chosen, InDigits
from shardc.planner.paths.tables import Applied, Held, Moved, Multiplied, Table, Waypoint
from shardc.planner.problem import Problem, Seen, StepKey, is_done_again, key_of
from shardc.planner.statement import costs
from shardc.planner.statement.copies import copied, reads_share, waiting
from shardc.planner.statement.made_of_none import WRITTEN, made_there
from shardc.planner.statement.reductions import across, is_across
from shardc.rules.products import After, Why
from shardc.rules.routes import Route

NAMED = Rule("named by the statement", is_named=True)
_SPLIT, _JOINED, _PRODUCT = Rule("digits of dims"), Rule("digits joined"), Rule("local product")


@dataclass(frozen=True, slots=True)
class Candidate:
    """The table of a statement's expression, a sharding of its result, and which products are done in digits.

    Why it is so the table says: each of its shardings has an origin, and the cases of a product are its origin's.
    """

    root: Table
    goal: ShardingNumber
    in_digits: Chosen = field(default_factory=dict)

    @property
    def cases(self) -> dict[str, int]:
        """The case of each mesh axis in the statement's products."""
        return self.root.cases(self.goal)


def costs_of(steps: Sequence[Step], first: int = 0) -> list[StepCost]:
    """What steps cost from the first of these on, with what collectives among all of them tell apart."""
    costs = [step.cost for step in steps[first:]]
    if all(cost.if_sent is None and cost.to_lie is None for cost in costs):
        return costs
    from shardc.cost.settled import told_apart  # where a slice is named

    return told_apart(steps, first)


@dataclass(slots=True)
class Builder:
    """Appends the steps of one statement. A step done twice to the same values is done once, as compilers do it."""

    problem: Problem
    values: list[Array]
    steps: list[Step]
    statement: StatementNumber
    name: str  # of the statement's result
    taken: set[str] = field(default_factory=set)  # names that a new value must not bear
    chosen: dict[str, ValueNumber] = field(default_factory=dict)  # inputs whose sharding this statement chose
    in_digits: Chosen = field(default_factory=dict)  # the products that are done in digits
    joint: bool = True  # whether sums are scattered over several dims at once
    done: dict[StepKey, ValueNumber] = field(default_factory=dict)  # the values of the steps so far
    left: set[ValueNumber] = field(default_factory=set)  # those of them that are outputs already

    def build(self, table: Table, number: ShardingNumber, name: str, why: Why | None = None) -> ValueNumber:
        """The value of a table at a sharding, under this name; `why` it is moved there, but for what made it."""
        seed, moves = table.paths(number).moves_to(number)
        origin, found = table.origins[seed], self.in_digits.get((id(table), number))
        if isinstance(origin, Multiplied) and found is not None:
            return self._build_in_digits(table, origin, found, name)
        value, why = self._origin(table, seed, name, why), why or table.after(seed)
        whole = dims = table.expr.dims  # of each place the dim, or the dim that it is a digit of
        for move in _merged_slices(moves if self.joint else _one_dim_at_a_time(moves)):
            if isinstance(move, Reshape):
                taken = (*self.problem.mesh.names, *self.problem.program.dims)
                names = whole if move.joins else names_after(move, whole, taken)
                value = self._reshape(value, move, names, name)
                dims = whole if move.joins else digits_of(whole, move)
            else:
                value = self.move(value, move, name, why.rule(move, dims), whole, table.search.model)
        return value

    def _reshape(self, value: ValueNumber, op: Reshape, dims: tuple[str, ...], name: str) -> ValueNumber:
        """The same elements under the names of digits, or of dims again."""
        before = self.values[value]
        sharding = reshaped(op, before.sharding, self.problem.mesh)
        after = Array(name, dims, shape_after(op, before.shape), sharding, before.dtype)
        copied = copies_to_reshape(before, after, self.problem.mesh)
        cost = copy_cost(after if op.joins else before, self.problem.model) if copied else StepCost()
        return self.append(op, (value,), after, cost, _JOINED if op.joins else _SPLIT)

    def build_result(self, table: Table, number: ShardingNumber) -> ValueNumber:
        """The value of the statement's whole expression."""
        first = len(self.steps)
        value = self.build(table, number, self.name)
        self.price_copies(first, value)
        return value

    def price_copies(self, first: int, result: ValueNumber) -> None:
        """Adds what the steps since the first, which lead to the statement's result, copy because of one another."""
        model, program = self.problem.model, self.problem.program
        if model.alone.measured is None:
            return
        is_loop = isinstance(program.statements[self.statement], For)  # for which an array is brought
        leaves = (self.statement, self.name) in program.leaving and not is_loop
        output = result if leaves and result not in self.left else None
        for place, laid in copied(self.steps, first, self._made, output, self.values, model):
            self._copy(place, laid)
        if output is not None:
            self.left.add(output)
        for place in waiting(self.steps, first, self.values, self.problem.mesh) if writes_after(model.target) else ():
            self._wait(place)

    @property
    def _made(self) -> set[ValueNumber]:
        """What steps left, which no input is."""
        return {value for step in self.steps for value in step.results}

    def _wait(self, place: int) -> None:
        """A product writes while it computes nothing."""
        step, alone = self.steps[place], self.problem.model.alone
        *read, written = (self.values[value] for value in (*step.operands, step.result))
        sizes = [array.local_bytes(self.problem.mesh) for array in read]
        wide = max((array.dtype for array in read), key=lambda dtype: dtype.bytes)
        amount = Amount(step.cost.flops, sum(sizes), written.local_bytes(self.problem.mesh), wide, leaves=written.dtype)
        cost, more = step.cost, alone.written_after_s(amount)
        if more:
            spelled = partial(formulas.longer, cost.formula, 1 + more / cost.time_s)
            self.steps[place] = replace(step, cost=replace(cost, time_s=cost.time_s + more, spelled=spelled))

    def _copy(self, place: int, laid: Laid) -> None:
        """What a step leaves, or reads, is laid anew; a share if it has to lie (`cost.settled`)."""
        step = self.steps[place]
        array, known = self.values[step.result], set(self.problem.program.dims)
        whole = next((v.dims for v in self.values if v.name == array.name and known.issuperset(v.dims)), array.dims)
        told, model = replace(array, dims=whole), self.problem.model  # its formula names no digits
        beside = sum(self.values[value].local_bytes(model.mesh) for value in step.operands if value in self._made)
        copy = laid_cost(laid, told, model, beside)
        if laid is Laid.SHARE:
            text = step.cost.as_written
            lying = replace(step.cost, to_lie=copy, as_written=None if text is None else replace(text, to_lie=copy))
            self.steps[place] = replace(step, cost=lying)
            return
        cost, written, sent = formulas.one_after_another(step.cost, copy), step.cost.as_written, step.cost.if_sent
        if written is not None:
            cost = replace(cost, as_written=formulas.one_after_another(written, copy))
        if sent is not None:
            cost = replace(cost, if_sent=formulas.one_after_another(sent, copy))
        self.steps[place] = replace(step, cost=cost)

    def _origin(self, table: Table, seed: ShardingNumber, name: str, why: Why | None = None) -> ValueNumber:
        expr, origin = table.expr, table.origins[seed]
        match origin:
            case Held(None):
                assert isinstance(expr, Use)
                return self._input(expr, table.sharding(seed))
            case Held(value):
                assert value is not None
                return value
            case Waypoint(below, at):
                return self.build(below, at, name, why if self.problem.options.as_asked else None)
            case Moved(below, at, move):
                operand = self.build(below, at, self.inner(below.expr))
                return self.move(operand, move, name, NAMED, model=below.search.model)
            case Multiplied():
                return self._product(table, origin, seed, name)
            case Applied(tables, at):
                assert isinstance(expr, Call)
                found = tuple(self.build(t, n, self.inner(t.expr)) for t, n in zip(tables, at, strict=True))
                if found and is_across(expr, self.values[found[0]], tables[0].expr.dims):
                    return across(self, self.problem.mesh, expr, found[0], name)
                return self.applied(expr, found, table.sharding(seed), name)
            case _:
                assert_never(origin)

    def applied(self, expr: Call, values: tuple[ValueNumber, ...], left: Sharding, name: str) -> ValueNumber:
        """A function of these values' blocks, which leaves that sharding."""
        op, seen = applied(expr, dict(self.problem.program.sizes)), tuple(each.dims for each in expr.operands)
        result = self._array(expr, left, name)
        arrays = [replace(self.values[value], dims=dims) for value, dims in zip(values, seen, strict=True)]
        streams = self.problem.streams(expr)
        if streams is None:
            cost = self.function_cost(expr, values[0]) if values else StepCost()
        else:
            is_bare = streams.bare and not reads_share(self.steps, values, self.values, self.problem.mesh)
            cost = costs.of_elements(self.problem.model, arrays, result, streams._replace(bare=is_bare))
        return self.append(op, values, result, cost, Rule(), seen)

    def function_cost(self, expr: Call, value: ValueNumber) -> StepCost:
        """Of what each device does of a function by itself."""
        operand = replace(self.values[value], dims=expr.operands[0].dims)
        return costs.of_function(self.problem.model, self.problem.loops(expr), operand)

    def _input(self, use: Use, sharding: Sharding) -> ValueNumber:
        if use.name not in self.chosen:
            self.values.append(self._array(use, sharding, use.name))
            self.chosen[use.name] = ValueNumber(len(self.values) - 1)
        return self.chosen[use.name]

    def _product(self, table: Table, origin: Multiplied, seed: ShardingNumber, name: str) -> ValueNumber:
        expr = _pair(table, origin)
        why = origin.before(expr.dims)
        values = tuple(self.build(t, n, self.inner(t.expr), why) for t, n in origin.operands)
        return self.multiplied(expr, values, table.sharding(seed), name)

    def multiplied(self, expr: Product, values: tuple[ValueNumber, ...], left: Sharding, name: str) -> ValueNumber:
        """The product of these values' blocks, which leaves that sharding."""
        result = self._array(expr, left, name)
        seen = tuple(operand.dims for operand in expr.operands)
        arrays = [replace(self.values[value], dims=dims) for value, dims in zip(values, seen, strict=True)]
        cost = self.problem.work(expr).cost(arrays, result, self.problem.model)
        return self.append(Einsum(), values, result, cost, _PRODUCT, seen)

    def _build_in_digits(self, table: Table, origin: Multiplied, found: InDigits, name: str) -> ValueNumber:
        """The steps of a product in digits. A dim's digits bear the same names on all arrays."""
        expr, digits, values = _pair(table, origin), found.digits, list[ValueNumber]()
        why = origin.before(expr.dims)
        names = digits.names((*self.problem.mesh.names, *self.problem.program.dims))
        for (below, seed), moves in zip(origin.seeds, found.operands, strict=True):
            inner, split = self.inner(below.expr), digits.op(below.expr.dims)
            value = self._origin(below, seed, inner)
            if any(split.sizes):
                value = self._reshape(value, split, digits.of_dims(below.expr.dims, names), inner)
            values.append(self._moved(value, moves, below, digits_of(below.expr.dims, split), why, inner))
        split = digits.op(expr.dims)
        shape = shape_after(split, self.problem.program.shape(expr.dims))
        left = Array(name, digits.of_dims(expr.dims, names), shape, found.placement.result(expr.dims), expr.dtype)
        arrays, whole = [*(self.values[value] for value in values), left], [*(o.dims for o in expr.operands), expr.dims]
        *read, written = map(digits.joined, arrays, whole)
        cost = self.problem.work(expr).cost(read, written, self.problem.model)
        seen = tuple(digits.of_dims(operand.dims, names) for operand in expr.operands)
        value = self.append(Einsum(), tuple(values), left, cost, _PRODUCT, seen)
        value = self._moved(value, found.result, table, digits_of(expr.dims, split), After(why.cases), name)
        return self._reshape(value, replace(split, joins=True), expr.dims, name) if any(split.sizes) else value

    def _moved(
        self, value: ValueNumber, moves: Route, table: Table, dims: tuple[str, ...], why: Why, name: str
    ) -> ValueNumber:
        """After moves and no reshape. `dims` are of each place the dim, or the dim that it is a digit of."""
        for move in moves:
            assert not isinstance(move, Reshape)
            value = self.move(value, move, name, why.rule(move, dims), table.expr.dims, table.search.model)
        return value

    def move(
        self,
        value: ValueNumber,
        move: Move,
        name: str,
        rule: Rule,
        whole: tuple[str, ...] | None = None,
        model: CostModel | None = None,
    ) -> ValueNumber:
        """`whole` are the dims that the formula names, if the array has digits; `model` by which the move was found."""
        mesh, before = self.problem.mesh, self.values[value]
        after = Array(name, before.dims, before.shape, apply(move, before.sharding, mesh), before.dtype)
        made = made_there(self.steps, value, move) if rule is not NAMED else None
        if made is not None:
            cost = costs.of_elements(self.problem.model, [], after, WRITTEN) if made.cost.time_s else made.cost
            return self.append(made.op, (), after, cost, made.rule, of=made.statement)
        named = before if whole is None or whole == before.dims else replace(before, dims=whole)
        cost = move_cost(move, before, self.problem.model, named)
        if model is not None and model is not self.problem.model:
            cost = replace(move_cost(move, before, model, named), as_written=cost)
        return self.append(move, (value,), after, cost, rule)

    def append(
        self,
        op: Op,
        operands: tuple[ValueNumber, ...],
        result: Array,
        cost: StepCost,
        rule: Rule,
        seen: Seen = (),
        of: StatementNumber | None = None,
    ) -> ValueNumber:
        """`seen` are the dims of the operands where the expression names them; `of` is the statement, if another."""
        seen = seen if any(self.values[n].dims != dims for n, dims in zip(operands, seen, strict=False)) else ()
        key = key_of(op, operands, seen, result)
        if key not in self.done or is_done_again(op, rule):
            self.values.append(result)
            self.done[key] = ValueNumber(len(self.values) - 1)
            of = self.statement if of is None else of
            self.steps.append(Step(op, operands, (self.done[key],), of, cost, rule, seen))
        return self.done[key]

    def _array(self, expr: Expr | Input, sharding: Sharding, name: str) -> Array:
        return Array(name, expr.dims, self.problem.program.shape(expr.dims), sharding, expr.dtype)

    def inner(self, expr: Expr) -> str:
        """A name for an operand: its own, or the result's with a number."""
        if isinstance(expr, Use):
            return expr.name
        base = self.name[: MAX_NAME - 6]
        number = 1
        while f"{base}_{number}" in self.taken:
            number += 1
        self.taken.add(f"{base}_{number}")
        return f"{base}_{number}"


def _pair(table: Table, origin: Multiplied) -> Product:
    assert isinstance(table.expr, Product)
    return origin.pair(table.expr)


def _one_dim_at_a_time(moves: list[Move | Reshape]) -> list[Move | Reshape]:
    """`A[I, J]{U_XY} → A[I_X, J_Y]` as a ReduceScatter for each dim."""
    found: list[Move | Reshape] = []
    for move in moves:
        found += move.dim_by_dim if isinstance(move, JointScatter) else [move]
    return found


def _merged_slices(moves: list[Move | Reshape]) -> list[Move | Reshape]:
    """Slices of one dim in a row become one: `[I] → [I_X] → [I_XY]` is `[I] → [I_XY]`."""
    merged: list[Move | Reshape] = []
    for move in moves:
        last = merged[-1] if merged else None
        if isinstance(move, Slice) and isinstance(last, Slice) and last.dim == move.dim:
            merged[-1] = Slice(last.axes + move.axes, move.dim)
        else:
            merged.append(move)
    return merged
