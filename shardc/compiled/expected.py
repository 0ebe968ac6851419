"""What a compiled program is expected to have of each step: the collectives that its lowering calls, and their bytes.

ReduceScatter_X of small shares       an AllToAll, as it is emitted (`lowering.scatters`)
AllGather_X and Einsum as a ring      permutes, of the bytes of the gather
AllGather_X of f32 for products       half the bytes, since the products round it (`lowering.rounded`)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from shardc.ir.collectives import COLLECTIVE_NAMES
from shardc.ir.plan import Block, Done, Loop, Schedule, Together, ValueNumber, every_step
from shardc.ir.sharding import Axes
from shardc.lowering.as_one import AsOne, LeftToXla
from shardc.lowering.chunks import Chunks
from shardc.lowering.forms import Form, Looped, Lowering
from shardc.lowering.meeting import Meeting
from shardc.lowering.rings import Ring
from shardc.lowering.rounded import kept, rounded, rounded_ends

_NAMES = {move.facts.kind: name for name, move in COLLECTIVE_NAMES.items()}
Path: TypeAlias = tuple[int, ...]  # the places of the loops around a step, and its own


@dataclass(frozen=True, slots=True)
class Expected:
    """A collective of the plan, or what is done as one with others: what it sends, in all trips of loops around.

    `step` counts every step of the plan, a loop's own after it. `kinds` are those of the collectives that are emitted,
    in order; none where they are XLA's choice.
    """

    step: int
    name: str
    axes: Axes
    paths: tuple[Path, ...]
    kinds: tuple[str, ...]
    wire_bytes: int
    times: int = 1
    as_bf16: bool = False  # of f32, to which the products that read it round
    as_one: str = ""


def expected(schedule: Schedule, lowering: Lowering) -> tuple[tuple[Expected, ...], tuple[Expected, ...]]:
    """What each step sends by itself, and each group of steps that are done as one."""
    forms = dict(_forms(schedule.block, lowering))
    narrow = set(_narrowed(schedule.block))
    every = [*enumerate(every_step(schedule.block))]
    moves = [(number, done) for number, done in every if done.step.cost.wire_bytes and done.step.is_collective]
    as_one = {(place,) for group in schedule.together for place in group.places}
    alone = tuple(
        _alone(schedule, number, done, forms[done.path], done.path in narrow)
        for number, done in moves
        if done.path not in as_one
    )
    groups, how = [], dict(lowering.groups)
    for group in schedule.together:
        of = [(number, done) for number, done in moves if done.path in [(place,) for place in group.places]]
        groups.append(_as_one(schedule, group, how[group.first], of, narrow))
    return alone, tuple(groups)


def _alone(schedule: Schedule, number: int, done: Done, form: Form, as_bf16: bool) -> Expected:
    step = done.step
    assert not isinstance(form, Looped), "a loop is no collective"
    axes = step.op.axes if len(step.op.on) == 1 else schedule.mesh.ordered(step.op.axes)
    kinds = tuple(dict.fromkeys(_NAMES[call.kind] for call in form.calls(schedule.mesh)))
    return Expected(number, step.name, axes, (done.path,), kinds, _sent(done, as_bf16), done.times, as_bf16)


def _as_one(
    schedule: Schedule, group: Together, form: AsOne, of: list[tuple[int, Done]], narrow: set[Path]
) -> Expected:
    axes = schedule.mesh.ordered({axis for _, done in of for axis in done.step.op.axes})
    wire = sum(_sent(done, done.path in narrow) for _, done in of)
    name, paths = "+".join(done.step.name for _, done in of), tuple((place,) for place in group.places)
    return Expected(of[0][0], name, axes, paths, _kinds(form), wire, as_one=group.how.value)


def _kinds(form: AsOne) -> tuple[str, ...]:
    match form:
        case Ring():
            return ("CollectivePermute", *(["AllGather"] if form.gathered_after else []))
        case Meeting():
            return ("CollectivePermute",)
        case Chunks():
            return ("AllGather",)
        case LeftToXla():
            return ()
        case _:
            assert_never(form)


def _sent(done: Done, as_bf16: bool) -> int:
    return done.times * done.step.cost.wire_bytes // (2 if as_bf16 else 1)


def _forms(block: Block, lowering: Lowering, around: Path = ()) -> Iterator[tuple[Path, Form]]:
    for place, (step, form) in enumerate(zip(block.steps, lowering.forms, strict=True)):
        yield (*around, place), form
        if isinstance(step.op, Loop) and isinstance(form, Looped):
            yield from _forms(step.op.body, form.body, (*around, place))


def _narrowed(block: Block, ends: frozenset[ValueNumber] = frozenset(), around: Path = ()) -> Iterator[Path]:
    """The paths of the steps that leave f32 as bf16."""
    narrow, found = kept(block, ends), rounded(block, ends)
    for place, step in enumerate(block.steps):
        path = (*around, place)
        if isinstance(step.op, Loop):
            yield from _narrowed(step.op.body, rounded_ends(step, step.op, found), path)
        elif not narrow.isdisjoint(step.results):
            yield path
