"""Time, or bytes, against memory, as a table: a row for each plan of a front, and how to get it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tabulate import tabulate

from shardc.io.text import json_text
from shardc.io.units import in_bytes, in_seconds
from shardc.planner import Objective
from shardc.report.table import describe, head, ratio
from shardc.report.view import VERSION, PlanView, every_view, fields

_WIDEST = 72


@dataclass(frozen=True, slots=True)
class FrontView:
    """Plans from the best by objective to the leanest; `whole` if no leaner one was found."""

    objective: Objective
    points: tuple[PlanView, ...]
    whole: bool


def front_table(front: FrontView) -> str:
    """What all of them share, then each with its ratios to the first."""
    first = front.points[0]
    notes = dict.fromkeys(note for point in front.points for note in point.notes)
    top = head(replace(first, notes=tuple(notes)))
    statements = "\n".join(statement.text for statement in first.statements)
    rows = [_row(point, first, front.objective) for point in front.points]
    headers = ("time", "wire bytes", f"× {front.objective.value}", "peak memory", "× memory", "--memory", "moves")
    widths = [None] * (len(headers) - 1) + [_WIDEST]
    found = tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True, maxcolwidths=widths)
    return "\n\n".join([top, statements, "\n".join(line.rstrip() for line in found.splitlines()), _end(front)])


def _row(point: PlanView, first: PlanView, objective: Objective) -> tuple[str, ...]:
    cost, best = point.cost, first.cost
    by_time, by_bytes = ratio(cost.time_s, best.time_s), ratio(cost.wire_bytes, best.wire_bytes)
    return (
        in_seconds(cost.time_s),
        in_bytes(cost.wire_bytes),
        by_time if objective is Objective.TIME else by_bytes,
        in_bytes(cost.peak_bytes),
        ratio(cost.peak_bytes, best.peak_bytes),
        str(cost.peak_bytes),
        _moves(point, first),
    )


def _moves(point: PlanView, first: PlanView) -> str:
    """What the plan moves, and does in chunks; before it the inputs that the planner was free to take in another
    sharding."""
    free = [f"given {own.sharding}" for own, other in zip(point.inputs, first.inputs, strict=True) if own != other]
    chunks = [step.rule for step in every_view(point.steps) if step.in_chunks]
    return "; ".join([*free, *(describe(step) for step in point.steps if step.axes), *chunks]) or "none"


def _end(front: FrontView) -> str:
    least = front.points[-1].cost.peak_bytes
    end = (
        "no leaner plan was found"
        if front.whole
        else f"cut off here: there may be leaner plans, under --memory {least - 1}"
    )
    lines = [f"--memory with a row's number gives its plan to any command; {end}"]
    large = sum(bool(point.warnings) for point in front.points)
    if large:
        rows = "no row fits" if large == len(front.points) else f"the first {large} do not fit"
        lines.append(f"warning: {rows}: chip {front.points[0].chip} has {in_bytes(front.points[0].capacity_bytes)}")
    return "\n".join(lines)


def front_json(front: FrontView) -> str:
    """The JSON text: of each plan what `plan --json` prints, of each statement its cheapest strategy."""
    found = {
        "version": VERSION,
        "objective": front.objective.value,
        "whole": front.whole,
        "points": [fields(point, 1) for point in front.points],
    }
    return json_text(found, indent=1)
