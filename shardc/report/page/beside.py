"""Two plans side by side on one page: what each costs, both timelines on one scale, the steps of each."""

from __future__ import annotations

from collections.abc import Callable

from shardc.compiled.replay.predicted import predicted
from shardc.ir.plan import Cost
from shardc.report.page import sections
from shardc.report.page.html import Child, Element, table, tag
from shardc.report.page.page import document, for_what, heading
from shardc.report.page.reported import MOST, ROOMS, Reported, Room
from shardc.report.pictures import timeline_picture
from shardc.report.pictures.plan import Pictured
from shardc.report.table import ratio
from shardc.report.units import in_bytes, in_flops, in_seconds

_NAMES = ("first", "second")
_HALF = 2  # of a page's room each has a half


def page_of_two(one: Reported, other: Reported) -> str:
    """The HTML, under half a megabyte as a page of one plan is."""
    for room in ROOMS:
        half = Room(*(max(getattr(room, name) // _HALF, least) for name, least in _LEAST))
        found = _page((one, other), half)
        if len(found.encode()) < MOST:
            break
    return found


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


_FIGURES: tuple[tuple[str, Callable[[Cost], float], Callable[[Cost], str]], ...] = (
    ("time", lambda cost: cost.time_s, lambda cost: in_seconds(cost.time_s)),
    ("wire bytes", lambda cost: cost.wire_bytes, lambda cost: in_bytes(cost.wire_bytes)),
    ("compute", lambda cost: cost.compute_s, lambda cost: in_seconds(cost.compute_s)),
    ("communication", lambda cost: cost.communication_s, lambda cost: in_seconds(cost.communication_s)),
    ("FLOPs", lambda cost: cost.flops, lambda cost: in_flops(cost.flops)),
    ("peak memory", lambda cost: cost.peak_bytes, lambda cost: in_bytes(cost.peak_bytes)),
)


def costs(plans: list[Pictured]) -> Element:
    """A row for each figure: of both, and the second's over the first's."""
    one, other = (plan.view.cost for plan in plans)
    rows: list[list[Child]] = [
        [name, said(one), said(other), ratio(figure(other), figure(one))] for name, figure, said in _FIGURES
    ]
    return table("per device", ("", *_NAMES, "second ÷ first"), rows)


def timelines(plans: list[Pictured]) -> list[Element]:
    """Both from the same left to the same right."""
    found = [predicted(plan.schedule) for plan in plans]
    longest = max(timeline.step_s for timeline in found)
    return [
        tag("div", tag("h3", name), sections.figure(timeline_picture(timeline, longest)))
        for name, timeline in zip(_NAMES, found, strict=True)
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
