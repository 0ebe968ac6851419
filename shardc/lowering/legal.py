"""What is legal of a lowering, in one table, as `ir.legal` has it of a program and of a schedule.

    LOWERING   target     what the program names; a loop's body is lowered for the same
               forms      one for each step, that does its operation: of a loop the forms of its body
               about      what a plain form says besides is of its operation, and names values, dims and operands there
               again      steps that are done once more, each once; what one waits for is there before, and held
               calls      over the axes of the operation, all of them; pieces divide a device's block
               blocks     what a gather, or a scatter, makes of a device's block is a device's block of the result
               together   steps done as one lie one behind the other, in no two groups, and may be done as one so

A check yields a `Fault` for each that it finds, of a legal schedule; of a legal lowering none does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import assert_never

from shardc.ir.functions import FUNCTIONS, Through
from shardc.ir.legal import SCHEDULE, Fault, Faults
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.plan import Apply, Block, Einsum, How, Loop, Schedule, Single, Step, last_uses, operands_of
from shardc.ir.sharding import Axes, spell_axes
from shardc.lowering.as_one import AsOne, LeftToXla, as_one
from shardc.lowering.chunks import Chunks
from shardc.lowering.forms import (
    Call,
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
    Scattered,
)
from shardc.lowering.meeting import Meeting
from shardc.lowering.repeats import repeats
from shardc.lowering.rings import Ring
from shardc.lowering.scattered import SHARE
from shardc.lowering.scatters import Along, Round, Scattering, share_of
from shardc.lowering.target import Shape, Target
from shardc.lowering.tpu import FOLD

_CUT = (Kind.SCATTER, Kind.EXCHANGE)  # calls that cut what they are given, a part for each device


def faults_of_lowering(schedule: Schedule, lowering: Lowering) -> Faults:
    """What is not legal of the forms of a schedule, by the first check that finds anything: later ones rely on it."""
    checks = (check(schedule, lowering) for check in LOWERING.values())
    return next((iter(found) for check in checks if (found := list(check))), iter(()))


def _every(block: Block, lowering: Lowering, around: str = "") -> Iterator[tuple[str, Block, Lowering]]:
    """The block and the bodies of its loops, each with its forms, and where it is; what has no form is left out."""
    yield around, block, lowering
    for place, (step, form) in enumerate(zip(block.steps, lowering.forms, strict=False)):
        if isinstance(step.op, Loop) and isinstance(form, Looped):
            yield from _every(step.op.body, form.body, f"{around}step {place}, Loop: ")


def _in_every_block(of: Callable[[Block, Lowering], Faults]) -> Callable[[Schedule, Lowering], Faults]:
    def check(schedule: Schedule, lowering: Lowering) -> Faults:
        for around, block, forms in _every(schedule.block, lowering):
            for fault in of(block, forms):
                yield Fault(around + fault.where, fault.reason)

    return check


def _of_every_step(of: Callable[[Step, Single, OneForm, Block, Mesh], Iterator[str]]) -> Callable[..., Faults]:
    """A check of each step that leaves one value."""

    def check(block: Block, lowering: Lowering) -> Faults:
        for place, (step, form) in enumerate(zip(block.steps, lowering.forms, strict=True)):
            if not isinstance(form, Looped) and not isinstance(step.op, Loop):
                for reason in of(step, step.op, form, block, lowering.target.mesh):
                    yield Fault(f"step {place}, {step.name}", reason)

    return _in_every_block(check)


def _target(schedule: Schedule, lowering: Lowering) -> Faults:
    for around, _, each in _every(schedule.block, lowering):
        if each.target != Target.of(schedule.program):
            yield Fault(f"{around}target", "is not the one that the program names")


def _forms(block: Block, lowering: Lowering) -> Faults:
    if len(block.steps) != len(lowering.forms):
        yield Fault("forms", f"{len(lowering.forms)} of {len(block.steps)} steps")
        return
    for place, (step, form) in enumerate(zip(block.steps, lowering.forms, strict=True)):
        if not _does(form, step):
            yield Fault(f"step {place}, {step.name}", f"is not done as {type(form).__name__} of these")


def _does(form: Form, step: Step) -> bool:
    """Whether a form does the operation of a step: the same one, or one of its kind along the same dims and axes."""
    match form:
        case Looped():
            return isinstance(step.op, Loop)
        case Plain(op) | Pieces(op) | InTurns(op):
            return op == step.op
        case InOneRound(op):
            return op == step.op and op.of_whole_blocks
        case InRounds(op):
            return op == step.op and not op.of_whole_blocks
        case Gathered(axes, dim, parts=parts):
            last_first = tuple(axis for _, some in reversed(parts) for axis in some)
            return _is_along(step, Kind.GATHER, parts) and (axes, dim) == (last_first, parts[0][0])
        case Scattered(stages):
            return _is_along(step, Kind.SCATTER, sorted(part for stage in stages for part in stage.dims))
        case _:
            assert_never(form)


def _is_along(step: Step, kind: Kind, parts: Sequence[tuple[int, Axes]]) -> bool:
    """Whether an operation of this kind is on these dims, in order, over the axes of all."""
    axes = tuple(axis for _, some in parts for axis in some)
    return step.op.facts.kind is kind and (step.op.on, step.op.axes) == (tuple(dim for dim, _ in parts), axes)


def _about(step: Step, op: Single, form: OneForm, block: Block, _: Mesh) -> Iterator[str]:
    match form:
        case Plain():
            yield from _of_product(step, op, form, block)
            if form.by_product and not _adds_up(step, op):
                yield "is no sum by itself, nor a function that adds up along one dim"
            if form.laid is not None and {*form.laid} != {*range(len(block.values[step.result].dims))}:
                yield f"has no dims to lie as {form.laid}"
            if form.wide is not None:
                yield from _wider(step, form.wide, block)
        case Gathered() | Scattered() | Pieces() | InTurns() | InOneRound() | InRounds():
            return
        case _:
            assert_never(form)


def _of_product(step: Step, op: Single, form: Plain, block: Block) -> Iterator[str]:
    """How a product of two operands is written: term by term, or in other ways that go together."""
    terms, twice = form.terms, form.twice
    if not (form.unasked or form.turned or terms is not None or twice is not None):
        return
    if not isinstance(op, Einsum) or len(step.operands) != 2:
        yield "is no product of two operands"
        return
    left, right = (array.dims for array in operands_of(step, block.values))
    if terms is not None and (terms not in left or terms not in right or terms in block.values[step.result].dims):
        yield f"{terms} is no dim of both operands that it sums"
    if twice not in (None, 0, 1):
        yield f"there is no operand {twice}"
    by_terms, in_rows = terms is not None, twice is not None
    if (by_terms and (form.unasked or form.turned or in_rows)) or (form.turned and in_rows):
        yield "is written in two ways that do not go together"


def _adds_up(step: Step, op: Single) -> bool:
    """Whether a step is a sum of one array, or a function over one dim that adds up exponentials."""
    if isinstance(op, Apply):
        return Through.SUM in FUNCTIONS[op.function].through and len(op.over) == 1
    return isinstance(op, Einsum) and len(step.operands) == 1


def _wider(step: Step, wide: int, block: Block) -> Iterator[str]:
    """A value has all dims of a mask that is made as wide, over the same axes; what leaves the block stays narrow."""
    if not 0 <= wide < len(block.values):
        yield f"there is no value {wide} to be as wide as"
        return
    made, other = block.values[step.result], block.values[wide]
    lies = dict(zip(other.dims, other.sharding.dims, strict=True))
    own = dict(zip(made.dims, made.sharding.dims, strict=True))
    if not own.items() < lies.items():
        yield f"{made} is not narrower than {other}"
    if step.result in block.outputs:
        yield f"{made} leaves the block"
    if step.op.facts.kind is not Kind.LOCAL:
        yield f"{made} is moved as it is, and made by no function"


def _again(block: Block, lowering: Lowering) -> Faults:
    last, may_be = last_uses(block), repeats(block)
    for place, count in Counter(place for place, _ in lowering.again).items():
        if place not in may_be:
            yield Fault(f"step {place}", "is done once more, and is none that was done before")
        if count > 1:
            yield Fault(f"step {place}", "is done once more twice")
    for place in may_be.keys() - dict(lowering.again).keys():
        yield Fault(f"step {place}", "was done before, and is none that is done once more")
    for place, wait in lowering.again:
        made = (value for step in block.steps[:place] for value in step.results)
        if wait is not None and wait not in [value for value in made if last.get(value, -1) >= place]:
            yield Fault(f"step {place}", f"waits for value {wait}, which is not made before and held there")


def _calls(step: Step, op: Single, form: OneForm, block: Block, mesh: Mesh) -> Iterator[str]:
    over = _over(form)
    if not over <= {*mesh.names}:
        yield f"goes over {spell_axes(sorted(over))}, which are not all of the mesh"
        return
    if op.facts.communicates and _wide(over, mesh) != _wide(op.axes, mesh):
        yield f"goes over {spell_axes(sorted(over))}, not over {spell_axes(op.axes)}"
    for call in form.calls(mesh):
        size, pieces = block.values[step.operands[0]].local_size(mesh) * call.above, _pieces(form, call, mesh)
        if size % pieces:
            yield f"{size} elements are not cut in {pieces} pieces"


def _over(form: OneForm) -> set[str]:
    """The axes that its calls name."""
    match form:
        case Gathered(rounds=rounds):
            return {axis for each in rounds for axis in each.axes}
        case Scattered(stages):
            return {axis for stage in stages for each in stage.rounds for axis in each.axes}
        case Plain(op) | Pieces(op) | InTurns(op) | InOneRound(op) | InRounds(op):
            return {*op.axes}
        case _:
            assert_never(form)


def _pieces(form: OneForm, call: Call, mesh: Mesh) -> int:
    """How many of equal size a call takes what it is given for; it may send several of them, as one."""
    match form:
        case InRounds(op):
            return op.cells
        case Plain() | Gathered() | Scattered() | Pieces() | InTurns() | InOneRound():
            return call.below * (call.over.parts(mesh) if call.kind in _CUT else 1)
        case _:
            assert_never(form)


def _wide(axes: Iterable[str], mesh: Mesh) -> set[str]:
    """Those of several devices."""
    return {axis for axis in axes if mesh.size(axis) > 1}


def _blocks(step: Step, _: Single, form: OneForm, block: Block, mesh: Mesh) -> Iterator[str]:
    match form:
        case Gathered():
            before, after = (block.values[value].local_shape(mesh) for value in (*step.operands, step.result))
            yield from _gathered(form, before, after, mesh)
        case Scattered(stages):
            before, after = (block.values[value].local_shape(mesh) for value in (*step.operands, step.result))
            yield from _scattered(stages, before, after, mesh)
        case Plain() | Pieces() | InTurns() | InOneRound() | InRounds():
            return  # whose operation is the step's, of which `ir.legal` says what it leaves
        case _:
            assert_never(form)


def _gathered(form: Gathered, before: Shape, after: Shape, mesh: Mesh) -> Iterator[str]:
    if not _are_all(form.rounds[::-1], form.axes, mesh):
        yield f"its rounds are not over {form.axes}, the minor axes first"
    counts = {dim: mesh.product(axes) for dim, axes in form.parts}
    if after != tuple(size * counts.get(dim, 1) for dim, size in enumerate(before)):
        yield f"of blocks of {before} are made no blocks of {after}"
    if form.rows is not None and (not form.dim == len(before) - 1 > 1 or form.rows != before[form.dim - 1]):
        yield f"there are no {form.rows} rows above its last dim"


def _are_all(rounds: Sequence[Round], axes: Axes, mesh: Mesh) -> bool:
    """Whether these, major to minor, are over these axes in order; or over the two parts of the one that is wide."""
    if any(each.split for each in rounds):
        splits = {each.split or () for each in rounds}
        is_whole = [each.is_major for each in rounds] == [True, False] and len(_wide(axes, mesh)) == 1
        return is_whole and len(splits) == 1 and prod(*splits) == mesh.product(axes)
    return tuple(axis for each in rounds for axis in each.axes) == axes


def _scattered(stages: Sequence[Scattering], before: Shape, after: Shape, mesh: Mesh) -> Iterator[str]:
    """Stage by stage: what is left out has one element, and what is scattered is cut as the shares are to lie."""
    local = before
    for stage in stages:
        share = share_of(stage.dims, local, mesh)
        if local != tuple(size * mesh.product(dict(stage.dims).get(dim, ())) for dim, size in enumerate(share)):
            yield f"a block of {local} has no {mesh.product(stage.axes)} shares"
        if any(local[dim] != 1 or dim in dict(stage.dims) for dim in stage.left_out):
            yield f"dims {stage.left_out} are left out, and are not all of one element"
        if not _are_all(stage.rounds, stage.axes, mesh):
            yield f"its rounds are not over {stage.axes}, the major axes first"
        kept = tuple(size for dim, size in enumerate(share) if dim not in stage.left_out)
        if not _may_lie(stage.without_ones, kept):
            yield f"shares of {kept} do not lie {stage.along.value}"
        local = share
    if local != after:
        yield f"of blocks of {before} are made no blocks of {after}"


def _may_lie(stage: Scattering, share: Shape) -> bool:
    """Whether shares of a shape may be scattered so, along the one dim or the dims of a stage."""
    (dim, _), *others = stage.dims
    match stage.along:
        case Along.STACKED | Along.EXCHANGED:
            return True
        case Along.PLAIN:
            return not others
        case Along.TURNED:
            return not others and len(share) > 1
        case Along.APART:
            return not others and (len(share), dim) == (2, 0) and share[0] % SHARE == 0
        case Along.TURNED_APART:
            return not others and (len(share), dim) == (2, 1) and share[1] % SHARE == 0
        case Along.FOLDED:
            return not others and len(share) == 1 and share[0] % (SHARE * FOLD) == 0
        case _:
            assert_never(stage.along)


def _together(schedule: Schedule, lowering: Lowering) -> Faults:
    found = list(SCHEDULE["together"](schedule))
    yield from found
    forms = dict(lowering.groups)
    for group in () if found else schedule.together:
        form = forms.get(group.first)
        is_cut_out = group.how is How.PARTITIONER
        if form is None or not _is_so(group.how, form) or (is_cut_out and as_one(schedule, group) is None):
            yield Fault(f"steps {group.first} to {group.last} as one", f"cannot be done as {group.how.value}")


def _is_so(how: How, form: AsOne) -> bool:
    match form:
        case Ring():
            return how is How.RING
        case Meeting():
            return how is How.RINGS
        case Chunks():
            return how is How.CHUNKS
        case LeftToXla():
            return how is How.PARTITIONER
        case _:
            assert_never(form)


LOWERING: dict[str, Callable[[Schedule, Lowering], Faults]] = {
    "target": _target,
    "forms": _in_every_block(_forms),
    "about": _of_every_step(_about),
    "again": _in_every_block(_again),
    "calls": _of_every_step(_calls),
    "blocks": _of_every_step(_blocks),
    "together": _together,
}
