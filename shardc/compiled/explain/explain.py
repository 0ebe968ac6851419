"""An existing jitted function, explained: what it communicates, where, what that costs, and what is wasteful."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from shardc.compiled.explain.change import Given
from shardc.compiled.explain.explanation import Explanation, Moved, Row, shortened
from shardc.compiled.explain.findings import (
    PLANNED,
    REMATERIALIZED,
    WORTHWHILE,
    Finding,
    by_cause,
    unnamed,
    worth_telling,
)
from shardc.compiled.explain.flow import Flow, layouts_of
from shardc.compiled.explain.parts import Part, parts_of
from shardc.compiled.explain.remat import Rematerialization, rematerializations
from shardc.compiled.explain.search import Compiled, array_name
from shardc.compiled.explain.waste import Split, Verdict, Waste
from shardc.compiled.explain.wish import planned
from shardc.compiled.hlo.collectives import Collective, Reader
from shardc.compiled.hlo.text import Module, read_hlo
from shardc.compiled.replay.pricing import price
from shardc.cost.allocation import Allocation
from shardc.cost.model import LinkModel
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Cost
from shardc.ir.sharding import Array

PICO = 10**12
MORE_WORK = 1.05


class Lowered(Protocol):
    """A compiled function and what is known of its arguments: `machines.jitted` makes it."""

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


def explanation_of(lowered: Lowered, model: LinkModel) -> Explanation:
    """Reads a compiled function, prices it and looks for waste. Raises UnreadableHlo."""
    module = read_hlo(lowered.text)
    parts = parts_of(Reader(module, lowered.mesh))
    flow = Flow(module, layouts_of(lowered.text))
    given = _given(module, lowered.inputs)
    compiled = Compiled(module, flow, lowered.mesh, model, {part.key: part for part in parts}, given, lowered.explicit)
    waste = Waste(compiled)
    waste.look()
    found = [next(own).collective for _, own in _together(parts)]
    whole = _whole(lowered, found, waste.split, model, bool(waste.findings))
    verdicts = waste.verdicts if whole is None else _all_judged(waste.verdicts)
    findings = [*by_cause(waste.findings), *(whole or ())]
    told = worth_telling(findings, sum(one.total_bytes for one in found))
    warned = rematerializations(lowered.warnings, lowered.mesh)
    notes = [*_warnings(warned, told, lowered.mesh), *_doings(waste.split, lowered, found), *_small(findings, told)]
    return Explanation(
        lowered.mesh,
        model.chip.name,
        lowered.platform,
        tuple(_row(list(own), compiled, verdicts) for _, own in _together(parts)),
        told,
        Allocation(*lowered.memory) if lowered.memory else None,
        tuple(notes),
    )


def _together(parts: Sequence[Part]) -> Iterator[tuple[str, Iterator[Part]]]:
    """The arrays of each collective."""
    return groupby(parts, key=lambda part: part.key.partition("#")[0])


def _row(parts: Sequence[Part], compiled: Compiled, verdicts: Mapping[str, Verdict]) -> Row:
    one = parts[0].collective
    moved = tuple(_moved(part, compiled, verdicts[part.key]) for part in parts)
    return Row(
        one.kind,
        one.axes,
        one.group_size,
        one.count,
        one.count_known,
        one.local_bytes,
        one.total_bytes,
        _seconds([one], compiled.model),
        one.is_async,
        next((each.source for each in moved if each.source), ""),
        one.scope,
        one.name,
        one.algorithm,
        moved,
    )


def _moved(part: Part, compiled: Compiled, verdict: Verdict) -> Moved:
    made = compiled.maker(part) if part.is_one_of_several else None
    scope = part.collective.scope if made is None else made.metadata.get("op_name", "")
    shape = part.shape
    spelled = "" if shape is None else f"{shape.dtype}[{','.join(map(str, shape.sizes))}]"
    name = "" if part.operand is None else part.operand.name
    source = compiled.place(part)
    return Moved(name, spelled, part.local_bytes, part.total_bytes, verdict.judged, verdict.why, source, scope)


def _all_judged(verdicts: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """The whole function was held against its plan, and with it whatever was not judged by itself."""
    planned_too = Verdict(True, "the whole function was held against its plan")
    return {key: verdict if verdict.judged else planned_too for key, verdict in verdicts.items()}


def _seconds(found: Sequence[Collective], model: LinkModel) -> float:
    """Of all their runs, one behind the other."""
    return sum(price(one, model).time_ps * one.count for one in found) / PICO


def _whole(
    lowered: Lowered, found: Sequence[Collective], split: Sequence[Split], model: LinkModel, others: bool
) -> tuple[Finding, ...] | None:
    """A finding if the whole function's plan moves less than the compiled one, the compiler's own ways not counted.

    None if there is no such plan, or none to be held against it: bytes that are saved by computing the same on
    several devices are no fault of a program.
    """
    if not found or lowered.jaxpr is None:
        return None
    if lowered.platform == "cpu" and any(a is None or a.dtype.bytes < 4 for a in lowered.inputs):
        return None  # the CPU moves narrow types as wide ones
    wire = sum(one.total_bytes for one in found) - sum(one.wire_bytes - one.meant_bytes for one in split)
    seconds = _seconds(found, model) - sum(one.time_s - one.meant_s for one in split)
    plans = planned(lowered.jaxpr, lowered.inputs, lowered.outputs, model)
    if not plans:
        return None
    cheaper = [(objective, plan) for objective, plan in plans.items() if _is_cheaper(plan.cost, wire, seconds)]
    if not cheaper:
        return ()
    objective, plan = cheaper[0]
    if lowered.flops and plan.cost.flops > MORE_WORK * lowered.flops:
        return None
    if others and not any(step.cost.flops for step in plan.schedule.steps):
        return ()  # a resharding, of which the others say the same
    finding = Finding(
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
        f'shardc.plan with objective="{objective.value}" shows the steps; factors by a number are left out',
    )
    return (finding,)


def _is_cheaper(cost: Cost, wire: int, seconds: float) -> bool:
    """Of clearly fewer bytes, and no longer on the way."""
    return cost.wire_bytes <= WORTHWHILE * wire and cost.communication_s <= seconds


def _small(findings: Sequence[Finding], told: Sequence[Finding]) -> list[str]:
    """What is wasted besides, each below what is worth telling."""
    left = [finding.saved_bytes for finding in findings if finding not in told]
    return [f"{sum(left):,} bytes are wasted besides, by causes of less than a thousandth each"] if left else []


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
    kinds = [finding.statement for finding in findings if finding.kind == REMATERIALIZED]
    said = {unnamed(line) for statement in kinds for line in statement.splitlines()}
    notes = []
    for warning in warned:
        change = warning.spelled(mesh)
        if unnamed(change) not in said:
            place = f", {warning.source}" if warning.source else ""
            notes.append(f"XLA warns of an involuntary full rematerialization: {change}{place}")
    return notes


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
        names = shortened(dict.fromkeys(one.collective for one in split))
        notes.append(
            f"the compiler does a ReduceScatter as an AllReduce and a slice, {more} bytes more: {names}. "
            "It does so where the share of a device is small, for lax.psum_scatter as well"
        )
    return notes
