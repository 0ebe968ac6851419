"""Where the devices of a group are on a torus, and what each link between two neighbours carries in a call.

A group that is a box of chips has a place on each of its lines: what goes over a line (`cost.carried`) goes over every
line beside it. Of what is sent from device to device, in a permute, round a ring beside products, or in a group that is
no box, each block goes its own way. Where none leaves the box of its group one group is shown, else all the slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

from shardc.cost.carried import Carried, profile_of
from shardc.cost.layout import LINE, ONE_WAY
from shardc.cost.links.fabric import Fabric, Groups, Run
from shardc.cost.links.level import Wire
from shardc.cost.links.routed import exchanged, gathered, shifted
from shardc.cost.links.torus_links import groups_of
from shardc.cost.model import LinkModel
from shardc.cost.topology import Place
from shardc.ir.mesh import Mesh
from shardc.ir.operations import Kind
from shardc.ir.sharding import Axes
from shardc.lowering.forms import Call
from shardc.lowering.pairs import NOTHING, pairs_of

Sent: TypeAlias = tuple[Groups, float]  # who sends to whom, and how many bytes


@dataclass(frozen=True, slots=True)
class Along:
    """An axis of the grid: `size` devices, `stride` chips apart; `name` is of its mesh axes, or of its width."""

    name: str
    shape: str  # one of layout.SHAPES
    size: int
    link: float  # B/s each way
    stride: int = 1


@dataclass(frozen=True, slots=True)
class Wiring:
    """Devices by their numbers on a grid of one to three axes. `is_alike`: what is said of a line is true of those
    beside it. `axes` are those by which devices are told apart. `is_bound`: the bytes are at most so many."""

    along: tuple[Along, ...]
    axes: Axes
    mesh: Mesh  # of which they are numbers
    devices: tuple[tuple[Place, int], ...]
    wires: tuple[Wire, ...]
    is_alike: bool
    is_bound: bool = False

    def goes_back(self, wire: Wire) -> bool:
        return self.along[wire.along].shape != ONE_WAY

    def end(self, wire: Wire) -> Place:
        """The place of the device at its other end."""
        at = list(wire.at)
        at[wire.along] = (at[wire.along] + 1) % self.along[wire.along].size
        return tuple(at)

    def closes(self, wire: Wire) -> bool:
        """Whether it leads from the last device of a ring to the first."""
        return wire.at[wire.along] == self.along[wire.along].size - 1


def wiring(call: Call, block: int, lines: Sequence[Carried], model: LinkModel) -> Wiring | None:
    """The grid of a call on blocks of so many bytes; None of one line, and behind a switch."""
    fabric = model.network.fabric
    if fabric is None or model.network.is_far(_groups(call, model.mesh)):
        return None
    if call.sent != NOTHING:
        return sent_on(fabric, [(pairs_of(call.sent, model.mesh), block)], model.mesh.names, model)
    if not lines:
        return _by_ways(call, block, fabric, model)
    if len(lines) not in (2, 3):
        return None
    for group in _groups(call, model.mesh):
        places = _places(group, model.network.inside([group])[0], lines, fabric)
        if places is not None:
            along = tuple(along_of(each, call) for each in lines)
            return Wiring(along, call.over.axes, model.mesh, tuple(places), tuple(_every_wire(lines)), True)
    return None


def _groups(call: Call, mesh: Mesh) -> list[list[int]]:
    return groups_of(mesh, call.over.axes) if call.over.split is None else call.over.groups()


def _by_ways(call: Call, block: int, fabric: Fabric, model: LinkModel) -> Wiring | None:
    """Of groups that are no boxes, all at the same time."""
    groups = model.network.inside(_groups(call, model.mesh))
    match profile_of(call.kind):
        case "gather":
            sent, piece = gathered(groups, fabric), float(block)
        case "scatter":  # a gather, the other way round
            sent, piece = gathered(groups, fabric), block / len(groups[0])
            sent = [([(to, by) for by, to in pairs], blocks) for pairs, blocks in sent]
        case "both":  # a scatter, then a gather
            sent, piece = gathered(groups, fabric), block / len(groups[0])
            sent += [([(to, by) for by, to in pairs], blocks) for pairs, blocks in sent]
        case "exchange":
            sent, piece = exchanged(groups, fabric), block / len(groups[0])
        case "route":
            sent, piece = shifted(groups, fabric), float(block)
        case None:
            return None
    found = sent_on(fabric, [(pairs, blocks * piece) for pairs, blocks in sent], call.over.axes, model)
    return found and replace(found, is_bound=call.kind is Kind.PERMUTE)


def along_of(each: Carried, call: Call) -> Along:
    """Of a line that carries something in a call, what it is; of parts of an axis it is named by the axis."""
    line = each.line
    name = line.width_name.removeprefix("W_")
    if call.over.split is not None:
        name = "_".join([*call.over.axes, *name.split("_")[1:]])
    return Along(name, line.shape, line.size, line.link, line.stride)


def _places(
    group: Sequence[int], inside: Sequence[int], lines: Sequence[Carried], fabric: Fabric
) -> list[tuple[Place, int]] | None:
    """The place of each device along each line; None where its chips are no box of such lines."""
    runs = {run.axis: run for run in fabric.box(inside) or ()}
    if {axis: run.size for axis, run in runs.items()} != {each.line.lies: each.line.size for each in lines}:
        return None
    ordered = [runs[each.line.lies] for each in lines]
    chips = (fabric.laid.place(device) for device in inside)
    places = (tuple(run.starts.index(chip[run.axis]) for run in ordered) for chip in chips)
    return list(zip(places, group, strict=True))


def _every_wire(lines: Sequence[Carried]) -> Iterator[Wire]:
    for at in product(*(range(each.line.size) for each in lines)):
        for along, (each, place) in enumerate(zip(lines, at, strict=True)):
            if place < each.links:
                yield Wire(at, along, each.forward(place), each.backward(place))


def sent_on(fabric: Fabric, sent: Sequence[Sent], axes: Axes, model: LinkModel) -> Wiring | None:
    """What blocks sent at once put on the links: of the groups over `axes` one, where each keeps to its box."""
    near = Mesh(tuple((name, size) for name, size in model.mesh.axes if name not in model.network.dcn))
    if sum(size > 1 for size in fabric.laid.shape) > 3:
        return None
    wires = _carried(fabric, sent)
    first, *others = model.network.inside(groups_of(model.mesh, axes))
    box = fabric.box(first)
    if others and box is not None and all(run.stride == 1 for run in box):
        cut = _cut(fabric, wires, axes, first, box, near)
        own = [([pair for pair in pairs if set(pair) <= set(first)], size) for pairs, size in sent]
        if _most(cut.wires) == _most(wires) and _all(cut.wires) >= _all(_carried(fabric, own)) * (1 - 1e-9):
            return cut
    runs = (Run(axis, tuple(range(size)), 1, fabric.kinds[axis]) for axis, size in enumerate(fabric.laid.shape))
    return _cut(fabric, wires, near.names, range(near.devices), [run for run in runs if run.size > 1], near)


def _carried(fabric: Fabric, sent: Sequence[Sent]) -> list[Wire]:
    """Every link, with all that is sent over it."""
    each = zip(*(fabric.wires(pairs, size) for pairs, size in sent), strict=True)
    return [replace(w[0], forward=sum(o.forward for o in w), backward=sum(o.backward for o in w)) for w in each]


def _cut(
    fabric: Fabric, wires: Sequence[Wire], axes: Axes, devices: Sequence[int], box: Sequence[Run], mesh: Mesh
) -> Wiring:
    """The part of the slice in which these devices are, whose chips are a box, with the links between them."""
    box = sorted(
        box, key=lambda run: fabric.laid.mesh.names.index(fabric.laid.names(run.axis)[-1])
    )  # as other grids have them
    chips = {fabric.laid.place(device): device for device in devices}
    places = {chip: tuple(run.starts.index(chip[run.axis]) for run in box) for chip in chips}
    at = {run.axis: along for along, run in enumerate(box)}
    found = Wiring(
        tuple(Along("·".join(fabric.laid.names(r.axis)[::-1]), r.shape, r.size, fabric.link) for r in box),
        axes,
        mesh,
        tuple((places[chip], device) for chip, device in chips.items()),
        tuple(replace(w, at=places[w.at], along=at[w.along]) for w in wires if w.at in places and w.along in at),
        is_alike=False,
    )
    return replace(
        found, wires=tuple(w for w in found.wires if found.along[w.along].shape != LINE or not found.closes(w))
    )


def _most(wires: Sequence[Wire]) -> float:
    return max((max(wire.forward, wire.backward) for wire in wires), default=0.0)


def _all(wires: Sequence[Wire]) -> float:
    return sum(wire.forward + wire.backward for wire in wires)
