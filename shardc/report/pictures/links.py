"""What each link carries in a step: the group's devices in a row, a ring, or on a torus as a grid (`torus`).

Every group over the same axes does the same at the same time, so one is drawn. Behind a switch there are ports: what
each device takes in. The bytes are those of `cost.carried`, by which the step is priced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardc.cost.carried import Carried, carried
from shardc.cost.layout import LINE, ONE_WAY
from shardc.cost.links import Level
from shardc.cost.links.switch import Switch
from shardc.cost.model import LinkModel
from shardc.cost.rings import Turn
from shardc.cost.together import knows_ways, turns_of
from shardc.cost.wiring import along_of, sent_on, wiring
from shardc.io.units import in_bytes
from shardc.ir.operations import Kind
from shardc.ir.plan import Done, How, Loop, Schedule
from shardc.ir.sharding import Axes, spell_axes
from shardc.lowering.chunks import COUNT as CHUNKS
from shardc.lowering.forms import Call
from shardc.lowering.scatters import Round
from shardc.report.pictures.marks import Dot, Group, Line, Mark, Rect, Text, width_of
from shardc.report.pictures.picture import Picture, above, framed, line_of
from shardc.report.pictures.torus import said_of, thick, torus_picture

_PITCH, _RADIUS = 84.0, 12.0
_MOST = 8  # devices of a line that are drawn: of a longer one as many of each end


def links_picture(done: Done, model: LinkModel, schedule: Schedule | None = None) -> Picture | None:
    """The links of a step, of one trip where a loop is around it; None where it moves nothing. Where its schedule does
    it as one with a product, turn by turn or of a chunk."""
    step, mesh = done.step, model.mesh
    if isinstance(step.op, Loop) or not step.cost.wire_bytes:
        return None
    over = spell_axes(mesh.ordered(step.op.axes))
    return framed(above(f"links of {step.name} over {over}", [*_rows(done, model, schedule)]))


def _rows(done: Done, model: LinkModel, schedule: Schedule | None) -> Iterator[Picture]:
    group = (
        None
        if schedule is None
        else next((g for g in schedule.together if done.path[1:] == () and done.path[0] in g.places), None)
    )
    if schedule is None or group is None:
        yield from _by_itself(done, model)
        return
    turns = [*_of_turns(turns_of(schedule, group, done.path[0], model), done.step.op.axes, model)]
    yield from turns
    if turns and done.step.op.facts.kind is Kind.SUM:
        yield line_of("then the shares, gathered for all", "s")
        yield from _of_call(
            Call(Kind.GATHER, Round(done.step.op.axes)), _block(done, model) // _devices(done, model), model
        )
    elif not turns and group.how is How.CHUNKS and done.step.op.facts.kind is Kind.GATHER:
        yield line_of(f"each of {CHUNKS} chunks, one after another, beside the product of another", "s")
        yield from _by_itself(done, model, CHUNKS)
    elif not turns:
        yield line_of(f"beside the product ({group.how.value}); by itself it would put on the links", "s")
        yield from _by_itself(done, model)


def _by_itself(done: Done, model: LinkModel, parts: int = 1) -> Iterator[Picture]:
    """The links of each collective that a step is made of, where it moves so many parts one after another."""
    before, block, found = done.block.values[done.step.operands[0]], _block(done, model), list[Picture]()
    assert not isinstance(done.step.op, Loop)
    for call in model.calls(done.step.op, before):
        if call.kind is not Kind.LOCAL:
            found += _of_call(call, int(block * call.times) * call.above // call.below // parts, model)
    yield from found or [_ports(done, model)]


def _block(done: Done, model: LinkModel) -> int:
    return done.block.values[done.step.operands[0]].local_bytes(model.mesh)


def _devices(done: Done, model: LinkModel) -> int:
    return model.mesh.product(done.step.op.axes)


def _of_turns(turns: Sequence[Turn], axes: Axes, model: LinkModel) -> Iterator[Picture]:
    """What blocks that go round beside a product put on the links, each kind of turn once; nothing behind a switch."""
    fabric = model.network.fabric if knows_ways(model) else None
    for turn in turns:
        found = sent_on(fabric, turn.blocks, axes, model) if fabric and turn.times and turn.blocks else None
        if found is not None:
            times = f", {turn.times} times one after another" if turn.times > 1 else ""
            yield line_of(f"{turn.name}{times}", "s")
            yield torus_picture(found, spell_axes(model.mesh.ordered(axes)))


def _of_call(call: Call, block: int, model: LinkModel) -> list[Picture]:
    """The grid of a torus, or each of its lines by itself; nothing where there are ports."""
    lines, over = carried(call.kind, model.levels_of(call), block, call.over.parts(model.mesh)), call.over.axes
    spelled = spell_axes(model.mesh.ordered(over))
    if call.over.split is not None:
        spelled += f" in groups of {call.over.parts(model.mesh)}"
    found = wiring(call, block, lines, model)
    if found is not None:
        return [torus_picture(found, spelled)]
    return [_line(each, call, spelled) for each in lines]


def _line(each: Carried, call: Call, over: str) -> Picture:
    """Devices in a row; above each link what goes right, below it what goes left; a bow closes a ring."""
    size, shape = each.line.size, each.line.shape
    drawn = list(range(size)) if size <= _MOST else [*range(_MOST // 2), *range(size - _MOST // 2, size)]
    axis = along_of(each, call)
    where = over if axis.name == over or call.over.split is not None else f"{over} on the links of {axis.name}"
    head = f"{where}: {said_of(axis)}"
    head += "; bytes at most" if each.is_bound else ""
    top = 34.0 if shape == LINE else 70.0
    most = each.busiest or 1.0
    marks: list[Mark] = [Text(0, 12, head, "s")]
    for place, (device, following) in enumerate(zip(drawn, [*drawn[1:], -1], strict=True)):
        at = (place * _PITCH + _RADIUS + 2, top + 12)
        if following == device + 1:
            marks.append(_link(each, device, at[0], at[1], most))
        elif following >= 0:
            marks.append(Text(at[0] + _PITCH / 2, at[1] + 4, "…", "t", "middle"))
        marks += [Dot(*at, _RADIUS, "hollow edge"), Text(at[0], at[1] + 4, str(device), "s", "middle")]
    wide = (len(drawn) - 1) * _PITCH + 2 * _RADIUS + 4
    if shape != LINE:
        marks.append(_closing(each, wide, top + 12, most))
    return Picture(head, max(wide, width_of(head, "s")), top + 34, tuple(marks))


def _bytes(count: float) -> str:
    return in_bytes(round(count))


def _told(each: Carried, link: int) -> tuple[tuple[str, str], ...]:
    return (("link", str(link)), ("forward", str(round(each.forward(link)))), ("backward", _back(each, link)))


def _back(each: Carried, link: int) -> str:
    return str(round(each.backward(link)))


def _link(each: Carried, link: int, x: float, y: float, most: float) -> Group:
    """Between two neighbours."""
    left, right, middle = x + _RADIUS + 2, x + _PITCH - _RADIUS - 2, x + _PITCH / 2
    ahead, back = each.forward(link), each.backward(link)
    marks: list[Mark] = [
        Line(((left, y - 4), (right - 5, y - 4)), "line", thick=thick(ahead, most)),
        *_head(right, y - 4, 1),
        Text(middle, y - 11, _bytes(ahead), "s", "middle"),
    ]
    if each.line.shape != ONE_WAY:
        marks += [
            Line(((left + 5, y + 4), (right, y + 4)), "line", thick=thick(back, most)),
            *_head(left, y + 4, -1),
            Text(middle, y + 19, _bytes(back), "s", "middle"),
        ]
    title = f"from {link} to {link + 1} {_bytes(ahead)}, back {_bytes(back)}"
    return Group(tuple(marks), look="link", told=_told(each, link), title=title)


def _head(x: float, y: float, way: int) -> Iterator[Mark]:
    yield Line(((x - 7 * way, y - 3.5), (x, y), (x - 7 * way, y + 3.5)), "arrow")


def _closing(each: Carried, wide: float, y: float, most: float) -> Group:
    """From the last device of a ring back to the first."""
    link = each.line.size - 1
    ahead, back = each.forward(link), each.backward(link)
    said = f"{link} → 0: {_bytes(ahead)}" + ("" if each.line.shape == ONE_WAY else f"; 0 → {link}: {_bytes(back)}")
    left, right, top = _RADIUS + 2, wide - _RADIUS - 2, y - 30
    way = ((right, y - _RADIUS), (right, top), (left, top), (left, y - _RADIUS - 6))
    marks: list[Mark] = [Line(way, "line", thick=thick(ahead, most)), *_arrived(left, y - _RADIUS)]
    marks.append(Text(wide / 2, y - 36, said, "s", "middle"))
    return Group(tuple(marks), look="link", told=_told(each, link), title=said)


def _ports(done: Done, model: LinkModel) -> Picture:
    """Devices below what joins them."""
    step, devices = done.step, _devices(done, model)
    levels, over = model.network.levels(step.op.axes), spell_axes(model.mesh.ordered(step.op.axes))
    drawn = min(devices, _MOST)
    wide = drawn * _PITCH * 0.8
    said = [_joins(level) for level in levels]
    head = f"{over}: {devices} devices, each takes in {in_bytes(step.cost.wire_bytes)}"
    width = max(wide, *(width_of(text, "s") + 12 for text in said))
    marks: list[Mark] = [Text(0, 12, head, "s")]
    for row, text in enumerate(reversed(said)):
        marks += [Rect(0, 22 + 24 * row, width, 20, "hollow edge"), Text(6, 36 + 24 * row, text, "s")]
    top = 22 + 24 * len(said)
    for device in range(drawn):
        x = (device + 0.5) * wide / drawn
        marks += [Line(((x, top - 4), (x, top + 12)), "line"), *_arrived(x, top + 14)]
        port = (("port", str(device)), ("in", str(step.cost.wire_bytes)))
        marks += [Dot(x, top + 27, _RADIUS, "hollow edge", port), Text(x, top + 31, str(device), "s", "middle")]
    if drawn < devices:
        marks.append(Text(wide + 4, top + 31, f"… {devices} in all", "s"))
    wide_all = max(width, width_of(head, "s"), wide + (90 if drawn < devices else 0))
    return Picture(head, wide_all, top + 42, tuple(marks))


def _arrived(x: float, y: float) -> Iterator[Mark]:
    yield Line(((x - 3.5, y - 6), (x, y), (x + 3.5, y - 6)), "arrow")


def _joins(level: Level) -> str:
    what = f"a switch of {level.count.value:.0f}" if isinstance(level, Switch) else "links shared on the way"
    return f"{what}: {in_bytes(int(level.width.value))}/s into each"
