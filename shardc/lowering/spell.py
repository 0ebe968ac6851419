"""A lowering as text: of each step its form, and the collectives that JAX is asked for.

C[I, K]{U_XY} = Einsum: plain
C[I_XY, K] = ReduceScatter: along the dim; over X of 33,554,432 B; over Y of 8,388,608 B
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from shardc.ir.plan import Block, Loop, Schedule
from shardc.ir.sharding import Array, spell_axes
from shardc.lowering.forms import (
    Call,
    Form,
    Gathered,
    InOneRound,
    InRounds,
    InTurns,
    Looped,
    Lowering,
    Pieces,
    Plain,
    Scattered,
)
from shardc.lowering.scatters import Round
from shardc.lowering.together import spelled


def print_lowering(schedule: Schedule, lowering: Lowering) -> str:
    """What it is lowered for, and its steps."""
    found = lowering.target
    sides = "x".join(map(str, found.sides or ()))
    named = f"{found.generation}, {sides}" if found.names_slice else "no slice that is named"
    as_one = (f"as one: {spelled(schedule, group)}" for group in schedule.together)
    return "\n".join([f"for {named}", *_lines(schedule.block, lowering), *as_one])


def _lines(block: Block, lowering: Lowering) -> Iterator[str]:
    again = dict(lowering.again)
    for place, (step, form) in enumerate(zip(block.steps, lowering.forms, strict=True)):
        calls = [_call(call, block.values[step.operands[0]], lowering) for call in form.calls(lowering.target.mesh)]
        left = ", ".join(str(block.values[value]) for value in step.results)
        how = [*words(form), *(["once more"] if place in again else [])]
        yield f"{left} = {step.name}: {'; '.join([', '.join(how), *calls])}"
        if isinstance(form, Looped) and isinstance(step.op, Loop):
            yield from ("  " + line for line in _lines(step.op.body, form.body))


def words(form: Form) -> Iterator[str]:
    """What a form is called."""
    match form:
        case Plain(_, apart, unasked, twice, terms, by_product, wide, turned, laid):
            yield "plain"
            yield from ["behind a barrier"] if apart else []
            yield from ["summed as the chip does"] if unasked else []
            yield from ["a vector read twice"] if twice is not None else []
            yield from [f"term by term of {terms}"] if terms is not None else []
            yield from ["summed by a product"] if by_product else []
            yield from ["as wide as what reads it"] if wide is not None else []
            yield from ["the second operand first"] if turned else []
            yield from [f"its dims laid as {', '.join(map(str, laid))}"] if laid is not None else []
        case Gathered():
            yield "plain" if len(form.spelled) == 1 else "in rounds"
            yield from ["as rows"] if form.rows is not None else []
            yield from ["laid piece by piece"] if len(form.parts) > 1 else []
            yield from ["equal on all devices"] if form.to_equal else []
        case Scattered(stages):
            for stage in stages:
                yield stage.along.value + (", in rounds" if len(stage.rounds) > 1 else "")
        case Pieces():
            yield "pieces to the front"
        case InTurns(op):
            yield f"in {op.rounds} turns"
        case InOneRound():
            yield "whole blocks in one permute"
        case InRounds(op):
            yield f"in {len(op.rounds)} rounds, by tables"
        case Looped():
            yield "a loop"
        case _:
            assert_never(form)


def _call(call: Call, array: Array, lowering: Lowering) -> str:
    size = array.local_bytes(lowering.target.mesh) * call.above // call.below
    often = f"{call.times} × " if call.times > 1 else ""
    return f"over {_over(call.over)} of {often}{size:,} B"


def _over(each: Round) -> str:
    if each.split is None:
        return spell_axes(each.axes)
    major, minor = each.split
    return f"{spell_axes(each.axes)}'s " + (f"major {major}" if each.is_major else f"minor {minor}")
