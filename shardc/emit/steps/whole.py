"""A program as its author would write it for XLA alone: of whole arrays, with the shardings that the text writes.

    C = jnp.einsum("ij,jk->ik", A, B)
    C = jax.lax.with_sharding_constraint(C, P("X", None))    where the text writes one in between

Every collective is XLA's choice. `machines.baseline` gives `jax.jit` the same with its shardings outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shardc.emit.allowed import CARRIED, ROWS
from shardc.emit.exprs import Call as CallExpr
from shardc.emit.exprs import Code, Const, Expr, Index, Items, Line, Name, axes_argument, call
from shardc.emit.steps import local
from shardc.emit.steps.calls import Body
from shardc.emit.steps.products import product
from shardc.emit.steps.variables import choose, taken_names
from shardc.ir.applied import applied
from shardc.ir.dtypes import DType
from shardc.ir.expressions import Call, Named, Pattern, Product, Use
from shardc.ir.expressions import Expr as Asked
from shardc.ir.plan import Schedule
from shardc.ir.program import For, Program, Statement, bindings_of
from shardc.ir.sharding import Array, Sharding


def whole_body(schedule: Schedule) -> Body:
    """The program's parameters, lines and results, in the plan's order."""
    writer = _Writer(schedule.program, set(taken_names(schedule)))
    for array in schedule.program.inputs:
        given = writer.variable(array.name)
        writer.known[array.name] = _Value(given, writer.whole(array.name, array.dims, array.dtype), array.pattern)
    parameters = tuple(writer.known[array.name].name.name for array in schedule.program.inputs)
    writer.statements()
    results = tuple(writer.freed(number).name for number in schedule.program.outputs)
    return Body(parameters, tuple(writer.code), results)


@dataclass(frozen=True, slots=True)
class _Value:
    """A variable, what it holds, and the sharding that it was last said to have."""

    name: Name
    described: Array
    pattern: Pattern | None


@dataclass(slots=True)
class _Writer:
    program: Program
    taken: set[str]
    known: dict[str, _Value] = field(default_factory=dict)
    made: list[Name] = field(default_factory=list)
    code: list[Code] = field(default_factory=list)

    def variable(self, wanted: str) -> Name:
        """One that nothing else has."""
        found = choose(wanted, {}, 0, self.taken)
        self.taken.add(found)
        return Name(found)

    def whole(self, name: str, dims: tuple[str, ...], dtype: DType) -> Array:
        return Array(name, dims, self.program.shape(dims), Sharding.replicated(len(dims)), dtype)

    def line(self, name: str, expr: Expr, described: Array) -> _Value:
        variable = self.variable(name)
        self.code.append(Line(variable.name, expr, f"{name}[{', '.join(described.dims)}]"))
        return _Value(variable, described, None)

    def freed(self, number: int) -> Name:
        """An output, whose last step XLA may do in another sharding than it leaves in, as it may under `jax.jit` alone:
        the constraint that `auto_axes` puts there would be the step's own."""
        value, rank = self.made[number], len(self.program.results[number].dims)
        if rank:
            spec = CallExpr(Name("P"), (Name("P.UNCONSTRAINED"),) * rank)
            self.code.append(Line(value.name, call("jax.lax.with_sharding_constraint", value, spec), ""))
        return value

    def statements(self) -> None:
        for number, statement in enumerate(self.program.statements):
            if isinstance(statement, For):
                self.loop(statement)
            else:
                self.known[statement.name] = self.bound(number, statement)
            self.made += [self.known[each.name].name for each in bindings_of(statement)]

    def bound(self, number: int, statement: Statement) -> _Value:
        """The result, constrained if it is not an output; an output has its sharding from what is around. An expression
        has the dims and the type of what it is bound to."""
        result = self.whole(statement.name, statement.dims, statement.dtype)
        found = replace(self.value(statement.expr, statement.name), described=result)
        if number in self.program.outputs:
            return replace(found, pattern=statement.pattern)
        return self.constrained(found, statement.pattern)

    def value(self, expr: Asked, name: str) -> _Value:
        match expr:
            case Use(name=used, pattern=pattern):
                known = self.known[used]
                read = replace(known, described=replace(known.described, dims=expr.dims))
                return read if pattern is None or pattern == known.pattern else self.constrained(read, pattern)
            case Named(operand=operand):
                return replace(self.value(operand, name), described=self.whole(name, expr.dims, expr.dtype))
            case Product(operands=operands):
                values = [self.value(operand, name) for operand in operands]
                return self.multiplied(values, self.whole(name, expr.dims, expr.dtype))
            case Call(operands=operands):
                values = [self.value(operand, name) for operand in operands]
                result = self.whole(name, expr.dims, expr.dtype)
                op = applied(expr, dict(self.program.sizes))
                arrays, names = tuple(v.described for v in values), tuple(v.name for v in values)
                return self.line(name, local.function(op, arrays, names, result), result)

    def multiplied(self, values: Sequence[_Value], result: Array) -> _Value:
        arrays, names = tuple(value.described for value in values), tuple(value.name for value in values)
        return self.line(result.name, product(arrays, names, result), result)

    def constrained(self, value: _Value, pattern: Pattern) -> _Value:
        """An unreduced sharding cannot be asked for, and one with no dim written asks for nothing."""
        if pattern.unreduced or all(axes is None for axes in pattern.dims):
            return replace(value, pattern=pattern)
        parts = (_part(axes) for axes in pattern.dims)
        spec = CallExpr(Name("P"), tuple(parts))
        name = value.described.name
        found = self.variable(name)
        self.code.append(Line(found.name, call("jax.lax.with_sharding_constraint", value.name, spec), ""))
        return _Value(found, value.described, pattern)

    def loop(self, loop: For) -> None:
        """`jax.lax.scan` of the body."""
        inside = _Writer(self.program.inside(loop), self.taken)
        inside.known = {name: self.known[name] for name in loop.fixed}
        scanned = [array.name for array in loop.scanned]
        described = {array.name: inside.whole(array.name, array.dims, array.dtype) for array in loop.takes}
        for source, names in ((CARRIED, [*loop.carried]), (ROWS, scanned)):
            for place, name in enumerate(names):
                inside.known[name] = inside.line(name, Index(Name(source), place), described[name])
        inside.statements()
        left = [inside.known[name].name for name in loop.leaves]
        leaves = Items((Items(tuple(left[: len(loop.carried)])), Items(tuple(left[len(loop.carried) :]))))
        first = Items(tuple(self.known[name].name for name in loop.carried))
        rows = Items(tuple(_to_front(self.known[array.name].name, array.dims, loop.dim) for array in loop.scanned))
        (trips,) = self.program.shape((loop.dim,))
        self.code.append(local.scan(inside.code, leaves, (first, rows), trips, loop.down))
        stacked = {array.name: array.dims for array in loop.stacked}
        for place, bound in enumerate(bindings_of(loop)):
            carried = place < len(loop.carried)
            found: Expr = Index(Name(CARRIED if carried else ROWS), place if carried else place - len(loop.carried))
            if not carried:
                found = _from_front(found, [*stacked.values()][place - len(loop.carried)], loop.dim)
            result = self.whole(bound.name, bound.dims, bound.dtype)
            self.known[bound.name] = replace(self.line(bound.name, found, result), pattern=bound.pattern)


def _part(axes: tuple[str, ...] | None) -> Expr:
    if axes is None:
        return Name("P.UNCONSTRAINED")
    return axes_argument(axes) if axes else Const(None)


def _to_front(value: Expr, dims: tuple[str, ...], dim: str) -> Expr:
    place = dims.index(dim)
    order = (place, *(other for other in range(len(dims)) if other != place))
    return _transposed(value, order)


def _from_front(value: Expr, dims: tuple[str, ...], dim: str) -> Expr:
    place = dims.index(dim)
    others = iter(range(1, len(dims)))
    return _transposed(value, tuple(0 if here == place else next(others) for here in range(len(dims))))


def _transposed(value: Expr, order: tuple[int, ...]) -> Expr:
    if order == tuple(range(len(order))):
        return value
    return call("jnp.transpose", value, Items(tuple(map(Const, order))))
