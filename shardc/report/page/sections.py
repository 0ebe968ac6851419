"""The sections of a page, each from a plan's own data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from shardc.io.units import in_bytes, in_flops, in_one_line, in_seconds
from shardc.ir.plan import Done, every_step
from shardc.report.page.html import Child, Element, drawn, scrolls, table, tag
from shardc.report.page.reported import Reported, Room, cut
from shardc.report.pictures import (
    blocks,
    front_picture,
    memory_picture,
    roofline_picture,
    timeline_picture,
)
from shardc.report.pictures.picture import Picture
from shardc.report.pictures.plan import Pictured
from shardc.report.pictures.steps import LEGEND, step_name
from shardc.report.table import as_written, describe, formula, instead, of_bound, on_all, operation, ratio, remark
from shardc.report.verification import verification_table
from shardc.report.view import AlternativeView, PlanView, StatementView, StepView, every_view, without_steps
from shardc.rules.products import CASES

_STEPS = ("", "step", "leaves", "local shape", "bytes", "wire bytes", "time", "formula", "rule")
_NAMES, _NOTES = 2_000, 50  # characters of names, and notes
NO_ROOM = "the page has no room for more"
_AROUND = 250  # bytes around a picture
_OTHERS = ("time", "× time", "wire bytes", "instead")


def figure(picture: Picture) -> Element:
    return scrolls(drawn(picture.inside), picture.title)


def section(name: str, title: str, *children: Child) -> Element:
    return tag("section", tag("h2", title), *children, id=name)


def sums(plan: PlanView) -> Element:
    """What it costs in all."""
    cost = plan.cost
    all_wire, all_flops = on_all(plan)
    share = f"{100 * cost.communication_s / cost.time_s:.0f} % of the time" if cost.time_s else ""
    early = f"{in_seconds(cost.prefetched_s)} sent beside products" if cost.prefetched_s else ""
    tiles = (
        ("time", in_seconds(cost.time_s), "; ".join(filter(None, ("as priced, per run", early)))),
        ("wire bytes", in_bytes(cost.wire_bytes), "; ".join(filter(None, (f"per device{all_wire}", of_bound(plan))))),
        ("compute", in_seconds(cost.compute_s), f"{in_flops(cost.flops)} per device{all_flops}"),
        ("communication", in_seconds(cost.communication_s), share),
        ("peak memory", in_bytes(cost.peak_bytes), f"of {in_bytes(plan.capacity_bytes)} per device"),
    )
    return tag("dl", *(_tile(*tile) for tile in (*tiles, *_as_written(plan))), class_="sums")


def _as_written(plan: PlanView) -> Iterator[tuple[str, str, str]]:
    if plan.written is not None:
        time, _, more = as_written(plan).partition("  ")
        yield "as written", time, more.strip("()")


def _tile(name: str, value: str, more: str) -> Element:
    return tag("div", tag("dt", name), tag("dd", value, tag("small", more) if more else None))


def told(plan: PlanView) -> Iterator[Element]:
    """Warnings, then notes."""
    for warning in plan.warnings:
        yield tag("p", tag("strong", "warning: "), warning, class_="warning", role="note")
    for note in plan.notes[:_NOTES]:
        yield tag("p", "note: ", note, class_="soft")


def shardings(plan: Pictured, room: Room) -> Element:
    """What is given and what is left, as blocks on the mesh."""
    schedule = plan.schedule
    given = [schedule.given(number) for number in schedule.inputs]
    children: list[Child] = [tag("p", " ".join(LEGEND), class_="soft")]
    for title, arrays in (("given", given), ("result", schedule.results)):
        shown = [figure(blocks(array, schedule.given_mesh, room.devices)) for array in arrays[: room.others]]
        names = cut(", ".join(str(array) for array in arrays[room.others :]), _NAMES)
        children += [tag("h3", title), tag("div", *shown, class_="row"), tag("p", "and ", names) if names else None]
    return section("shardings", "Shardings", *children)


def statements(plan: Pictured, room: Room) -> Element:
    """Each statement: why, its steps, what else it could be."""
    view = plan.view
    pairs = list(zip(every_step(plan.schedule.block), every_view(view.steps), strict=True))
    left = room.pictures
    children: list[Child] = []
    if room.drawn != "every step" and left:
        told = f"Only {room.drawn} are drawn, so that the page stays small."
        children.append(tag("p", told, class_="soft"))
    for number, statement in enumerate(view.statements[: room.statements]):
        own = [(done, shown) for done, shown in pairs if view.steps[done.path[0]].statement == number]
        children += [tag("h3", tag("span", statement.text, class_="code")), *why(statement)]
        if not own:
            told = without_steps(number, view.steps)
            children.append(tag("p", f"{told[0].upper()}{told[1:]}.", class_="soft"))
            continue
        children.append(_steps(own, room))
        pictured = [(done, shown) for done, shown in own if _is_drawn(shown, room)]
        found, left = _pictures(plan, pictured, left, room)
        children += [*found, *_alternatives(statement, room)]
    hidden = len(view.statements) - room.statements
    if hidden > 0:
        children.append(tag("p", f"{hidden} more statements: `shardc plan` shows them.", class_="soft"))
    return section("steps", "Steps", *children)


def why(statement: StatementView) -> Iterator[Element]:
    """The case of each axis, as the book counts them; of a loop those of its statements."""
    remedies = {case.number: case.remedy for case in CASES}
    cases = [
        f"{axis}: case {number}, {remedies[number]}"
        + (f" (in {in_one_line(each.text)})" if each.text != statement.text else "")
        for each in _within(statement)
        for axis, number in each.cases.items()
    ]
    if cases:
        yield tag("ul", *(tag("li", case) for case in cases), class_="why")


def _steps(own: Sequence[tuple[Done, StepView]], room: Room) -> Element:
    rows: list[list[Child]] = [
        [
            step_name(done),
            describe(step),
            step.result,
            "×".join(map(str, step.local_shape)),
            in_bytes(step.bytes),
            in_bytes(step.wire_bytes),
            in_seconds(step.time_s),
            tag("span", formula(step), class_="code"),
            remark(step),
        ]
        for done, step in own[: room.steps]
    ]
    more = f"; {len(own) - room.steps} more in `shardc plan`" if len(own) > room.steps else ""
    return table(f"what each device does, in order{more}", _STEPS, rows)


def _pictures(plan: Pictured, own: Sequence[tuple[Done, StepView]], left: int, room: Room) -> tuple[list[Element], int]:
    """Of each step its picture, folded away, while there is room; and the room that is left."""
    found: list[Element] = []
    for done, step in own:
        shown = plan.drawn(done, step, room.devices)
        taken = sum(len(svg.encode()) + _AROUND for svg in shown)
        if left < taken:
            told = [tag("p", f"The steps after these are not drawn: {NO_ROOM}.", class_="soft")] if left else []
            return [*found, *told], 0  # of many statements said once
        left -= taken
        head = tag("summary", f"step {step_name(done)}: {operation(step)}", class_="code")
        each = [scrolls(drawn(svg), f"step {step_name(done)}") for svg in shown]
        found.append(tag("details", head, *each, open="" if len(own) <= 6 else None))
    return found, left


def _is_drawn(step: StepView, room: Room) -> bool:
    match room.drawn:
        case "every step":
            return True
        case "steps that take time":
            return step.time_s > 0
        case "steps that move something":
            return step.wire_bytes > 0
        case _:
            assert_never(room.drawn)


def _within(statement: StatementView) -> Iterator[StatementView]:
    """A statement, or those of a loop, of the loops within it as well."""
    yield statement
    for each in statement.statements:
        yield from _within(each)


def _alternatives(statement: StatementView, room: Room) -> Iterator[Element]:
    """What else a statement, or each of a loop's, could be, the cheapest first; sorted as one likes."""
    for each in _within(statement):
        found = each.cheapest(room.others + 1)
        if len(found) > 1:
            where = "it" if each.text == statement.text else in_one_line(each.text)
            yield _others(f"alternatives: what else {where} could be; a click on a column's name sorts", found)


def _others(caption: str, found: Sequence[AlternativeView]) -> Element:
    best, *others = found
    rows: list[list[Child]] = [
        [
            in_seconds(other.time_s),
            ratio(other.time_s, best.time_s),
            in_bytes(other.wire_bytes),
            line,
        ]
        for other, line in zip(others, instead(others), strict=True)
    ]
    keys = [
        [repr(o.time_s), repr(o.time_s / best.time_s) if best.time_s else "0", str(o.wire_bytes), ""] for o in others
    ]
    return table(caption, _OTHERS, rows, keys=keys)


def charts(reported: Reported) -> Iterator[Element]:
    """When what is busy, what bounds the products, what memory is held; time against memory where it was asked for."""
    plan = reported.plan
    schedule = plan.schedule
    yield section("timeline", "Timeline", figure(timeline_picture(plan.timeline)))
    yield section("roofline", "Roofline", figure(roofline_picture(schedule, plan.model.alone)))
    yield memory(plan)
    if reported.front is not None:
        yield section("front", "Time against memory", figure(front_picture(reported.front)), _front(reported))


def memory(plan: Pictured) -> Element:
    return section("memory", "Memory", figure(memory_picture(plan.schedule, plan.view.capacity_bytes)))


def _front(reported: Reported) -> Element:
    assert reported.front is not None
    points = reported.front.points
    rows: list[list[Child]] = [
        [
            str(number),
            in_seconds(point.cost.time_s),
            in_bytes(point.cost.wire_bytes),
            in_bytes(point.cost.peak_bytes),
            str(point.cost.peak_bytes),
            "; ".join(describe(step) for step in point.steps if step.axes) or "nothing moves",
        ]
        for number, point in enumerate(points, 1)
    ]
    keys = [
        [str(n), repr(p.cost.time_s), str(p.cost.wire_bytes), str(p.cost.peak_bytes), str(p.cost.peak_bytes), ""]
        for n, p in enumerate(points, 1)
    ]
    headers = ("plan", "time", "wire bytes", "peak memory", "--memory", "moves")
    return table("`--memory` with a row's number gives its plan", headers, rows, keys=keys)


def code(reported: Reported, room: Room) -> Element:
    """The program as written, and the JAX module."""
    program = str(reported.plan.schedule.program)
    return section(
        "code",
        "Code",
        *_copied("program", "the program", cut(program, room.code // 4)),
        *_copied("module", "the JAX module: its function is `program`", cut(reported.source, room.code)),
    )


def _copied(name: str, title: str, text: str) -> Iterator[Element]:
    yield tag("h3", title, " ", tag("button", "copy", type="button", class_="copy", data_of=name))
    yield scrolls(tag("pre", tag("code", text, id=name)), title)


def verified(reported: Reported) -> Element | None:
    """The plan beside what the compiler made of it, where a slice is named."""
    found = reported.verification
    if found is None:
        return section("verified", "Verified", tag("p", reported.unverified)) if reported.unverified else None
    text = verification_table(found, reported.plan.view.steps)
    return section(
        "verified",
        "Verified",
        scrolls(tag("pre", text), "verification"),
        tag("h3", "the compiled program, replayed"),
        figure(timeline_picture(found.replayed)),
    )
