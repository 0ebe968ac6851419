"""The form of every step: decided here, once.

`form` says it of a move from what a price depends on: the move, the block, its type, the target. `lower` adds what the
steps around one say, which changes no price: where a gather has to leave equal values, which digits become rows, which
sums are read through a barrier, and how products are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, assert_never

from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    DirectExchange,
    JointExchange,
    JointGather,
    JointScatter,
    ReduceScatter,
    Slice,
    UnevenExchange,
)
from shardc.ir.digits import Reshape, digits_of
from shardc.ir.dtypes import Kind
from shardc.ir.masks import Mask
from shardc.ir.plan import Apply, Block, Einsum, Loop, Schedule, Single, Step, ValueNumber
from shardc.ir.sharding import Array, Axes
from shardc.lowering import tpu
from shardc.lowering.flow import AxisSet, equal_along, equal_within, waited_for
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
    Scattered,
)
from shardc.lowering.scatters import AxesOfDims, LocalBlock, Round, block_of, rounds, scatterings
from shardc.lowering.target import Shape, Target
from shardc.lowering.timed import makes_products_again, reads_last_dim_second, stores_narrow_masks

if TYPE_CHECKING:
    from shardc.lowering.together import Segment


def lower(schedule: Schedule) -> Lowering:
    """The forms of a schedule's steps, and of what is done as one. A program that is cut has those of its parts: what
    crosses a cut has to be of a type that can."""
    target = Target.of(schedule.program)
    if schedule.together:
        return _in_parts(schedule, target)
    block, equal = schedule.block, equal_along(schedule.block, schedule.mesh)
    return _lowering(block, equal, target, waited_for(block, equal))


def _in_parts(schedule: Schedule, target: Target) -> Lowering:
    from shardc.lowering.together import segments

    parts = [_part(each, schedule.block, target) for each in segments(schedule)]
    return Lowering(
        target,
        tuple(form for part in parts for form in part.forms),
        tuple(again for part in parts for again in part.again),
        tuple(group for part in parts for group in part.groups),
    )


def _part(segment: Segment, whole: Block, target: Target) -> Lowering:
    """Of a part of a program, by the places of its steps in all. What it does once more may have been done before it,
    and waits for nothing that it is not given."""
    from shardc.lowering.as_one import LeftToXla, as_one

    schedule, first = segment.schedule, segment.first
    places = range(first, first + len(schedule.steps))
    block, equal = schedule.block, equal_along(schedule.block, schedule.mesh)
    held = {*block.inputs, *(value for step in block.steps for value in step.results)}
    again = {} if segment.left else waited_for(whole, equal, held)
    found = _lowering(block, equal, target, {place: value for place, value in again.items() if place in places})
    if segment.left:
        return replace(found, groups=((first, LeftToXla()),))
    groups = ((first + group.first, as_one(schedule, group)) for group in schedule.together)
    return replace(found, groups=tuple((place, form) for place, form in groups if form is not None))


def _lowering(
    block: Block, equal: Sequence[AxisSet], target: Target, again: Mapping[int, ValueNumber | None]
) -> Lowering:
    forms = tuple(_form(step, block, equal, target) for step in block.steps)
    about = _About.of(block, target)
    told = tuple(_told(step, each, about) for step, each in zip(block.steps, forms, strict=True))
    return Lowering(target, told, tuple(again.items()))


class _About(NamedTuple):
    """What is said of results beside the form of their step, by number."""

    apart: frozenset[int] = frozenset()
    unasked: frozenset[int] = frozenset()
    twice: Mapping[int, int | None] = MappingProxyType({})
    terms: Mapping[int, str | None] = MappingProxyType({})
    by_product: frozenset[int] = frozenset()
    wide: Mapping[int, int] = MappingProxyType({})
    turned: frozenset[int] = frozenset()
    laid: Mapping[int, tuple[int, ...]] = MappingProxyType({})

    @classmethod
    def of(cls, block: Block, target: Target) -> _About:
        laid = _in_order(block, target)
        apart = frozenset[int]() if target.is_plain else _apart(block, target, laid)
        if not target.names_slice:
            return cls(apart)
        terms, waited = _terms(block, target)
        unasked = _unasked(block).difference(number for number, dim in terms.items() if dim is not None)
        by_product, wide = _by_product(block, target), _wide(block, target)
        twice = _twice(block, target)
        told = {number for each in (terms, twice) for number, how in each.items() if how is not None}
        turned = _turned(block, target) - told
        return cls(apart | waited, unasked, twice, terms, by_product, wide, turned, laid)


def _told(step: Step, found: Form, about: _About) -> Form:
    match found:
        case Plain():
            made, (apart, unasked, twice, terms, by_product, wide, turned, laid) = step.result, about
            told = replace(found, apart=made in apart, unasked=made in unasked, by_product=made in by_product)
            told = replace(told, twice=twice.get(made), terms=terms.get(made), wide=wide.get(made))
            return replace(told, turned=made in turned, laid=laid.get(made))
        case Gathered() | Scattered() | Pieces() | InTurns() | InOneRound() | InRounds() | Looped():
            return found
        case _:
            assert_never(found)


def _apart(block: Block, target: Target, laid: Mapping[int, tuple[int, ...]]) -> frozenset[int]:
    from shardc.lowering.apart import met_apart, products_apart, sums_apart

    sums = sums_apart(block) if tpu.joins_sum_and_reader(target) else frozenset[int]()
    met = met_apart(block, laid) if tpu.sums_what_meets_tiles(target) else frozenset[int]()
    return sums | met | (products_apart(block) if makes_products_again(target) else frozenset[int]())


def _in_order(block: Block, target: Target) -> Mapping[int, tuple[int, ...]]:
    if not target.names_slice:
        return {}
    from shardc.lowering.laid import laid_in_order

    return laid_in_order(block, target)


def _unasked(block: Block) -> frozenset[int]:
    from shardc.lowering.unasked import unasked

    return unasked(block)


def _twice(block: Block, target: Target) -> dict[int, int | None]:
    from shardc.lowering.vectors import vector_of

    return {step.result: vector_of(step, block, target.mesh) for step in block.steps if isinstance(step.op, Einsum)}


def _terms(block: Block, target: Target) -> tuple[dict[int, str | None], frozenset[int]]:
    """Of each product the dim whose numbers are its terms, and which of these products are waited for."""
    from shardc.lowering.small import terms_of, waited_for

    products = (step for step in block.steps if isinstance(step.op, Einsum))
    found: dict[int, str | None] = {step.result: terms_of(step, block, target.mesh) for step in products}
    return found, waited_for(found, block)


def _by_product(block: Block, target: Target) -> frozenset[int]:
    found = frozenset[int]()
    if any(isinstance(step.op, Apply) and (step.op.over or step.op.function == "exp") for step in block.steps):
        from shardc.lowering.shares import by_product

        found = by_product(block, target.mesh)
    if any(isinstance(step.op, Einsum) and len(step.operands) == 1 for step in block.steps):
        from shardc.lowering.ones import by_ones

        found |= by_ones(block, target).keys()
    return found


def _wide(block: Block, target: Target) -> Mapping[int, int]:
    truths = (value for step in block.steps for value in step.results if block.values[value].dtype.kind is Kind.BOOL)
    if next(truths, None) is None or not stores_narrow_masks(target):
        return {}
    from shardc.lowering.masks import wider

    return wider(block)


def _turned(block: Block, target: Target) -> frozenset[int]:
    if not reads_last_dim_second(target) or not any(len(block.values[value].dims) > 2 for value in block.outputs):
        return frozenset()
    from shardc.lowering.turned import turned

    return turned(block, target.mesh)


def form(op: Single, block: LocalBlock | None, target: Target) -> OneForm:
    """The form of an operation on a device's block; None: one of large whole tiles."""
    match op:
        case Einsum() | Apply() | Reshape() | AllReduce() | CollectivePermute() | Slice() | Mask():
            return Plain(op)
        case AllToAll():
            is_thin = block is not None and tpu.is_thin(block.shape, target.mesh.product(op.axes))
            return Pieces(op) if is_thin else Plain(op)
        case JointExchange():
            return Pieces(op)
        case DirectExchange():
            return InTurns(op)
        case UnevenExchange():
            return InOneRound(op) if op.of_whole_blocks else InRounds(op)
        case AllGather(axes, dim):
            return Gathered(axes, dim, _gather_rounds(axes, target), ((dim, axes),))
        case JointGather(parts):
            axes = _of_last_dim_first(parts)
            return Gathered(axes, parts[0][0], _gather_rounds(axes, target), parts)
        case ReduceScatter(axes, dim):
            return Scattered(scatterings(((dim, axes),), block, target))
        case JointScatter(parts):
            return Scattered(scatterings(parts, block, target))
        case _:
            assert_never(op)


def _form(step: Step, block: Block, equal: Sequence[AxisSet], target: Target) -> Form:
    if isinstance(step.op, Loop):
        within = equal_within(step, step.op, equal, block, target.mesh)
        return Looped(_lowering(step.op.body, within, target, waited_for(step.op.body, within)))
    before = block.values[(*step.operands, step.result)[0]]
    local = block_of(before, target.mesh)
    found = form(step.op, local, target)
    match found:
        case Gathered():
            return _placed(found, before, local.shape, equal[step.result], block, target)
        case Scattered():
            return _laid(found, step, block, target)
        case Plain() | Pieces() | InTurns() | InOneRound() | InRounds():
            return found
        case _:
            assert_never(found)


def _placed(found: Gathered, before: Array, local: Shape, equal: AxisSet, block: Block, target: Target) -> Gathered:
    """A gather where it stands.

    Where the result must be equal on all devices JAX is told so; elsewhere the plain form has the better gradient.
    """
    dim = found.dim
    by_rows = dim == len(local) - 1 > 1 and tpu.may_be_rows(local, target) and _is_below(before, dim, block)
    return replace(found, to_equal=not equal.isdisjoint(found.axes), rows=local[dim - 1] if by_rows else None)


def _laid(found: Scattered, step: Step, block: Block, target: Target) -> Scattered:
    """A scatter where it stands: of given sums it is told how to lie."""
    if not target.names_slice:
        return found
    from shardc.lowering.fusion import is_of_product

    first, *others = found.stages
    return Scattered((first.told(target, is_of_product(step.operands[0], block)), *others))


def _gather_rounds(axes: Axes, target: Target) -> tuple[Round, ...]:
    """The minor axis comes first: `A[I_XYZ] → A[I_XY] → A[I]`."""
    return rounds(axes, target)[::-1] if tpu.is_not_gathered_over(axes, target) else (Round(axes),)


def _of_last_dim_first(parts: AxesOfDims) -> Axes:
    """Of a gather over several dims the last one's axes are the major ones: its blocks lie one after another then."""
    return tuple(axis for _, minor in reversed(parts) for axis in minor)


def _is_below(array: Array, dim: int, block: Block) -> bool:
    """Whether a dim of an array is a digit that another of the same dim stands above."""
    for step in block.steps:
        if isinstance(step.op, Reshape):
            digits = block.values[step.operands[0] if step.op.joins else step.result]
            if digits.dims == array.dims:
                of = digits_of(tuple(map(str, range(len(step.op.sizes)))), step.op)
                return of[dim - 1] == of[dim]
    return False
