"""The one description of every step's JAX call: printed it is source, applied it is the callable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from shardc.emit.allowed import CARRIED, JOINED, ROWS, TRIP
from shardc.emit.exprs import Code, Const, Expr, Index, Items, Line, Name, Scan, axes_argument, call, renamed
from shardc.emit.exprs import Loop as Turns
from shardc.emit.steps import local
from shardc.emit.steps.exchanges import joint_exchange, may_be_rows, reshape, rows, rows_apart
from shardc.emit.steps.flow import AxisSet, equal_along, equal_within
from shardc.emit.steps.moves import exchange, gather, permute, slice_of
from shardc.emit.steps.partial_sums import one_block
from shardc.emit.steps.pieces import direct_exchange, spread
from shardc.emit.steps.scattering import scatter
from shardc.emit.steps.spec import left
from shardc.emit.steps.variables import taken_names, variables
from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    JointExchange,
    JointGather,
    JointScatter,
    Move,
    ReduceScatter,
    Slice,
)
from shardc.ir.digits import Reshape, digits_of
from shardc.ir.exchange import is_thin
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Einsum, Loop, Schedule, Step, operands_of
from shardc.ir.sharding import Array, Axes, Sharding
from shardc.lowering.scatters import Parts, one_after_another, scattering, share_of


@dataclass(frozen=True, slots=True)
class Body:
    """A function's parameters, its lines and loops, and the variables that it returns."""

    parameters: tuple[str, ...]
    code: tuple[Code, ...]
    results: tuple[str, ...]


def body(schedule: Schedule) -> Body:
    """What each device does, as lines of Python."""
    equal, taken = equal_along(schedule.block, schedule.mesh), taken_names(schedule)
    writer = _Writer(schedule, equal, variables(schedule.block, taken), taken)
    code: list[Code] = [line for value in dict.fromkeys(schedule.inputs) for line in writer.input(value)]
    code += writer.steps()
    for output in dict.fromkeys(schedule.outputs):
        code += writer.output(output)
    return Body(
        tuple(writer.names[value] for value in schedule.inputs),
        tuple(code),
        tuple(writer.names[value] for value in schedule.outputs),
    )


@dataclass(frozen=True, slots=True)
class _Writer:
    schedule: Schedule
    equal: tuple[AxisSet, ...]
    names: tuple[str, ...]
    taken: frozenset[str]

    @property
    def mesh(self) -> Mesh:
        return self.schedule.mesh

    def input(self, value: int) -> list[Line]:
        """Partial sums arrive as blocks of an array of one more dim."""
        array, name = self.schedule.values[value], self._name(value)
        return [Line(name.name, one_block(name), str(array))] if array.sharding.unreduced else []

    def steps(self) -> list[Code]:
        numbered = enumerate(self.schedule.steps)
        return [replace(each, step=number) for number, step in numbered for each in self.step(step)]

    def step(self, step: Step) -> list[Code]:
        match step.op:
            case Einsum():
                return self._lines(step, self._product(step))
            case Apply():
                return self._lines(step, self._function(step, step.op))
            case Loop():
                return self._scan(step, step.op)
            case move:
                return self._lines(step, *self._move(step, move))

    def _scan(self, step: Step, loop: Loop) -> list[Code]:
        """What is fixed is read where it is; what is carried and scanned comes and goes in two tuples."""
        body, given = loop.body, self._operands(step)
        names = variables(body, self.taken, [name.name for name in given[: loop.fixed]])
        equal = equal_within(step, loop, self.equal, self.schedule.block, self.mesh)
        trip = _Writer(self.schedule.inside(loop), equal, names, self.taken)
        code = [*trip.unpacked(body.inputs[loop.fixed :], loop.carried), *trip.steps()]
        first = loop.fixed + loop.carried
        operands = Items(given[loop.fixed : first]), Items(given[first:])
        called = call("jax.lax.scan", Name(TRIP), *operands, length=Const(loop.trips))
        return [
            Scan(tuple(code), trip.packed(body.outputs, loop.carried), called),
            *self.unpacked(step.results, loop.carried),
        ]

    def packed(self, values: Sequence[int], carried: int) -> Expr:
        """`((x,), (H,))`: what is carried, and rows."""
        names = tuple(map(self._name, values))
        return Items((Items(names[:carried]), Items(names[carried:])))

    def unpacked(self, values: Sequence[int], carried: int) -> list[Line]:
        """`x = carried[0]`, `H = rows[0]`."""
        places = [*((CARRIED, k) for k in range(carried)), *((ROWS, k) for k in range(len(values) - carried))]
        return [
            Line(self.names[value], Index(Name(name), place), str(self.schedule.values[value]))
            for value, (name, place) in zip(values, places, strict=True)
        ]

    def output(self, value: int) -> list[Line]:
        """JAX types partial sums as varying values; an output has to say that they are that, or are the sum."""
        array, name = self.schedule.values[value], self._name(value)
        if not array.sharding.unreduced:
            return []
        axes = axes_argument(self.mesh.ordered(array.sharding.unreduced))
        cast = call("jax.lax.pcast", name, axes, to=Const("unreduced"))
        is_sum = left(array.sharding, self.mesh) != array.sharding
        return [Line(name.name, call("jax.lax.psum", name, axes) if is_sum else cast, str(array))]

    def _before(self, step: Step) -> Sharding:
        return self.schedule.values[step.operands[0]].sharding

    def _read(self, step: Step, exprs: list[Expr]) -> list[Expr]:
        """The first of several expressions reads the operand."""
        return [renamed(exprs[0], "", self._name(step.operands[0]).name), *exprs[1:]]

    def _move(self, step: Step, move: Move | Reshape) -> Sequence[Expr | Code]:
        operand, value = step.operands[0], self._name(step.operands[0])
        match move:
            case AllGather(axes, dim):
                return self._gathered(step, axes, dim)
            case JointGather(parts):
                # The last dim's axes are the major ones: its blocks then lie one after another on the first dim.
                axes = tuple(axis for _, minor in reversed(parts) for axis in minor)
                laid = spread(self._name(step.result), parts, len(self._before(step).dims), self.mesh)
                return [*self._gathered(step, axes, parts[0][0]), *laid, Name(JOINED)]
            case AllReduce(axes):
                return [call("jax.lax.psum", value, axes_argument(axes))]
            case ReduceScatter(axes, dim):
                return self._scattered(step, ((dim, axes),))
            case JointScatter(parts):
                return self._scattered(step, parts)
            case AllToAll(axes, source, dim):
                if is_thin(self.schedule.values[operand].local_shape(self.mesh), self.mesh.product(axes)):
                    after = self.schedule.values[step.result].sharding.dims
                    return self._read(step, joint_exchange(axes, self._before(step).dims, after, self.mesh))
                return [exchange(value, axes, source, dim)]
            case CollectivePermute():
                return [permute(value, move, self._before(step), self.mesh)]
            case Slice(axes, dim):
                return [slice_of(value, axes, dim, self.mesh.product(axes))]
            case JointExchange(axes, dims):
                return self._read(step, joint_exchange(axes, self._before(step).dims, dims, self.mesh))
            case DirectExchange():
                return [*direct_exchange(value, move, self._before(step), self.mesh), Name(JOINED)]
            case Reshape(_, joins):
                digits = self.schedule.values[operand if joins else step.result]
                return self._read(step, [reshape(move, digits, self.mesh)])
            case _:
                assert_never(move)

    def _scattered(self, step: Step, parts: Parts) -> list[Expr]:
        array = self.schedule.values[step.operands[0]]
        local, found = array.local_shape(self.mesh), list[Expr]()
        for some in one_after_another(parts, self.schedule.program):
            way = scattering(some, local, array.dtype, self.schedule.program)
            found += scatter(way, some, array, self.mesh)
            local = share_of(some, local, self.mesh)
        return self._read(step, found)

    def _gathered(self, step: Step, axes: Axes, dim: int) -> list[Expr]:
        # Where the result must be equal on all devices; elsewhere the plain form has the better gradient.
        equal = self.equal[step.result].intersection(axes)
        keywords: dict[str, Expr] = {"to": Const("invarying")} if equal else {}
        operand, program = step.operands[0], self.schedule.program
        local = self.schedule.values[operand].local_shape(self.mesh)
        if not (dim == len(local) - 1 > 1 and may_be_rows(local, program) and self._is_below(operand, dim)):
            return gather(self._name(operand), axes, dim, keywords, program)
        apart = len(local), local[dim - 1]
        return self._read(step, [rows(*apart), *gather(Name(""), axes, dim - 1, keywords, program), rows_apart(*apart)])

    def _is_below(self, value: int, dim: int) -> bool:
        """Whether a dim of a value is a digit that another of the same dim stands above."""
        for step in self.schedule.steps:
            if isinstance(step.op, Reshape):
                digits = self.schedule.values[step.operands[0] if step.op.joins else step.result]
                if digits.dims == self.schedule.values[value].dims:
                    of = digits_of(tuple(map(str, range(len(step.op.sizes)))), step.op)
                    return of[dim - 1] == of[dim]
        return False

    def _product(self, step: Step) -> Expr:
        arrays, result = self._arrays(step), self.schedule.values[step.result]
        return _rounded(local.einsum(arrays, self._operands(step), result), arrays, result)

    def _function(self, step: Step, op: Apply) -> Expr:
        return local.function(op, self._arrays(step), self._operands(step), self.schedule.values[step.result])

    def _operands(self, step: Step) -> tuple[Name, ...]:
        return tuple(map(self._name, step.operands))

    def _arrays(self, step: Step) -> tuple[Array, ...]:
        return operands_of(step, self.schedule.values)

    def _name(self, value: int) -> Name:
        return Name(self.names[value])

    def _lines(self, step: Step, *exprs: Expr | Code) -> list[Code]:
        """Expressions after the first read the one before, under the result's name. What is code stays as it is."""
        target = self.names[step.result]
        comments = [""] * (len(exprs) - 1) + [str(self.schedule.values[step.result])]
        return [
            expr if isinstance(expr, Line | Scan | Turns) else Line(target, renamed(expr, "", target), comment)
            for expr, comment in zip(exprs, comments, strict=True)
        ]


def _rounded(product: Expr, operands: tuple[Array, ...], result: Array) -> Expr:
    """Back from the type of the sum to the result's."""
    summing = local.summing_type(operands, result)
    return product if summing in (None, result.dtype) else local.as_type(product, result.dtype)
