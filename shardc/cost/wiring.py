"""Where the devices of a group are on a torus, and what each link between two neighbours carries in a call.

A group that is a box of chips has a place on each of its lines: what goes over a line (`cost.carried`) goes over every
line beside it. The blocks of a permute whose pairs are known go each its own way, over links of all the slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from shardc.cost.carried import Carried
from shardc.cost.layout import ONE_WAY
from shardc.cost.links.fabric import Fabric
from shardc.cost.links.level import Wire
from shardc.cost.links.torus_links import groups_of
from shardc.cost.model import LinkModel
from shardc.cost.topology import Place
from shardc.ir.sharding import Axes
from shardc.lowering.forms import Call
from shardc.lowering.pairs import NOTHING, pairs_of


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
    beside it. `axes` are those by which devices are told apart."""

    along: tuple[Along, ...]
    axes: Axes
    devices: tuple[tuple[Place, int], ...]
    wires: tuple[Wire, ...]
    is_alike: bool

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
    """The grid of a call on blocks of so many bytes; None of one line, of devices that are no box, behind a switch."""
    fabric = model.network.fabric
    if fabric is None:
        return None
    if call.sent != NOTHING:
        return _of_slice(fabric, pairs_of(call.sent, model.mesh), block, model)
    if len(lines) not in (2, 3):
        return None
    groups = groups_of(model.mesh, call.over.axes) if call.over.split is None else call.over.groups()
    for group in groups:
        places = _places(group, model.network.inside([group])[0], lines, fabric)
        if places is not None:
            along = tuple(along_of(each, call) for each in lines)
            return Wiring(along, call.over.axes, tuple(places), tuple(_every_wire(lines)), True)
    return None


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


def _of_slice(fabric: Fabric, pairs: Sequence[Sequence[int]], block: int, model: LinkModel) -> Wiring | None:
    wide = [axis for axis, size in enumerate(fabric.laid.shape) if size > 1]
    if len(wide) > 3:
        return None

    def kept(place: Place) -> Place:
        return tuple(place[axis] for axis in wide)

    along = tuple(
        Along("·".join(fabric.laid.names(axis)[::-1]), fabric.kinds[axis], fabric.laid.shape[axis], fabric.link)
        for axis in wide
    )
    devices = tuple((kept(fabric.laid.place(device)), device) for device in range(model.mesh.devices))
    wires = (Wire(kept(w.at), wide.index(w.along), w.forward, w.backward) for w in fabric.wires(pairs, block))
    return Wiring(along, model.mesh.names, devices, tuple(wires), False)
