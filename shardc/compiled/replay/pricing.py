"""The price of a compiled program's collective: which links it occupies, and for how long, by the cost model.

What counts is where the devices of its groups are, and not the axes of the mesh that it is read by: the same program on
a finer mesh of the same devices, or on chips that are labelled otherwise, costs the same.

- A collective among groups takes what the model says of a move of that kind on the links that such groups have, whole
  axes or not, and occupies the links between their chips.
- A permute on a torus is routed, pair by pair, and occupies the links on the ways, each in its own direction: `i → i+1`
  on a ring is one hop and half of each link, so that the two shifts of a ring that turns both ways run beside each
  other. The planner knows no pairs; its price is that of the longest route.
- Behind a switch every device has one port, and over the data-centre network another: what needs the same waits.

`tracks` says under which names it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.compiled.hlo.collectives import Collective, kind_of
from shardc.compiled.hlo.groups import Groups, axes_of_pairs
from shardc.compiled.replay.tracks import tracks
from shardc.cost.model import LinkModel
from shardc.cost.rate import Rate
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes

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
        return Price(tracks(wide, model, groups), sent.links << _PORTS, rate.time_ps(collective.local_bytes))
    kind = kind_of(collective.kind)
    rates = [model.rate_of(kind, levels, max(map(len, groups))) for levels in network.grouped(groups)]
    time_ps = max(rate.time_ps(collective.local_bytes) for rate in rates)
    return Price(tracks(wide, model), _occupied(groups, model), time_ps)


def touched(groups: Groups, mesh: Mesh) -> Axes:
    """The fewest axes that hold every group: along the others no group extends."""
    return axes_of_pairs(tuple((group[0], other) for group in groups for other in group[1:]), mesh)


def _occupied(groups: Groups, model: LinkModel) -> int:
    links = model.network.taken(groups)
    if links:
        return links << _PORTS
    return DCN_PORT if model.network.is_far(groups) else SWITCH_PORT
