"""An existing jitted function, explained: what it communicates, where, what that costs, and what is wasteful."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from shardc.compiled.explain.change import Given
from shardc.compiled.explain.explanation import Explanation, Row
from shardc.compiled.explain.flow import Flow, layouts_of
from shardc.compiled.explain.remat import Rematerialization, rematerializations
from shardc.compiled.explain.search import Compiled, array_name
from shardc.compiled.explain.waste import PLANNED, REMATERIALIZED, WORTHWHILE, Finding, Split, Waste
from shardc.compiled.explain.wish import planned
from shardc.compiled.hlo.collectives import Collective, Reader
from shardc.compiled.hlo.text import Module, read_hlo
from shardc.compiled.replay.pricing import price
from shardc.cost.allocation import Allocation
from shardc.cost.model import LinkModel
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array

PICO = 10**12
MORE_WORK = 1.05


class Lowered(Protocol):
    """A compiled function and what is known of its arguments: `backend.lowering` makes it."""

    @property
    def text(self) -> str: ...
    @property
    def mesh(self) -> Mesh: ...
    @property
    def platform(self) -> str: ...
    @property
    def inputs(self) -> Sequence[Array | None]: ...
    @property
    def outputs(self) -> Sequence[Array | None]: ...
    @property
    def explicit(self) -> bool: ...
    @property
    def memory(self) -> Sequence[int]: ...
    @property
    def warnings(self) -> str: ...
    @property
    def jaxpr(self) -> Any: ...
    @property
    def flops(self) -> float: ...


def explain(lowered: Lowered, model: LinkModel) -> Explanation:
    """Reads a compiled function, prices it and looks for waste. Raises UnreadableHlo."""
    module = read_hlo(lowered.text)
    found = [one for one in Reader(module, lowered.mesh).all() if one.wire_bytes]
    waste = Waste(
        Compiled(
            module,
            Flow(module, layouts_of(lowered.text)),
            lowered.mesh,
            model,
            {one.name: one for one in found},
            _given(module, lowered.inputs),
            lowered.explicit,
        )
    )
    waste.look()
    warned = rematerializations(lowered.warnings, lowered.mesh)
    return Explanation(
        lowered.mesh,
        model.chip.name,
        lowered.platform,
        tuple(_row(one, model, waste.places.get(one.name, one.source)) for one in found),
        (*waste.findings, *_cheaper(lowered, found, waste.split, model, bool(waste.findings))),
        Allocation(*lowered.memory) if lowered.memory else None,
        tuple([*_warnings(warned, waste.findings, lowered.mesh), *_doings(waste.split, lowered, found)]),
    )


def _row(one: Collective, model: LinkModel, source: str) -> Row:
    return Row(
        one.kind,
        one.axes,
        one.group_size,
        one.count,
        one.count_known,
        one.local_bytes,
        one.total_bytes,
        _seconds([one], model),
        one.is_async,
        source,
        one.scope,
        one.name,
        one.algorithm,
    )


def _seconds(found: Sequence[Collective], model: LinkModel) -> float:
    """Of all their runs, one behind the other."""
    return sum(price(one, model).time_ps * one.count for one in found) / PICO


def _cheaper(
    lowered: Lowered, found: Sequence[Collective], split: Sequence[Split], model: LinkModel, others: bool
) -> Iterator[Finding]:
    """The whole function's plan, if it moves less than the compiled one, the compiler's own ways not counted."""
    if not found or lowered.jaxpr is None:
        return
    if lowered.platform == "cpu" and any(a is None or a.dtype.bytes < 4 for a in lowered.inputs):
        return  # the CPU moves narrow types as wide ones
    wire = sum(one.total_bytes for one in found) - sum(one.wire_bytes - one.meant_bytes for one in split)
    seconds = _seconds(found, model) - sum(one.time_s - one.meant_s for one in split)
    plan = planned(lowered.jaxpr, lowered.inputs, lowered.outputs, model)
    if plan is None or plan.cost.wire_bytes > WORTHWHILE * wire or plan.cost.communication_s > seconds:
        return
    if lowered.flops and plan.cost.flops > MORE_WORK * lowered.flops:
        return  # bytes were saved by computing the same on several devices
    if others and not any(step.cost.flops for step in plan.schedule.steps):
        return  # a resharding, of which the others say the same
    yield Finding(
        PLANNED,
        (),
        "the whole function, from its arguments' shardings to its results', can be done with less",
        tuple(one.name for one in found),
        wire,
        seconds,
        plan.cost.wire_bytes,
        plan.cost.communication_s,
        plan.bound_bytes or None,
        "\n".join(statement.text for statement in plan.schedule.program.statements),
        "shardc.plan shows the steps, shardc.einsum does it; factors by a number are left out",
    )


def _given(module: Module, inputs: Sequence[Array | None]) -> tuple[Given | None, ...]:
    """How each parameter lies: by its place, or, where the compiler dropped arguments, by the name it kept."""
    parameters = module.entry.parameters
    names = [p.metadata.get("op_name", "").replace("\\", "") for p in parameters]
    if len(inputs) == len(parameters):
        known = list(inputs)
    else:
        by_name = {array.name: array for array in inputs if array is not None}
        known = [by_name.get(name) for name in names]
    return tuple(
        None if array is None else Given(array_name(name or array.name), array.shape, array.sharding)
        for name, array in zip(names, known, strict=True)
    )


def _warnings(warned: Sequence[Rematerialization], findings: Sequence[Finding], mesh: Mesh) -> list[str]:
    """What XLA warned of and no finding says already."""
    said = {_unnamed(finding.statement) for finding in findings if finding.kind == REMATERIALIZED}
    notes = []
    for warning in warned:
        change = warning.spelled(mesh)
        if _unnamed(change) not in said:
            place = f", {warning.source}" if warning.source else ""
            notes.append(f"XLA warns of an involuntary full rematerialization: {change}{place}")
    return notes


def _unnamed(statement: str) -> str:
    """`a[I_X, J] → a[I, J_X]` without the array's name, which a partitioner may know or not."""
    return re.sub(r"\w+\[", "[", statement)


def _doings(split: Sequence[Split], lowered: Lowered, found: Sequence[Collective]) -> list[str]:
    """What is the compiler's way, and no fault of the program."""
    notes = []
    if lowered.platform == "cpu" and found:
        notes.append(
            "compiled for the CPU, which does a ReduceScatter as an AllReduce and a slice, and moves bf16 as f32: "
            "a topology shows what a TPU would do"
        )
    elif split:
        more = sum(one.wire_bytes - one.meant_bytes for one in split)
        names = ", ".join(one.collective for one in split)
        notes.append(
            f"the compiler does a ReduceScatter as an AllReduce and a slice, {more} bytes more: {names}. "
            "It does so where the share of a device is small, for lax.psum_scatter as well"
        )
    return notes
