"""Two plans side by side on one page, or a plan and XLA's own program: what each costs, both timelines on one scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from shardc.compiled.compare import Comparison
from shardc.compiled.replay.timeline import Timeline
from shardc.io.units import in_bytes, in_flops, in_seconds
from shardc.report.page import sections
from shardc.report.page.html import Child, Element, table, tag
from shardc.report.page.page import document, fitting, for_what, heading
from shardc.report.page.reported import Reported, Room
from shardc.report.pictures import timeline_picture
from shardc.report.pictures.plan import Pictured
from shardc.report.table import ratio
from shardc.report.view import PlanView

_NAMES = ("first", "second")
_HALF = 2  # of a page's room each has a half


def page_beside_xla(own: Reported, found: Comparison) -> str:
    """A plan's program, as it is compiled, beside what XLA makes of the same shardings."""
    return fitting(lambda room: _page_beside_xla(own, found, room))


def _page_beside_xla(own: Reported, found: Comparison, room: Room) -> str:
    view, sides = own.plan.view, (found.ours, found.theirs)
    rows: list[list[Child]] = [list(row) for row in found.rows()]
    notes = [tag("p", "note: ", note, class_="soft") for note in found.notes]
    compared = table("per device; the ratio is XLA's over the plan's", ("", *(s.name for s in sides), "ratio"), rows)
    drawn = on_one_scale([(side.name, side.timeline) for side in sides])
    parts = [
        sections.section("compiled", "As compiled", compared, *notes),
        sections.section("timelines", "Timelines, replayed", *drawn),
        sections.shardings(own.plan, room),
        sections.statements(own.plan, room),
        sections.memory(own.plan),
        sections.code(own, room),
    ]
    about = [tag("p", f"{for_what(view)}; beside what jax.jit alone makes of it", class_="soft")]
    return document(heading(view), about, [sections.sums(view), *sections.told(view)], parts)


def page_of_two(one: Reported, other: Reported) -> str:
    """The HTML, under half a megabyte as a page of one plan is."""
    return fitting(lambda room: _page((one, other), _half(room)))


def _half(room: Room) -> Room:
    """For each of the two."""
    return replace(room, **{name: max(getattr(room, name) // _HALF, least) for name, least in _LEAST})


_LEAST = (("pictures", 0), ("statements", 1), ("steps", 1), ("others", 1), ("code", 1_000))


def _page(both: tuple[Reported, Reported], room: Room) -> str:
    plans = [each.plan for each in both]
    same = heading(plans[0].view) == heading(plans[1].view)
    title = heading(plans[0].view) if same else " beside ".join(heading(plan.view) for plan in plans)
    about = [
        tag("p", f"{name}: {for_what(plan.view)}", class_="soft") for name, plan in zip(_NAMES, plans, strict=True)
    ]
    parts = [
        sections.section("costs", "Costs", costs(plans)),
        sections.section("timelines", "Timelines", *timelines(plans)),
        sections.section("plans", "Plans", tag("div", *_columns(both, room), class_="two")),
    ]
    return document(title, about, [], parts)


# Of each figure its name, itself, and how it is said.
_FIGURES: tuple[tuple[str, Callable[[PlanView], float], Callable[[float], str]], ...] = (
    ("time", lambda plan: plan.cost.time_s, in_seconds),
    ("wire bytes", lambda plan: plan.cost.wire_bytes, lambda count: in_bytes(int(count))),
    ("compute", lambda plan: plan.cost.compute_s, in_seconds),
    ("communication", lambda plan: plan.cost.communication_s, in_seconds),
    ("FLOPs", lambda plan: plan.cost.flops, lambda count: in_flops(int(count))),
    ("peak memory", lambda plan: plan.cost.peak_bytes, lambda count: in_bytes(int(count))),
    ("wire bytes of all devices", lambda plan: plan.totals.wire_bytes or 0, lambda count: in_bytes(int(count))),
    ("as written, time", lambda plan: plan.written.time_s if plan.written else 0.0, in_seconds),
)


def costs(plans: list[Pictured]) -> Element:
    """A row for each figure: of both, and the second's over the first's."""
    one, other = (plan.view for plan in plans)
    rows: list[list[Child]] = [
        [name, said(figure(one)), said(figure(other)), ratio(figure(other), figure(one))]
        for name, figure, said in _FIGURES
    ]
    return table("per device, where nothing else is said", ("", *_NAMES, "second ÷ first"), rows)


def timelines(plans: list[Pictured]) -> list[Element]:
    """As they are priced."""
    return on_one_scale([(name, plan.timeline) for name, plan in zip(_NAMES, plans, strict=True)])


def on_one_scale(found: Sequence[tuple[str, Timeline]]) -> list[Element]:
    """From the same left to the same right."""
    longest = max(timeline.step_s for _, timeline in found)
    return [
        tag("div", tag("h3", name), sections.figure(timeline_picture(timeline, longest))) for name, timeline in found
    ]


def _columns(both: tuple[Reported, Reported], room: Room) -> list[Element]:
    return [_column(name, each, room) for name, each in zip(_NAMES, both, strict=True)]


def _column(name: str, each: Reported, room: Room) -> Element:
    parts = [
        tag("h3", name),
        *sections.told(each.plan.view),
        sections.shardings(each.plan, room),
        sections.statements(each.plan, room),
        sections.memory(each.plan),
        sections.code(each, room),
    ]
    return _apart(tag("div", *parts), name)


def _apart(part: Element, name: str) -> Element:
    """With ids of its own."""
    for each in part.iter():
        for key in ("id", "data-of"):
            told = each.get(key)
            if told is not None:
                each.set(key, f"{name}-{told}")
    return part
