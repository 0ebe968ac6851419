"""A collective of what every device holds already: it moves bytes for nothing.

y = psum(psum(g, "X"), "X")                the second only multiplies by the size of X
g{U_X} summed over X and Y                 is summed over X, times the size of Y
y = ppermute(psum(g, "X"), "X", ring)      each device gets what it has
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardc.compiled.explain.alike import Alike
from shardc.compiled.explain.findings import WORTHWHILE
from shardc.compiled.explain.parts import Part
from shardc.compiled.hlo.collectives import Collective, wire_bytes
from shardc.compiled.hlo.groups import coordinate
from shardc.compiled.hlo.text import Module
from shardc.compiled.replay.pricing import price
from shardc.cost.model import LinkModel
from shardc.ir.collectives import COLLECTIVE_NAMES
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, spell_axes

_OVER_FEWER = ("AllReduce", "AllGather")  # what can be done over some of its axes alone; others over all, or not
_ONCE = ("maximum", "minimum", "and", "or")  # of a value with itself the value


@dataclass(frozen=True, slots=True)
class Needless:
    """Over which axes a collective is done for nothing, what it costs over the others, and what to write."""

    axes: Axes
    wire_bytes: int
    time_s: float
    what: str
    remedy: str


def needless(part: Part, alike: Alike, model: LinkModel) -> Needless | None:
    """None where over each of its axes the devices' values may differ, or where fewer axes save nothing: all links of a
    slice together may be faster than those of one axis."""
    one, axes = part.collective, part.collective.axes
    if not axes or part.operand is None or one.kind not in COLLECTIVE_NAMES:
        return None
    held = alike.axes(part.scope, part.operand.name, axes)
    left = tuple(axis for axis in axes if axis not in held)
    if not held or (left and one.kind not in _OVER_FEWER):
        return None
    if one.kind == "CollectivePermute" and not _is_given_to_all(one, model.mesh):
        return None
    whole, over = (_over(one, part.local_bytes, some, model.mesh) for some in (axes, left))
    taken, needed = (price(each, model).time_ps for each in (whole, over))
    if over.wire_bytes > WORTHWHILE * part.wire_bytes or needed > taken:
        return None
    return Needless(held, over.wire_bytes, needed / 10**12, *_said(part, alike.module, held, model.mesh))


def _is_given_to_all(permute: Collective, mesh: Mesh) -> bool:
    """Whether each device gets something: one that gets nothing has zeros."""
    return len({to for _, to in permute.groups}) == mesh.devices


def _over(one: Collective, local_bytes: int, axes: Axes, mesh: Mesh) -> Collective:
    """The same over some of its axes: of each group the devices that differ along these alone."""
    size = mesh.product(axes)
    groups = tuple(dict.fromkeys(part for group in one.groups for part in _parted(group, axes, mesh)))
    wire = wire_bytes(one.kind, size, local_bytes)
    return replace(one, local_bytes=local_bytes, wire_bytes=wire, group_size=size, groups=groups, axes=axes)


def _parted(group: tuple[int, ...], axes: Axes, mesh: Mesh) -> list[tuple[int, ...]]:
    found: dict[tuple[int, ...], list[int]] = {}
    for device in group:
        place = tuple(coordinate(device, axis, mesh) for axis in mesh.names if axis not in axes)
        found.setdefault(place, []).append(device)
    return [tuple(devices) for devices in found.values()]


def _said(part: Part, module: Module, held: Axes, mesh: Mesh) -> tuple[str, str]:
    """What is done for nothing, and what to write instead."""
    over, size = spell_axes(held), mesh.product(held)
    alike, kind = f"every device along {over} holds the same array already", part.collective.kind
    if kind == "AllGather":
        remedy = f"use what each device holds; where {size} copies are meant, jnp.tile makes them and moves nothing"
        return f"{alike}, and is given {size} copies of it", remedy
    if kind == "CollectivePermute":
        return f"{alike}, and is sent the same", "leave out the permute: use what each device holds"
    if kind == "AllToAll":
        remedy = f"let each device slice its part of what it holds, and repeat it {size} times; that moves nothing"
        return f"{alike}, and is sent {size} times its own part of it", remedy
    if kind == "ReduceScatter":
        remedy = f"let each device slice what it holds; where the factor is meant, write {size} * the slice"
        return f"{alike}: summing it multiplies it by {size}, and each keeps a part", remedy
    if _reduction(part, module) in _ONCE:
        return f"{alike}, which is the result", f"leave out the reduction over {over}"
    remedy = f"leave out the sum over {over}; where the factor is meant, write {size} * the array"
    return f"{alike}: summing it multiplies it by {size}", remedy


def _reduction(part: Part, module: Module) -> str:
    computation = module.computations.get(part.operation.attributes.get("to_apply", "").lstrip("%"))
    return "" if computation is None else computation.root.opcode
