"""A program in parts: what runs under `shard_map`, and what is left to XLA's partitioner, each a function.

    @jax.shard_map(in_specs=…, out_specs=…)
    def steps(In): …
    @jax.sharding.auto_axes(out_sharding=P("X", "Y"))
    def product(In, W):
        Out = jnp.einsum("bd,df->bf", In, W)  # Out[B_X, F_Y]
        return Out

Left to the partitioner a move is nothing: it changes where values lie, and not what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardc.emit.allowed import PRODUCT, RUN, WHOLE, part_name
from shardc.emit.exprs import Line, Name
from shardc.emit.steps.calls import Body, with_names
from shardc.emit.steps.products import product
from shardc.emit.steps.variables import taken_names, variables
from shardc.emit.steps.whole import whole_body
from shardc.ir.plan import Einsum, How, Schedule, ValueNumber, operands_of
from shardc.ir.sharding import spell_axes
from shardc.lowering.forms import Lowering
from shardc.lowering.lower import lower
from shardc.lowering.together import Segment, segments


@dataclass(frozen=True, slots=True)
class Part:
    """A function of the emitted module, and the schedule of its steps."""

    name: str
    schedule: Schedule
    body: Body
    left: bool  # to XLA's partitioner

    @property
    def done(self) -> str:
        """`AllGather_X, Einsum`: what XLA does of the schedule in one."""
        if self.schedule.by_xla:
            return "every collective is XLA's choice"
        names = [step.name + (f"_{spell_axes(step.op.axes)}" if step.op.axes else "") for step in self.schedule.steps]
        return f"{', '.join(names)}: XLA's to split" if self.left else ""


@dataclass(frozen=True, slots=True)
class Parts:
    """The program that calls them in order: its parameters, and what it returns."""

    parameters: tuple[str, ...]
    parts: tuple[Part, ...]
    results: tuple[str, ...]


def is_in_parts(schedule: Schedule) -> bool:
    """Whether a program is more than its steps under one `shard_map`."""
    return schedule.by_xla or any(group.how is How.PARTITIONER for group in schedule.together)


def parts(schedule: Schedule) -> Parts:
    """Of a program that is cut, or left to XLA as a whole."""
    if schedule.by_xla:
        body = whole_body(schedule)
        return Parts(body.parameters, (Part(WHOLE, schedule, body, True),), body.results)
    names = variables(schedule.block, taken_names(schedule), together=schedule.together)
    counts, found, lowering = {RUN: 0, PRODUCT: 0}, list[Part](), lower(schedule)
    for each in segments(schedule):
        kind = PRODUCT if each.left else RUN
        counts[kind] += 1
        found.append(Part(part_name(kind, counts[kind]), each.schedule, _body(each, names, lowering), each.left))
    return Parts(
        tuple(names[value] for value in schedule.inputs),
        tuple(found),
        tuple(names[value] for value in schedule.outputs),
    )


def _body(segment: Segment, names: tuple[str, ...], lowering: Lowering) -> Body:
    schedule = segment.schedule
    if not segment.left:
        of_part = lowering.of_part(segment.first, len(schedule.steps))
        return with_names(schedule, names, of_part, segment.first)
    return Body(
        tuple(names[value] for value in schedule.inputs),
        tuple(_on_whole_arrays(segment, names)),
        tuple(names[value] for value in schedule.outputs),
    )


def _on_whole_arrays(segment: Segment, names: tuple[str, ...]) -> Iterator[Line]:
    """A line for each product, under the name of what the moves behind it leave."""
    schedule, holds = segment.schedule, dict[int, Name]()
    for place, step in enumerate(schedule.steps):
        operands = tuple(holds.get(value, Name(names[value])) for value in step.operands)
        if not isinstance(step.op, Einsum):
            holds[step.result] = operands[0]
            continue
        left = _moved(schedule, step.result)
        holds[step.result] = Name(names[left])
        arrays, result = operands_of(step, schedule.values), schedule.values[left]
        yield Line(names[left], product(arrays, operands, result), str(result), segment.first + place)


def _moved(schedule: Schedule, value: ValueNumber) -> ValueNumber:
    """The value that the moves after a product leave of its result."""
    for step in schedule.steps:
        if step.operands == (value,) and not isinstance(step.op, Einsum):
            value = step.result
    return value
