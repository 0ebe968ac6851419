"""A device's memory over a plan's steps, beside what the chip has.

Where a slice is named, what the compiled program is predicted to allocate, which it does at once: arguments, outputs
and temporaries. Elsewhere the buffers alive while each step runs, inputs and outputs included. Both are the plan's
peak memory (`cost.memory`).
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.cost.allocation import Allocation
from shardc.cost.memory import alive_bytes, allocated_of
from shardc.io.units import in_bytes
from shardc.ir.plan import Schedule
from shardc.report.pictures import style
from shardc.report.pictures.marks import Group, Line, Mark, Rect, Text, width_of
from shardc.report.pictures.picture import Picture, framed
from shardc.report.pictures.scale import Scale

_HEIGHT, _LEFT, _TOP = 190.0, 70.0, 24.0
_LEAST, _WIDTH = 26.0, 560.0
_MOST = 200  # bars
_SEEN = 0.05  # of the capacity: a plan that needs less is drawn to its own scale


def memory_picture(schedule: Schedule, capacity: int) -> Picture:
    """`capacity` is the chip's, in bytes."""
    allocated = allocated_of(schedule)
    found = alive_bytes(schedule.block, schedule.mesh)
    bars = list(found) if allocated is None else [allocated.total_bytes]
    peak = max(bars)
    top = max(peak, capacity) if peak > _SEEN * capacity else peak
    y = Scale(0, max(top, 1) * 1.08, _TOP + _HEIGHT, _TOP)
    marks: list[Mark] = [Text(0, 12, "memory of a device", "s"), *_grid(y), *_capacity(capacity, peak, y)]
    if allocated is None:
        marks += _alive(bars, y)
    else:
        marks += _allocated(allocated, y)
    return framed(Picture("memory", _LEFT + _WIDTH + 10, _TOP + _HEIGHT + 36, tuple(marks)))


def _grid(y: Scale) -> list[Mark]:
    marks: list[Mark] = []
    for value in y.ticks(5):
        marks.append(Line(((_LEFT, y(value)), (_LEFT + _WIDTH, y(value))), "grid"))
        marks.append(Text(_LEFT - 6, y(value) + 4, in_bytes(round(value)), "s soft", "end"))
    return marks


def _capacity(capacity: int, peak: int, y: Scale) -> list[Mark]:
    """A line where the chip's memory ends, or a word where that is off the scale."""
    said, told = f"the chip has {in_bytes(capacity)}", (("capacity", str(capacity)),)
    if capacity > y.high:
        said += f", {capacity / peak:,.0f}× the peak" if peak else ""
        return [Text(_LEFT + _WIDTH, 12, said, "s", "end", told)]
    line = Line(((_LEFT, y(capacity)), (_LEFT + _WIDTH, y(capacity))), "alarm dashed", told=told, title=said)
    return [line, Text(_LEFT + _WIDTH, y(capacity) - 4, said, "s alarm", "end")]


def _alive(sizes: Sequence[int], y: Scale) -> list[Mark]:
    """A bar before the first step, and one for each step, or for some where there are many; the largest stand out."""
    several, peak = -(-len(sizes) // _MOST), max(sizes)
    bars = [max(sizes[at : at + several]) for at in range(0, len(sizes), several)]
    wide = _WIDTH / len(bars)
    marks: list[Mark] = []
    every = max(1, round(_LEAST / wide))
    for place, count in enumerate(bars):
        x, name = _LEFT + place * wide, _named(place * several, several)
        look = style.fill(1 if count == peak else 0)
        bar = Rect(x, y(count), wide - min(2, wide / 4), y(0) - y(count), f"{look} edge")
        told = (("step", str(place * several)), ("bytes", str(count)))
        marks.append(Group((bar,), look="bar", told=told, title=f"{name}: {in_bytes(count)}"))
        if place % every == 0:
            shown = name if wide > width_of(name, "s") else str(place * several)
            marks.append(Text(x + wide / 2, y(0) + 15, shown, "s soft", "middle"))
    first = bars.index(peak)
    at = min(max(_LEFT + (first + 0.5) * wide, _LEFT + 40), _LEFT + _WIDTH - 40)
    marks.append(Text(at, y(peak) - 4, f"peak {in_bytes(peak)}", "s", "middle", (("peak", str(peak)),)))
    return marks


def _named(first: int, several: int) -> str:
    if several > 1:
        return f"at most, steps {first} to {first + several - 1}"
    return f"step {first}" if first else "given"


def _allocated(found: Allocation, y: Scale) -> list[Mark]:
    """Three parts, one above the other."""
    parts = (
        ("arguments", found.argument_bytes),
        ("outputs", found.output_bytes),
        ("temporaries", found.temporary_bytes),
    )
    marks: list[Mark] = []
    below = 0
    for number, (name, count) in enumerate(parts):
        rect = Rect(_LEFT + 8, y(below + count), 120, y(below) - y(below + count), f"{style.fill(number)} edge")
        said, middle = f"{name}: {in_bytes(count)}", y(below + count / 2) + 4
        told = (("part", name), ("bytes", str(count)))
        line = Line(((_LEFT + 130, middle - 4), (_LEFT + 148, _label(number, y) - 4)), "grid")
        marks.append(
            Group((rect, line, Text(_LEFT + 152, _label(number, y), said, "s")), look="bar", told=told, title=said)
        )
        below += count
    total = (("peak", str(found.total_bytes)),)
    marks.append(
        Text(_LEFT + 152, _label(3, y), f"in all {in_bytes(found.total_bytes)}, allocated at once", "s", told=total)
    )
    return marks


def _label(number: int, y: Scale) -> float:
    """Names stand apart, from the bottom up, however thin the parts are."""
    return y(0) - 8 - number * (_HEIGHT / 5)
