"""A plan's steps, each as the blocks before it and after it."""

from __future__ import annotations

from shardc.ir.plan import Schedule
from shardc.report.pictures.blocks import blocks
from shardc.report.pictures.marks import Line, Mark, Text, width_of
from shardc.report.pictures.picture import Picture, above, beside, framed, line_of
from shardc.report.table import operation
from shardc.report.units import in_bytes, in_seconds
from shardc.report.view import PlanView, StepView

_ARROW = 96.0  # the least length
LEGEND = "a cell: a device. Equal colour and texture: the same block, at the black square. A hatch of +: part of a sum."


def step_picture(view: PlanView, schedule: Schedule, number: int) -> Picture:
    """What step `number` is given, and what it leaves."""
    step, shown = schedule.steps[number], view.steps[number]
    given = [blocks(schedule.values[value], schedule.mesh) for value in step.operands]
    left = blocks(schedule.values[step.result], schedule.mesh)
    title = f"step {number + 1}: {operation(shown)}"
    before = above("before", given) if len(given) > 1 else given[0]
    return framed(beside(title, [before, _arrow(shown), left]))


def steps_picture(view: PlanView, schedule: Schedule) -> Picture:
    """Every step, one below the other."""
    title = "; ".join(statement.text for statement in view.statements)
    found = [step_picture(view, schedule, number) for number in range(len(schedule.steps))]
    if not found:
        found = [blocks(schedule.values[number], schedule.mesh) for number in schedule.inputs]
    return framed(
        above(
            f"{title}: {len(schedule.steps)} step{'s' * (len(schedule.steps) != 1)}",
            [*found, line_of(LEGEND, "s soft")],
        )
    )


def _arrow(step: StepView) -> Picture:
    """What is done, above an arrow; below what it costs."""
    what, costs = operation(step), [in_seconds(step.time_s) if step.time_s else "no time"]
    if step.wire_bytes:
        costs.insert(0, in_bytes(step.wire_bytes) + " in")
    width = max(_ARROW, width_of(what), *(width_of(cost, "s") for cost in costs))
    marks: list[Mark] = [Text(width / 2, 13, what, "t", "middle")]
    marks += [Line(((0, 24), (width - 4, 24)), "line"), Line(((width - 9, 20), (width, 24), (width - 9, 28)), "arrow")]
    marks += [Text(width / 2, 42 + 14 * row, cost, "s soft", "middle") for row, cost in enumerate(costs)]
    return Picture(what, width, 42 + 14 * len(costs) - 10, tuple(marks))
