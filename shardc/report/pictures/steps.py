"""A plan's steps, each as the blocks before it and after it."""

from __future__ import annotations

from shardc.io.units import in_bytes, in_one_line, in_seconds
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Done, Loop, Schedule, every_step
from shardc.report.pictures.blocks import blocks
from shardc.report.pictures.held import MOST
from shardc.report.pictures.marks import Group, Line, Mark, Text, width_of
from shardc.report.pictures.picture import Picture, above, beside, framed, line_of
from shardc.report.table import operation
from shardc.report.view import PlanView, StepView, every_view

_ARROW = 96.0  # the least length
_INDENT = 28.0
LEGEND = (
    "Each cell is a device. Cells of one colour and texture hold the same block.",
    "The black square shows where in the array it lies. A hatched + is a partial sum.",
)


def step_name(done: Done) -> str:
    """`3`; inside a loop, which is step 3, `3.1`."""
    return ".".join(str(place + 1) for place in done.path)


def step_picture(done: Done, shown: StepView, mesh: Mesh, most: int = MOST) -> Picture:
    """What a step is given, and what it leaves; of a loop only its name, since its own steps follow."""
    step, values, title = done.step, done.block.values, f"step {step_name(done)}: {operation(shown)}"
    if isinstance(step.op, Loop):
        return framed(line_of(f"{title}, in each trip:", "h"))
    given = [blocks(values[value], mesh, most) for value in step.operands]
    before = [above("before", given)] if given else []  # nothing is given to what counts positions
    return framed(beside(title, [*before, _arrow(shown), blocks(values[step.result], mesh, most)]))


def steps_picture(view: PlanView, schedule: Schedule) -> Picture:
    """Every step, one below the other, those of a loop after it and further right."""
    title = "; ".join(in_one_line(statement.text) for statement in view.statements)
    pairs = list(zip(every_step(schedule.block), every_view(view.steps), strict=True))
    found = [_indented(step_picture(done, shown, schedule.mesh), len(done.path) - 1) for done, shown in pairs]
    if not found:
        found = [blocks(schedule.values[number], schedule.mesh) for number in schedule.inputs]
    count = f"{len(pairs)} step{'s' * (len(pairs) != 1)}"
    return framed(above(f"{title}: {count}", [*found, _legend()]))


def _legend() -> Picture:
    return above("how to read it", [line_of(line, "s soft") for line in LEGEND], gap=0)


def _indented(picture: Picture, depth: int) -> Picture:
    right = _INDENT * depth
    return Picture(picture.title, picture.width + right, picture.height, (Group(picture.marks, right),))


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
