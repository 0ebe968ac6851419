"""The price of a compiled program's collective: which links it occupies, and for how long, by the cost model.

What counts is where the devices of its groups are, and not the axes of the mesh that it is read by: the same program on
a finer mesh of the same devices, or on chips that are labelled otherwise, costs the same.

- A collective among groups takes what the model says of a move of that kind on the links that such groups have, whole
  axes or not, and occupies the links between their chips.
- A permute on a torus is routed, pair by pair, and occupies the links on the ways, each in its own direction: `i → i+1`
  on a ring is one hop and half of each link, so that the two shifts of a ring that turns both ways run beside each
  other. The planner knows no pairs; its price is that of the longest route.
- Behind a switch every device has one port, and over the data-centre network another: what needs the same waits.

Tracks are names to show it under: the mesh axes along which it goes, and a direction where it goes one way only.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.compiled.hlo.collectives import Collective, kind_of
from shardc.compiled.hlo.groups import Groups, axes_of_pairs, coordinate
from shardc.cost.model import LinkModel, Rate
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes

DCN, SWITCH = "DCN", "switch"
MEMORY_PORT, SWITCH_PORT, DCN_PORT = 1, 2, 4  # bits of what is occupied, before those of links
_PORTS = 3


@dataclass(frozen=True, slots=True)
class Price:
    """Where it is shown, what it occupies (a bit for each link and direction), and the time of one run."""

    tracks: tuple[str, ...] = ()
    links: int = 0
    time_ps: int = 0


def price(collective: Collective, model: LinkModel) -> Price:
    """What one run of a collective costs; nothing for a group of one."""
    axes = collective.axes if collective.axes is not None else touched(collective.groups, model.mesh)
    wide = tuple(axis for axis in axes if model.mesh.size(axis) > 1)
    if not wide:
        return Price()
    network, groups = model.network, collective.groups
    sent = network.sent(groups) if collective.kind == "CollectivePermute" else None
    if sent is not None:
        rate = Rate(sent.hops * model.chip.hop_latency, sent.s_per_byte)
        tracks = tuple(axis + _direction(axis, groups, model) for axis in wide)
        return Price(tracks, sent.links << _PORTS, rate.time_ps(collective.local_bytes))
    kind = kind_of(collective.kind)
    rates = [model.rate_of(kind, levels, max(map(len, groups))) for levels in network.grouped(groups)]
    time_ps = max(rate.time_ps(collective.local_bytes) for rate in rates)
    return Price(_tracks(wide, model), _occupied(groups, model), time_ps)


def touched(groups: Groups, mesh: Mesh) -> Axes:
    """The fewest axes that hold every group: along the others no group extends."""
    return axes_of_pairs(tuple((group[0], other) for group in groups for other in group[1:]), mesh)


def _occupied(groups: Groups, model: LinkModel) -> int:
    links = model.network.taken(groups)
    if links:
        return links << _PORTS
    return DCN_PORT if model.network.is_far(groups) else SWITCH_PORT


def _direction(axis: str, pairs: Groups, model: LinkModel) -> str:
    """The way that all blocks take along a mesh axis, the shorter one round where it closes; none if both are taken."""
    mesh, n = model.mesh, model.mesh.size(axis)
    steps = {coordinate(target, axis, mesh) - coordinate(source, axis, mesh) for source, target in pairs} - {0}
    if model.network.closes(axis):
        steps = {step % n if 2 * (step % n) < n else step % n - n if 2 * (step % n) > n else 0 for step in steps}
    return "+" if all(step > 0 for step in steps) else "-" if all(step < 0 for step in steps) else ""


def _tracks(axes: Axes, model: LinkModel) -> tuple[str, ...]:
    """Axes of a torus have links of their own; those over a switch, or over DCN, share each device's port."""
    names = (DCN if axis in model.network.dcn else axis if model.chip.is_torus else SWITCH for axis in axes)
    return tuple(dict.fromkeys(names))
