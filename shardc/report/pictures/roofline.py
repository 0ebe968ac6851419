"""The roofline of a chip, and a plan's products on it: FLOP/s that can be had at so many FLOPs per byte of memory.

Below the ridge memory is what a product waits for, above it the units. Both axes are logarithmic.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from shardc.cost.alone import Alone
from shardc.cost.calibration import Calibration
from shardc.cost.chips import Chip
from shardc.ir.dtypes import multiplied
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Done, Einsum, Schedule, single_steps
from shardc.report.pictures import style
from shardc.report.pictures.marks import Dot, Group, Line, Mark, Text, shortened, width_of
from shardc.report.pictures.picture import Picture, framed
from shardc.report.pictures.scale import Scale, apart
from shardc.report.pictures.steps import step_name

_WIDTH, _HEIGHT, _LEFT, _TOP = 420.0, 240.0, 76.0, 26.0
_MOST = 16  # products that are drawn
_LISTED = 310.0  # pixels of the list beside the chart


@dataclass(frozen=True, slots=True)
class Product:
    """A step's product: FLOPs per byte of memory, FLOP/s as priced, and the units' peak for its type."""

    step: str
    intensity: float
    rate: float
    peak: float
    reached: float  # what products of its type reach, as measured
    waits_for_memory: bool


def products(schedule: Schedule, alone: Alone) -> list[Product]:
    """The products that take time; of a loop's, one trip's."""
    return [
        _product(done, schedule.mesh, alone)
        for done in single_steps(schedule.block)
        if isinstance(done.step.op, Einsum) and done.step.cost.flops and done.step.cost.time_s
    ]


def _product(done: Done, mesh: Mesh, alone: Alone) -> Product:
    step = done.step
    arrays = [done.block.values[value] for value in (*step.operands, step.result)]
    moved = sum(array.local_bytes(mesh) for array in arrays)
    dtype = multiplied(array.dtype for array in arrays[:-1])
    rate, peak = step.cost.flops / step.cost.time_s, alone.chip.peak(dtype)
    intensity, reached = step.cost.flops / moved, alone.flops_per_s(dtype)
    return Product(step_name(done), intensity, rate, peak, reached, step.cost.by_memory)


def roofline_picture(schedule: Schedule, alone: Alone) -> Picture:
    """A roof for each peak that products have, and a dot for each product, numbered as its step.

    On a slice whose compiler was measured a dashed roof is what can be reached there.
    """
    found, chip = products(schedule, alone), alone.chip
    peaks = sorted({product.peak for product in found} or {chip.flops})
    ridges = [peak / chip.hbm_bandwidth for peak in peaks]
    across = [product.intensity for product in found] + ridges
    x = Scale(min(across) / 4, max(across) * 4, _LEFT, _LEFT + _WIDTH, log=True)
    rates = [product.rate for product in found] + peaks + [x.low * chip.hbm_bandwidth]
    y = Scale(min(rates) / 2, max(peaks) * 3, _TOP + _HEIGHT, _TOP, log=True)
    marks = [*_axes(x, y), *(mark for peak in peaks for mark in _roof(peak, chip, x, y))]
    if alone.measured is not None:
        marks.append(Text(_LEFT + _WIDTH, 12, "dashed: what compiled programs reach, as measured", "s soft", "end"))
        marks += [_reached(each, alone.measured, x, y) for each in sorted({product.reached for product in found})]
    marks += _dots(found, x, y)
    return framed(Picture(f"roofline of {chip.name}", _LEFT + _WIDTH + 16 + _LISTED, _TOP + _HEIGHT + 42, tuple(marks)))


def _axes(x: Scale, y: Scale) -> list[Mark]:
    marks: list[Mark] = []
    for value in x.ticks():
        marks.append(Line(((x(value), y.start), (x(value), y.end)), "grid"))
        marks.append(Text(x(value), y.start + 15, f"{value:g}", "s soft", "middle"))
    for value in y.ticks():
        marks.append(Line(((x.start, y(value)), (x.end, y(value))), "grid"))
        marks.append(Text(x.start - 6, y(value) + 4, _rate(value), "s soft", "end"))
    middle = (x.start + x.end) / 2
    marks.append(Text(middle, y.start + 32, "FLOPs per byte of memory", "s", "middle"))
    marks.append(Text(0, 12, "FLOP/s of a device", "s"))
    return marks


def _rate(value: float) -> str:
    scale, unit = next(((s, u) for s, u in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")) if value >= s), (1.0, ""))
    return f"{value / scale:.3g} {unit}FLOP/s"


def _roof(peak: float, chip: Chip, x: Scale, y: Scale) -> list[Mark]:
    ridge = peak / chip.hbm_bandwidth
    points = ((x.low, x.low * chip.hbm_bandwidth), (ridge, peak), (x.high, peak))
    told = (("peak", repr(peak)), ("bandwidth", repr(chip.hbm_bandwidth)))
    title = f"memory up to {ridge:.3g} FLOPs per byte, then {_rate(peak)}"
    roof = Line(tuple((x(each), y(rate)) for each, rate in points), "line", thick=2.0, told=told, title=title)
    return [roof, Text(x(x.high), y(peak) - 6, f"peak {_rate(peak)}", "s", "end")]


def _reached(rate: float, measured: Calibration, x: Scale, y: Scale) -> Line:
    ridge = rate / measured.bf16_read
    points = ((x.low, x.low * measured.bf16_read), (ridge, rate), (x.high, rate))
    said = f"as measured: memory up to {ridge:.3g} FLOPs per byte, then {_rate(rate)}"
    return Line(
        tuple((x(each), y(r)) for each, r in points), "line dashed", told=(("reached", repr(rate)),), title=said
    )


def _dots(found: list[Product], x: Scale, y: Scale) -> list[Mark]:
    """Each product as a dot; beside the chart a list of them, those at one place in one line, a thin line to it."""
    ordered = sorted(found, key=lambda product: (y(product.rate), product.step))[:_MOST]
    at_one = [list(some) for _, some in groupby(ordered, key=_said)]
    places = apart([max(y(some[0].rate), _TOP + 10) for some in at_one], 15)
    shift = max(0.0, (places[-1] if places else 0.0) - (_TOP + _HEIGHT))
    marks: list[Mark] = []
    for some, place in zip(at_one, places, strict=True):
        steps = ", ".join(product.step for product in some)
        label = shortened(f"step{'s' * (len(some) > 1)} {steps}", _LISTED - width_of(_said(some[0]), "s"), "s")
        beside, at = (_LEFT + _WIDTH + 14, place - shift), (x(some[0].intensity), y(some[0].rate))
        marks.append(Line((at, (beside[0] - 4, beside[1] - 4)), "grid"))
        marks += [_dot(product, x, y) for product in some]
        marks.append(Text(*beside, f"{label}: {_said(some[0])}", "s"))
    return marks


def _said(product: Product) -> str:
    return f"{_rate(product.rate)}, {'HBM-bound' if product.waits_for_memory else 'compute-bound'}"


def _dot(product: Product, x: Scale, y: Scale) -> Group:
    told = (("step", product.step), ("intensity", repr(product.intensity)), ("rate", repr(product.rate)))
    look = f"{style.fill(2 if product.waits_for_memory else 0)} edge"
    dot = Dot(x(product.intensity), y(product.rate), 5, look)
    return Group((dot,), look="dot", told=told, title=f"step {product.step}: {_said(product)}")
