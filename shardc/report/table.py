"""A plan as a table: what each device does, in order, why, what it costs, and what else it could do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from shardc.cost.bounds import times_bound
from shardc.io.units import in_bytes, in_flops, in_seconds
from shardc.ir.collectives import COLLECTIVE_NAMES
from shardc.ir.sharding import spell_axes
from shardc.report.view import AlternativeView, PlanView, StatementView, StepView, without_steps
from shardc.rules.products import CASES

_COLUMNS = ("step", "leaves", "local shape", "bytes", "wire bytes", "time", "formula", "rule")
DEFAULT_TOP = 3
_FACTOR = re.compile(r"(·\d+\.\d{4})\d+")
_WIDEST = 80  # characters of steps in a line


def table(plan: PlanView, top: int = DEFAULT_TOP) -> str:
    """The whole report; of each statement the `top` cheapest strategies."""
    parts = [head(plan)]
    for number, statement in enumerate(plan.statements):
        own = [step for step in plan.steps if step.statement == number]
        steps = _steps(own) if own else f"  {without_steps(number, plan.steps)}"
        parts.append(_statement(statement, steps, top))
    parts.append(_totals(plan))
    if plan.memory is not None:
        from shardc.report.kinds import kinds_table

        parts.append(kinds_table(plan.memory))
    return "\n\n".join(parts)


def head(plan: PlanView) -> str:
    """What a plan is for: mesh, chip and sizes, what was assumed, the arrays given."""
    mesh = ", ".join(f"{axis}={size}" for axis, size in plan.mesh.items()) or "one device"
    dims = ", ".join(f"{dim}={size}" for dim, size in plan.dims.items())
    lines = [f"mesh {mesh}; chip {plan.chip}; {plan.dtype}; {dims}"]
    lines += [f"note: {note}" for note in plan.notes]
    lines += [f"given {array.sharding}: {_shape(array.local_shape)}, {in_bytes(array.bytes)}" for array in plan.inputs]
    return "\n".join(lines)


def _statement(statement: StatementView, steps: str, top: int) -> str:
    lines = [statement.text]
    lines += [_case(number, statement) for number in sorted(set(statement.cases.values()))]
    lines += ["", steps]
    if top > 1:
        lines += _alternatives(statement.cheapest(top))
        lines += [text for each in statement.statements for text in _instead(each, top)]
    return "\n".join(lines)


def _instead(statement: StatementView, top: int) -> list[str]:
    """What a statement of a loop could do in each trip."""
    found = _alternatives(statement.cheapest(top))
    below = [text for each in statement.statements for text in _instead(each, top)]
    return ["", f"  in {statement.text}", *found[1:], *below] if found else below


def _case(number: int, statement: StatementView) -> str:
    axes = [axis for axis, case in statement.cases.items() if case == number]
    remedy = next(case.remedy for case in CASES if case.number == number)
    return f"  {', '.join(axes)}: case {number}, {remedy}"


def _steps(own: Sequence[StepView]) -> str:
    rows = [
        (
            "│ " * depth + describe(step),
            step.result,
            "" if step.steps else _shape(step.local_shape),
            in_bytes(step.bytes),
            in_bytes(step.wire_bytes),
            in_seconds(step.time_s),
            f"{step.formula.partition('·')[0]}·(…)" if step.steps and step.time_s else formula(step),
            remark(step),
        )
        for depth, step in _nested(own)
    ]
    return _indented(tabulate(rows, headers=_COLUMNS, tablefmt="simple", disable_numparse=True))


def formula(step: StepView) -> str:
    """`2·I·J·K / C_bf16·1.0258`: a factor to as many digits as are read; to all of them it is in the JSON."""
    return _FACTOR.sub(r"\1", step.formula)


def remark(step: StepView) -> str:
    """`local product; HBM-bound`: its rule, what it waits for or what does not wait for it, how it is done."""
    waits = "; HBM-bound" * step.hbm_bound + "; off the critical path" * step.off_critical_path
    return step.rule + waits + (f"; as one: {step.form}" if step.form else "")


def _nested(own: Sequence[StepView], depth: int = 0) -> Iterator[tuple[int, StepView]]:
    """Each step with how many loops are around it."""
    for step in own:
        yield depth, step
        yield from _nested(step.steps, depth + 1)


def _shape(local: tuple[int, ...]) -> str:
    return "×".join(map(str, local)) or "scalar"


def describe(step: StepView, whole: bool = False) -> str:
    """`AllGather_X A`, `Einsum`, `Loop_L ×32`; as a `whole` `AllGather_X A[I_X, J]`."""
    if not step.axes:
        return operation(step)
    operand = step.operands[0]
    return f"{operation(step)} {operand if whole else operand.split('[')[0]}"


def instead(found: Sequence[AlternativeView]) -> list[str]:
    """The steps of each in a line; of those that would read alike what is moved stands with its sharding."""
    short, whole = (
        ["; ".join(describe(step, full) for step in each.steps) or "nothing to do" for each in found]
        for full in (False, True)
    )
    return [long if short.count(line) > 1 else line for line, long in zip(short, whole, strict=True)]


def operation(step: StepView) -> str:
    """`AllGather_X`, `ReduceScatter_X,K`, `Einsum`, `Loop_L ×32`."""
    if step.steps:
        return f"{step.op}_{step.dim} ×{step.trips}"
    if not step.axes:
        return step.op
    named = COLLECTIVE_NAMES.get(step.op)
    place = f",{step.dim}" if named is not None and named.facts.shards else ""
    return f"{step.op}_{spell_axes(step.axes)}{place}"


def _alternatives(found: Sequence[AlternativeView]) -> list[str]:
    if len(found) < 2:
        return []
    best, *others = found
    rows = [
        (in_bytes(other.wire_bytes), in_seconds(other.time_s), ratio(other.time_s, best.time_s), line)
        for other, line in zip(others, instead(others), strict=True)
    ]
    headers = ("wire bytes", "time", "× time", "instead")
    return ["", _indented(tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True))]


def ratio(found: float, best: float) -> str:
    """`2.68`; of nothing a dash."""
    return f"{found / best:.2f}" if best else "–"


def _totals(plan: PlanView) -> str:
    cost = plan.cost
    all_wire, all_flops = on_all(plan)
    lines = [
        f"wire bytes     {in_bytes(cost.wire_bytes)} per device{all_wire}" + _bound(plan),
        f"compute        {in_seconds(cost.compute_s)}  ({in_flops(cost.flops)} per device{all_flops})",
        f"communication  {in_seconds(cost.communication_s)}",
        f"time           {in_seconds(cost.time_s)}" + _dominates(cost.compute_s, cost.communication_s),
        *([f"prefetched     {in_seconds(cost.prefetched_s)}  (sent beside products)"] if cost.prefetched_s else []),
        f"peak memory    {in_bytes(cost.peak_bytes)} of {in_bytes(plan.capacity_bytes)} per device",
        *([f"as written     {as_written(plan)}"] if plan.written is not None else []),
        *(f"warning: {warning}" for warning in plan.warnings),
    ]
    return "\n".join(lines)


def on_all(plan: PlanView) -> tuple[str, str]:
    """Wire bytes and FLOPs of all devices together, where there are several: `, 3.15 MB on all 4`."""
    totals = plan.totals
    if totals.devices == 1:
        return "", ""
    wire = "" if totals.wire_bytes is None else f", {in_bytes(totals.wire_bytes)} on all {totals.devices}"
    flops = f", {in_flops(totals.flops)} on all {totals.devices}"
    return wire if totals.wire_bytes else "", flops if totals.flops else ""


def as_written(plan: PlanView) -> str:
    """What the book's own rules cost: `156 µs  (5.49× the time, 6.29 MB: AllGather_X A; Slice_X,K B; Einsum)`."""
    found, cost = plan.written, plan.cost
    assert found is not None, "asked where there is one"
    if found.wire_bytes == cost.wire_bytes and math.isclose(found.time_s, cost.time_s):
        return f"{in_seconds(found.time_s)}  (1.00× the time)"
    times = f"{ratio(found.time_s, cost.time_s)}× the time, {in_bytes(found.wire_bytes)} on the wire"
    return f"{in_seconds(found.time_s)}  ({times}: {_moves(found.steps)})"


def _moves(steps: Sequence[StepView]) -> str:
    """What moves and multiplies, as many steps as a line holds."""
    told = [step for step in steps if step.axes or step.op == "Einsum"]
    names = [f"{step.trips}× " * (step.trips > 1) + describe(step) for step in told]
    shown = names[:1]
    while len(shown) < len(names) and len("; ".join([*shown, names[len(shown)]])) < _WIDEST:
        shown.append(names[len(shown)])
    hidden = len(names) - len(shown)
    return "; ".join(shown) + (f"; and {hidden} more" if hidden else "")


def of_bound(plan: PlanView) -> str:
    """`1.50× the lower bound`; of a long program, where little is proved of what all together needs, that little."""
    bound = plan.bound.wire_bytes
    if not bound:
        return ""
    times = times_bound(plan.cost.wire_bytes, bound)
    return f"{in_bytes(bound)} are proved to be needed" if times is None else f"{times:.2f}× the lower bound"


def _bound(plan: PlanView) -> str:
    found = of_bound(plan)
    return f"  ({found})" if found else ""


def _dominates(compute: float, communication: float) -> str:
    total = compute + communication
    if not total:
        return ""
    name, part = ("compute", compute) if compute >= communication else ("communication", communication)
    return f"  ({name} dominates: {100 * part / total:.0f} %)"


def _indented(text: str) -> str:
    return "\n".join(f"  {line.rstrip()}" for line in text.splitlines())
