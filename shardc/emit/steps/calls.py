"""The one description of every step's JAX call: printed it is source, applied it is the callable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from shardc.emit.allowed import BARRIER, CARRIED, JOINED, ROWS
from shardc.emit.exprs import Code, Const, Expr, Index, Items, Line, Name, Scan, axes_argument, call, reading, renamed
from shardc.emit.exprs import Loop as Turns
from shardc.emit.steps import extremes, local
from shardc.emit.steps.chunks import in_chunks
from shardc.emit.steps.exchanges import joint_exchange, reshape
from shardc.emit.steps.meeting import meeting
from shardc.emit.steps.moves import axes_moved, exchange, gathered, mask_of, permute, slice_of
from shardc.emit.steps.partial_sums import one_block
from shardc.emit.steps.pieces import direct_exchange
from shardc.emit.steps.rings import ring
from shardc.emit.steps.rounds import uneven_exchange
from shardc.emit.steps.scattering import scattered
from shardc.emit.steps.spec import left
from shardc.emit.steps.variables import taken_names, variables
from shardc.ir.collectives import AllReduce, AllToAll, CollectivePermute, Slice
from shardc.ir.digits import Reshape
from shardc.ir.dtypes import Kind
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Einsum, Loop, Schedule, Step, Together, operands_of
from shardc.ir.sharding import SUM, Array, Axes, Sharding
from shardc.lowering.as_one import AsOne, LeftToXla
from shardc.lowering.chunks import Chunks
from shardc.lowering.flow import untyped_along
from shardc.lowering.forms import (
    Form,
    Gathered,
    InOneRound,
    InRounds,
    InTurns,
    Looped,
    Lowering,
    OneForm,
    Pieces,
    Plain,
    PlainMove,
    PlainOp,
    Scattered,
)
from shardc.lowering.lower import lower
from shardc.lowering.masks import as_wide
from shardc.lowering.meeting import Meeting
from shardc.lowering.pairs import whole_blocks
from shardc.lowering.repeats import is_again
from shardc.lowering.rings import Ring


@dataclass(frozen=True, slots=True)
class Body:
    """A function's parameters, its lines and loops, and the variables that it returns."""

    parameters: tuple[str, ...]
    code: tuple[Code, ...]
    results: tuple[str, ...]


def body(schedule: Schedule, lowering: Lowering | None = None) -> Body:
    """What each device does, as lines of Python: the steps in their forms."""
    names = variables(schedule.block, taken_names(schedule), together=schedule.together)
    return with_names(schedule, names, lower(schedule) if lowering is None else lowering)


def with_names(schedule: Schedule, names: tuple[str, ...], lowering: Lowering, first: int = 0) -> Body:
    """The same, with these variables for the values; the steps are those of a program from `first` on."""
    writer = _Writer.of(schedule, lowering, names, taken_names(schedule), first)
    code: list[Code] = [line for value in dict.fromkeys(schedule.inputs) for line in writer.input(value)]
    code += writer.steps()
    for output in dict.fromkeys(schedule.outputs):
        code += writer.output(output)
    return Body(
        tuple(names[value] for value in schedule.inputs), tuple(code), tuple(names[value] for value in schedule.outputs)
    )


@dataclass(frozen=True, slots=True)
class _Writer:
    schedule: Schedule
    lowering: Lowering
    names: tuple[str, ...]
    taken: frozenset[str]
    first: int = 0

    @classmethod
    def of(
        cls, schedule: Schedule, lowering: Lowering, names: tuple[str, ...], taken: frozenset[str], first: int = 0
    ) -> _Writer:
        """Of steps whose values have the dims that they are made with."""
        block, values = schedule.block, [*schedule.block.values]
        for place, other in lowering.wide:
            value = block.steps[place].result
            values[value] = as_wide(values[value], values[other])
        return cls(replace(schedule, block=replace(block, values=tuple(values))), lowering, names, taken, first)

    @property
    def mesh(self) -> Mesh:
        return self.schedule.mesh

    def input(self, value: int) -> list[Line]:
        """Partial sums arrive as blocks of an array of one more dim."""
        array, name = self.schedule.values[value], self._name(value)
        return [Line(name.name, one_block(name), str(array))] if array.sharding.unreduced else []

    def steps(self) -> list[Code]:
        again, grouped = dict(self.lowering.again), self._grouped()
        found: list[Code] = []
        for number, (step, form) in enumerate(zip(self.schedule.steps, self.lowering.forms, strict=True)):
            if number in grouped:
                found += [replace(each, step=self.first + number) for each in grouped[number]]
                continue
            lines = self._apart(step, form, again[number]) if number in again else self.step(step, form)
            found += [replace(each, step=self.first + number) for each in lines]
        return found

    def _grouped(self) -> dict[int, list[Code]]:
        """The lines of what is done as one, for the first of its steps; none for the others."""
        found, forms = dict[int, list[Code]](), dict(self.lowering.groups)
        for group in self.schedule.together:
            found |= {place: [] for place in group.places}
            found[group.first] = self._as_one(group, forms[group.first])
        return found

    def _as_one(self, group: Together, form: AsOne) -> list[Code]:
        match form:
            case Ring():
                return ring(self.schedule, group, form, self.names)
            case Meeting():
                return meeting(self.schedule, group, form, self.names)
            case Chunks():
                return in_chunks(self.schedule, group, form, self.names, self._gather)
            case LeftToXla():
                raise AssertionError("what is left to XLA is in no part of the steps")
            case _:
                assert_never(form)

    def _gather(self, step: Step) -> Sequence[Expr | Code]:
        """The calls of a gather, whatever it gathers: a name that is empty."""
        form = self.lowering.forms[self.schedule.steps.index(step)]
        assert isinstance(form, Gathered)
        array = self.schedule.values[step.operands[0]]
        return gathered(replace(form, rows=None), array, self._name(step.result), self.mesh)

    def step(self, step: Step, form: Form) -> list[Code]:
        if isinstance(form, Looped):
            assert isinstance(step.op, Loop)
            return self._scan(step, step.op, form)
        return self._lines(step, *self._calls(step, form))

    def _apart(self, step: Step, form: Form, wait: int | None) -> list[Code]:
        """A step that was done before, on operands that the compiler must take for other values."""
        assert not isinstance(form, Looped)
        operand, read = self._name(step.operands[0]), self.names[step.result]
        both = operand if wait is None else Items((operand, self._name(wait)))
        held = call(BARRIER, both)
        calls = [] if is_again(step.op) else self._calls(step, form)
        exprs = [reading(expr, operand.name, read) for expr in calls]
        return self._lines(step, held if wait is None else Index(held, 0), *exprs)

    def _scan(self, step: Step, loop: Loop, form: Looped) -> list[Code]:
        """What is fixed is read where it is; what is carried and scanned comes and goes in two tuples."""
        body, given = loop.body, self._operands(step)
        names = variables(body, self.taken, [name.name for name in given[: loop.fixed]])
        trip = _Writer.of(self.schedule.inside(loop), form.body, names, self.taken)
        code = [*trip.unpacked(body.inputs[loop.fixed :], loop.carried), *trip.steps()]
        first = loop.fixed + loop.carried
        taken = Items(given[loop.fixed : first]), Items(given[first:])
        done = local.scan(
            code, trip.packed(body.outputs, loop.carried), taken, None if loop.is_of_chunks else loop.trips, loop.down
        )
        return [done, *self.unpacked(step.results, loop.carried)]

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
        """JAX types partial sums as varying values; an output has to say that they are that, or are the sum.

        What is equal and cannot say so leaves as blocks of an array of one more dim.
        """
        array, name = self.schedule.values[value], self._name(value)
        if untyped_along(self.schedule.block)[value]:
            return [Line(name.name, call("jnp.expand_dims", name, axis=Const(0)), f"{array}, a block for each device")]
        if not array.sharding.unreduced:
            return []
        axes = axes_argument(self.mesh.ordered(array.sharding.unreduced))
        cast = call("jax.lax.pcast", name, axes, to=Const("unreduced"))
        is_sum = left(array.sharding, self.mesh) != array.sharding
        return [Line(name.name, call("jax.lax.psum", name, axes) if is_sum else cast, str(array))]

    def _before(self, step: Step) -> Sharding:
        return self.schedule.values[step.operands[0]].sharding

    def _read(self, step: Step, exprs: Sequence[Expr | Code]) -> Sequence[Expr | Code]:
        """The first of several expressions reads the operand."""
        first, *others = exprs
        assert not isinstance(first, Line | Scan | Turns)
        return [renamed(first, "", self._name(step.operands[0]).name), *others]

    def _calls(self, step: Step, form: OneForm) -> Sequence[Expr | Code]:
        match form:
            case Plain(Apply() | Einsum() as op, apart, by_product=True):
                return [*self._by_product(step, op), *([call(BARRIER, Name(""))] if apart else [])]
            case Plain(op, apart, unasked, twice, terms, turned=turned, laid=laid):
                step = replace(step, operands=step.operands[::-1], seen=step.seen[::-1]) if turned else step
                done = self._unasked(step) if unasked else self._plain(step, op)
                done = done if terms is None else local.by_terms(done, self._arrays(step), terms)
                rows = [done] if twice is None else [local.with_vector_twice(done, twice), Index(Name(""), 0)]
                lies = [] if laid is None else [local.in_order(laid)]
                return [*rows, *lies, *([call(BARRIER, Name(""))] if apart else [])]
            case Gathered():
                operand = self.schedule.values[step.operands[0]]
                return self._read(step, gathered(form, operand, self._name(step.result), self.mesh))
            case Scattered(stages):
                array = self.schedule.values[step.operands[0]]
                return self._read(step, [each for stage in stages for each in scattered(stage, array, self.mesh)])
            case Pieces(op):
                after = self.schedule.values[step.result].sharding.dims
                return self._read(step, joint_exchange(op.axes, self._before(step).dims, after, self.mesh))
            case InTurns(op):
                pieces = direct_exchange(self._name(step.operands[0]), op, self._before(step), self.mesh)
                return [*pieces, Name(JOINED)]
            case InOneRound(op):
                sent = whole_blocks(self._before(step), op.dims, self.mesh)
                return [permute(self._name(step.operands[0]), op.axes, sent, self.mesh)]
            case InRounds(op):
                return self._read(step, uneven_exchange(self._name(step.result), op, self._before(step), self.mesh))
            case _:
                assert_never(form)

    def _plain(self, step: Step, op: PlainOp) -> Expr:
        match op:
            case Einsum():
                return self._product(step)
            case Apply():
                return self._function(step, op)
            case Reshape() | AllReduce() | AllToAll() | CollectivePermute() | Slice() | Mask():
                return self._moved(step, op, self._name(step.operands[0]))
            case _:
                assert_never(op)

    def _moved(self, step: Step, op: PlainMove, value: Name) -> Expr:
        match op:
            case AllReduce(axes, reduction):
                return self._reduced(step, axes, reduction, value)
            case AllToAll(axes, source, dim):
                return exchange(value, axes, source, dim)
            case CollectivePermute(axes=()):  # only axes of one device stand in another order
                return value
            case CollectivePermute():
                return permute(value, op.axes, axes_moved(op, self._before(step)), self.mesh)
            case Slice(axes, dim):
                return slice_of(value, axes, dim, self.mesh.product(axes))
            case Mask(axes):
                return mask_of(value, axes)
            case Reshape(_, joins):
                digits = self.schedule.values[step.operands[0] if joins else step.result]
                return renamed(reshape(op, digits, self.mesh), "", value.name)
            case _:
                assert_never(op)

    def _reduced(self, step: Step, axes: Axes, reduction: str, value: Name) -> Expr:
        if reduction == SUM:
            return call("jax.lax.psum", value, axes_argument(axes))
        made = next((each.op for each in self.schedule.steps if step.operands[0] in each.results), None)
        is_shift = isinstance(made, Apply) and made.function == "shift"
        is_float = self.schedule.values[step.result].dtype.kind is Kind.FLOAT
        return (extremes.with_gradient if is_float and not is_shift else extremes.plain)(value, axes, reduction)

    def _product(self, step: Step) -> Expr:
        arrays, result = self._arrays(step), self.schedule.values[step.result]
        return _rounded(local.einsum(arrays, self._operands(step), result), arrays, result)

    def _unasked(self, step: Step) -> Expr:
        return local.summed_as_is(self._arrays(step), self._operands(step), self.schedule.values[step.result])

    def _function(self, step: Step, op: Apply) -> Expr:
        return local.function(
            op, self._arrays(step), self._operands(step), self.schedule.values[step.result], self.mesh
        )

    def _by_product(self, step: Step, op: Apply | Einsum) -> Sequence[Expr | Code]:
        (array,), (name,), made = self._arrays(step), self._operands(step), step.result
        if isinstance(op, Einsum):
            return local.summed_by_product(array, name, self.schedule.values[made])
        return local.exponentials(op, array, name, self.schedule.values[made], self.names[made])

    def _operands(self, step: Step) -> tuple[Name, ...]:
        return tuple(map(self._name, step.operands))

    def _arrays(self, step: Step) -> tuple[Array, ...]:
        return operands_of(step, self.schedule.values)

    def _name(self, value: int) -> Name:
        return Name(self.names[value])

    def _lines(self, step: Step, *exprs: Expr | Code) -> list[Code]:
        """Expressions after the first read the one before, under the result's name. What is code stays as it is, and
        what has that name already needs no line."""
        target = self.names[step.result]
        comments = [""] * (len(exprs) - 1) + [str(self.schedule.values[step.result])]
        return [
            expr if isinstance(expr, Line | Scan | Turns) else Line(target, renamed(expr, "", target), comment)
            for expr, comment in zip(exprs, comments, strict=True)
            if expr != Name(target)
        ]


def _rounded(product: Expr, operands: tuple[Array, ...], result: Array) -> Expr:
    """Back from the type of the sum to the result's."""
    summing = local.summing_type(operands, result)
    return product if summing in (None, result.dtype) else local.as_type(product, result.dtype)
