"""A plan as one page: everything within, nothing over a network, under half a megabyte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shardc.report.page import sections
from shardc.report.page.html import Element, drawn, render, tag
from shardc.report.page.look import CSS, SCRIPT, policy
from shardc.report.page.reported import MOST, ROOMS, Reported, Room, cut
from shardc.report.pictures import drawing, style
from shardc.report.view import PlanView

_LONGEST = 240  # characters of a heading
_SPARE = 4_000  # bytes, for what is said of pictures


def page(reported: Reported) -> str:
    """The HTML. Of a large plan so much as there is room for, and it says what is left out."""
    same = [*sections.charts(reported), sections.verified(reported)]
    return fitting(lambda room: _page(reported, room, same))


def fitting(written: Callable[[Room], str]) -> str:
    """The page with the most room that leaves it under half a megabyte, what is left filled with pictures."""
    for room in ROOMS:
        found = written(room)
        left = MOST - len(found.encode()) - _SPARE
        if left > 0:
            found = written(replace(room, pictures=left))
            if room.in_part or sections.NO_ROOM not in found:
                break
    return found


def _page(reported: Reported, room: Room, same: list[Element | None]) -> str:
    """`same` is shown whatever room there is."""
    view = reported.plan.view
    parts = [
        sections.shardings(reported.plan, room),
        sections.statements(reported.plan, room),
        *same,
        sections.code(reported, room),
    ]
    shown = [part for part in parts if part is not None]
    about = [tag("p", for_what(view), class_="soft")]
    return document(heading(view), about, [sections.sums(view), *sections.told(view)], shown)


def document(title: str, about: list[Element], first: list[Element], parts: list[Element]) -> str:
    """A page with these sections, and links to them."""
    body = tag(
        "body",
        tag("a", "to the plan", class_="skip", href="#plan"),
        _patterns(),
        tag("header", tag("h1", title), *about),
        _contents(parts),
        tag("main", *first, *parts, id="plan"),
        tag("footer", tag("p", "Written by shardc; prices are of its cost model.", class_="soft")),
        tag("script", SCRIPT),
    )
    return render(tag("html", _head(title), body, lang="en"))


def heading(view: PlanView) -> str:
    """The statements, as many as a heading holds."""
    text, hidden = "", 0
    for statement in view.statements:
        if text and len(text) + len(statement.text) > _LONGEST:
            hidden += 1
        else:
            text += ("; " if text else "") + statement.text
    return cut(text, 4 * _LONGEST) + (f"; and {hidden} more" if hidden else "")


def for_what(view: PlanView) -> str:
    """`mesh X=4; chip v5e; bf16; I=512`."""
    mesh = ", ".join(f"{axis}={size}" for axis, size in view.mesh.items()) or "one device"
    dims = ", ".join(f"{dim}={size}" for dim, size in view.dims.items())
    return cut(f"mesh {mesh}; chip {view.chip}; {view.dtype}; {dims}", 8 * _LONGEST)


def _head(title: str) -> Element:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        _policy(),
        tag("title", f"{title} · shardc"),
        tag("style", CSS + style.css()),
    )


def _policy() -> Element:
    found = tag("meta", content=policy())
    found.set("http-equiv", "Content-Security-Policy")
    return found


def _patterns() -> Element:
    """What fills with a pattern name, once for all pictures."""
    alone = tag("svg", drawn(drawing.patterns()), width="0", height="0", aria_hidden="true")
    alone.set("style", "position:absolute")
    return alone


def _contents(parts: list[Element]) -> Element:
    links = [tag("li", tag("a", part[0].text or "", href=f"#{part.get('id')}")) for part in parts]
    return tag("nav", tag("ul", *links), aria_label="sections")
