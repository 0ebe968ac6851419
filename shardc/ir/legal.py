"""What is legal of each form, in one table, asked after every pass in tests and with `--passes`.

    SCHEDULE   arrays     axes of the mesh, each once over sharded and unreduced together; sizes that they divide
               order      a value is written once, and before it is read
               steps      each leaves what its operation leaves (`ir.collectives.apply`, `ir.laws`); a loop's carried
                          arrays lie as they did
               interface  inputs and outputs lie as the program says
               together   steps done as one lie one behind the other, in no two groups, one product among them
    PROGRAM    shardings  the same of every array that the text names
               names      what is used is an input, or bound by a statement before

A check yields a `Fault` for each that it finds; of a legal form none does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from shardc.ir.calls import fills_zeros
from shardc.ir.collectives import Move, apply
from shardc.ir.digits import Reshape
from shardc.ir.expressions import Pattern, uses
from shardc.ir.functions import MADE_OF_NONE
from shardc.ir.laws import function_law, product_law, reshape_law
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove, Kind
from shardc.ir.plan import Apply, Block, Einsum, Loop, Schedule, Single, Step, every_block, operands_of
from shardc.ir.program import For, Program, Statement, bindings_of, every_statement
from shardc.ir.sharding import Array, Sharding, with_dim
from shardc.ir.sizes import classes


@dataclass(frozen=True, slots=True)
class Fault:
    """What is not legal, and where: `step 2, AllGather: A[I_X, J] → A[I, J]`."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


Faults: TypeAlias = Iterator[Fault]
Same: TypeAlias = Sequence[list[str]]  # dims that name the places of one array


def faults_of(form: Program | Schedule) -> Faults:
    """What is not legal of a form, by the first check that finds anything: later ones rely on it."""
    match form:
        case Program():
            checks = (of_program(form) for of_program in PROGRAM.values())
        case Schedule():
            checks = (of_schedule(form) for of_schedule in SCHEDULE.values())
        case _:
            assert_never(form)
    return next((iter(found) for check in checks if (found := list(check))), iter(()))


def _in_every_block(of: Callable[[Block, Schedule], Faults]) -> Callable[[Schedule], Faults]:
    """A check of a block, as one of a schedule: of its block and of the bodies of its loops."""

    def check(schedule: Schedule) -> Faults:
        for around, block in every_block(schedule.block):
            loops = "".join(f"step {place}, Loop: " for place in around)
            for fault in of(block, schedule):
                yield Fault(loops + fault.where, fault.reason)

    return check


def _arrays(block: Block, schedule: Schedule) -> Faults:
    mesh = schedule.mesh
    for number, array in enumerate(block.values):
        if not len(array.dims) == len(array.shape) == array.sharding.rank:
            counts = f"{len(array.dims)} dims, {len(array.shape)} sizes, {array.sharding.rank} subscripts"
            yield Fault(f"value {number}, {array.name}", counts)
            continue
        where = f"value {number}, {array}"
        found = list(_sharding(where, array.dims, array.sharding, mesh))
        if not found and not array.sharding.divides(array.shape, mesh):
            found = [Fault(where, f"its axes do not divide the shape {array.shape}")]
        yield from found


def _order(block: Block, _: Schedule) -> Faults:
    """A value is written once, and before it is read."""
    written = list(block.inputs)
    for number, step in enumerate(block.steps):
        where = f"step {number}, {step.name}"
        for value in (*step.operands, *step.results):
            if not 0 <= value < len(block.values):
                yield Fault(where, f"there is no value {value}")
        for value in step.operands:
            if value not in written:
                yield Fault(where, f"reads value {value} before it is written")
        written += step.results
    for value, count in Counter(written).items():
        if count > 1:
            yield Fault(f"value {value}, {block.values[value]}", "is written twice")
    for value in block.outputs:
        if value not in written:
            yield Fault(f"output {value}", "is never written")


def _steps(block: Block, schedule: Schedule) -> Faults:
    same = classes(schedule.program.renamed)
    for number, step in enumerate(block.steps):
        where = f"step {number}, {step.name}"
        if isinstance(step.op, Loop):
            yield from (Fault(where, reason) for reason in _loop(block, step, step.op, same))
        elif len(step.results) != 1:
            yield Fault(where, f"leaves {len(step.results)} values")
        else:
            yield from _step(where, block, step, step.op, schedule.mesh)


def _loop(block: Block, step: Step, loop: Loop, same: Same) -> Iterator[str]:
    """What is carried lies the same before, after and from trip to trip; what is scanned and stacked lacks its dim."""
    operands, results = [block.values[v] for v in step.operands], [block.values[v] for v in step.results]
    inputs, outputs = ([loop.body.values[v] for v in ends] for ends in (loop.body.inputs, loop.body.outputs))
    if len(operands) != len(inputs) or len(results) != len(outputs) or loop.trips < 1:
        counts = f"{len(operands)} operands for {len(inputs)}, {len(results)} results of {len(outputs)}"
        yield f"{counts}, {loop.trips} trips"
        return
    first = loop.fixed + loop.carried
    carried = zip(outputs[: loop.carried], inputs[loop.fixed : first], strict=True)
    ends = [*zip(operands[:first], inputs[:first], strict=True), *zip(results, outputs[: loop.carried], strict=False)]
    for one, other in [*ends, *carried]:
        if not _alike(one, other, same):
            yield f"{one} outside or after a trip, {other} inside or before it"
    rows = [*zip(operands[first:], inputs[first:], strict=True)]
    for whole, row in [*rows, *zip(results[loop.carried :], outputs[loop.carried :], strict=True)]:
        if not _alike(whole, with_dim(row, loop.dim, loop.trips), same):
            yield f"{row} is not {whole} at an index of {loop.dim}"


def _alike(one: Array, other: Array, same: Same) -> bool:
    """But for its name, and for what it names its dims."""
    return _are_places(one.dims, other.dims, same) and replace(one, name=other.name, dims=other.dims) == other


def _are_places(dims: Sequence[str], others: Sequence[str], same: Same) -> bool:
    """Whether these name the same dims, one by one: `y[B, S]` may be what was `x[B, T]`."""
    pairs = zip(dims, others, strict=False)
    return len(dims) == len(others) and all(
        one == other or any(one in some and other in some for some in same) for one, other in pairs
    )


def _step(where: str, block: Block, step: Step, op: Single, mesh: Mesh) -> Faults:
    if step.seen and [*map(len, step.seen)] != [len(block.values[value].dims) for value in step.operands]:
        yield Fault(where, f"its operands are not of the dims {step.seen}")
        return
    operands, result = operands_of(step, block.values), block.values[step.result]
    where = f"{where}: {', '.join(map(str, operands))} → {result}"
    left = _left_by(op, operands, result, mesh)
    if isinstance(left, str):
        yield Fault(where, left)
    elif left != result.sharding:
        found = replace(result, sharding=left) if left.rank == len(result.dims) else f"{left.rank} dims"
        yield Fault(where, f"the step leaves {found}")
    sizes: dict[str, int] = {}
    for array in (*operands, result):
        for dim, size in zip(array.dims, array.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                yield Fault(where, f"dim {dim} has the sizes {sizes[dim]} and {size}")


def _left_by(op: Single, operands: Sequence[Array], result: Array, mesh: Mesh) -> Sharding | str:
    """The sharding that an operation leaves, or why it is not allowed."""
    match op:
        case Reshape(sizes, joins):
            one, other = (result, operands[0]) if joins else (operands[0], result)
            return result.sharding if (why := reshape_law(one, other, sizes, mesh)) is None else why
        case Einsum():
            return product_law([a.dims for a in operands], [a.sharding for a in operands], result.dims)
        case Apply(function, numbers=numbers) if function in MADE_OF_NONE:
            may_lie_so = fills_zeros(function, numbers) or not result.sharding.unreduced
            return result.sharding if not operands and may_lie_so else "it is made of no operand, and is no partial sum"
        case Apply(function, over, numbers):
            dims = [a.dims for a in operands]
            return function_law(function, over, dims, [a.sharding for a in operands], result.dims, numbers)
        case move:  # a Move, by the type of what it is given to
            return _left_by_move(move, operands, result, mesh)


def _left_by_move(move: Move, operands: Sequence[Array], result: Array, mesh: Mesh) -> Sharding | str:
    if len(operands) != 1 or (operands[0].dims, operands[0].dtype) != (result.dims, result.dtype):
        return "a move keeps the dims and the type of its one operand"
    before = operands[0].sharding
    try:
        after = apply(move, before, mesh)
    except IllegalMove as refusal:
        return str(refusal)
    if move.facts.kind is Kind.PERMUTE and after.dims == before.dims:
        return "the permute moves nothing"
    return after


def _interface(schedule: Schedule) -> Faults:
    program = schedule.program
    for what, found, wanted in (
        ("inputs", schedule.inputs, program.inputs),
        ("outputs", schedule.outputs, program.outputs),
    ):
        if len(found) != len(wanted):
            yield Fault(what, f"{len(found)} of the schedule, {len(wanted)} of the program")
    same = classes(program.renamed)
    for value, given in zip(schedule.inputs, program.inputs, strict=False):
        yield from _lies_as(f"input {given.name}", schedule.values[value], given.dims, given.pattern, [])
    for value, number in zip(schedule.outputs, program.outputs, strict=False):
        made = program.results[number]
        yield from _lies_as(f"output {made.name}", schedule.values[value], made.dims, made.pattern, same)


def _together(schedule: Schedule) -> Faults:
    """One product to a group, with moves beside it."""
    end = 0
    for group in schedule.together:
        where, steps = f"steps {group.first} to {group.last} as one", schedule.steps[group.first : group.last + 1]
        if not end <= group.first < group.last < len(schedule.steps):
            yield Fault(where, f"they begin before step {end}, are one, or go on behind step {len(schedule.steps) - 1}")
        elif sum(isinstance(step.op, Einsum) for step in steps) != 1:
            yield Fault(where, "one of them must be a product, and no more")
        elif not all(isinstance(step.op, Einsum) or step.is_collective for step in steps):
            yield Fault(where, "beside the product there are moves alone")
        end = group.last + 1


def _lies_as(where: str, array: Array, dims: tuple[str, ...], pattern: Pattern, same: Same) -> Faults:
    if not _are_places(array.dims, dims, same):
        yield Fault(where, f"{array} has the dims {array.dims}, not {dims}")
    elif not pattern.matches(array.sharding):
        yield Fault(where, f"{array} does not lie as {pattern.spell(dims)}")


def _shardings(program: Program) -> Faults:
    """Of inputs, uses and results: a dim that is left to the planner has no axes yet."""
    for given in program.inputs:
        yield from _pattern(f"input {given.name}", given.dims, given.pattern, program.mesh)
    for made in every_statement(program):
        for use in uses(made.expr):
            if use.pattern is not None:
                yield from _pattern(f"{made.text}: {use.name}", use.dims, use.pattern, program.mesh)
        yield from _pattern(f"{made.text}: {made.name}", made.dims, made.pattern, program.mesh)


def _names(program: Program) -> Faults:
    """What a loop's body reads of outside is among what the loop takes, and that is known outside."""
    known = {given.name: given.dims for given in program.inputs}
    for made in program.statements:
        if isinstance(made, For):
            yield from (Fault(made.text, f"{name} is not known before") for name in _unknown(made, known))
            yield from _names(program.inside(made))
        else:
            yield from _uses(made, known)
        known |= {bound.name: bound.dims for bound in bindings_of(made)}
    for name, count in Counter(program.returns or ()).items():
        if count > 1 or name not in known:
            yield Fault("return", f"{name} is named twice" if count > 1 else f"there is no {name}")


def _unknown(loop: For, known: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [array.name for array in loop.takes if array.name not in known]


def _uses(made: Statement, known: Mapping[str, tuple[str, ...]]) -> Faults:
    for use in uses(made.expr):
        if use.name not in known:
            yield Fault(made.text, f"{use.name} is neither an input nor bound before")
        elif len(use.dims) != len(known[use.name]):
            yield Fault(made.text, f"{use.name} has the dims {known[use.name]}, not {use.dims}")


def _pattern(where: str, dims: tuple[str, ...], pattern: Pattern, mesh: Mesh) -> Faults:
    if len(dims) != len(pattern.dims):
        yield Fault(where, f"{len(dims)} dims, {len(pattern.dims)} subscripts")
        return
    yield from _sharding(where, dims, Sharding(tuple(axes or () for axes in pattern.dims), pattern.unreduced), mesh)


def _sharding(where: str, dims: tuple[str, ...], sharding: Sharding, mesh: Mesh) -> Faults:
    if len(set(dims)) != len(dims):
        yield Fault(where, "a dim occurs twice")
    for axis, count in Counter([*sharding.sharded, *sharding.unreduced]).items():
        if axis not in mesh:
            yield Fault(where, f"axis {axis} is not of the mesh")
        if count > 1:
            yield Fault(where, f"axis {axis} is used twice")


PROGRAM: dict[str, Callable[[Program], Faults]] = {"shardings": _shardings, "names": _names}
SCHEDULE: dict[str, Callable[[Schedule], Faults]] = {
    "arrays": _in_every_block(_arrays),
    "order": _in_every_block(_order),
    "steps": _in_every_block(_steps),
    "interface": _interface,
    "together": _together,
}
