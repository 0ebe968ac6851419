"""The price of a compiled program's collective: which links it occupies, and for how long, by the cost model.

- Over whole axes it is the move of that kind over those axes.
- Over parts of axes it is the same wire bytes, moved over the whole axes that the groups touch: as many bytes a
  second as there, whichever of their links the groups really have.
- A permute on a torus is routed, pair by pair (`compiled.replay.routes`), and takes the links it needs, each in its own
  direction: `i → i+1` on a ring is one hop and half of each link, so that the two shifts of a ring that turns both
  ways run beside each other. The cost model knows no pairs; its price is that of the longest route.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from shardc.compiled.hlo.collectives import Collective
from shardc.compiled.hlo.groups import Groups, axes_of_pairs
from shardc.compiled.replay.routes import BOTH, routed
from shardc.cost.model import LinkModel, Rate
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, CollectivePermute, Move, ReduceScatter
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes

DCN, SWITCH = "DCN", "switch"


@dataclass(frozen=True, slots=True)
class Price:
    """Where it is shown, what it occupies (each direction of each track's links), and the time of one run."""

    tracks: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    time_ps: int = 0


def price(collective: Collective, model: LinkModel) -> Price:
    """What one run of a collective costs; nothing for a group of one."""
    mesh = model.mesh
    axes = collective.axes if collective.axes is not None else touched(collective.groups, mesh)
    wide = tuple(axis for axis in axes if mesh.size(axis) > 1)
    if not wide:
        return Price()
    found = routed(collective.groups, wide, model) if collective.kind == "CollectivePermute" else None
    if found is not None:
        rate = Rate(found.hops * model.chip.hop_latency, found.s_per_byte)
        return _on([(axis, found.directions[axis]) for axis in wide], rate, collective.local_bytes)
    rate = model.rate(_move(collective.kind, wide))
    local_bytes = _over_whole_axes(collective, mesh.product(wide))
    return _on([(track, BOTH) for track in _tracks(wide, model)], rate, local_bytes)


def touched(groups: Groups, mesh: Mesh) -> Axes:
    """The fewest axes that hold every group: along the others no group extends."""
    return axes_of_pairs(tuple((group[0], other) for group in groups for other in group[1:]), mesh)


def _on(tracks: Sequence[tuple[str, str]], rate: Rate, local_bytes: int) -> Price:
    """On these tracks, each with the directions that are taken."""
    shown = tuple(track if len(ways) > 1 else track + ways for track, ways in tracks)
    return Price(shown, tuple(track + way for track, ways in tracks for way in ways), rate.time_ps(local_bytes))


def _tracks(axes: Axes, model: LinkModel) -> tuple[str, ...]:
    """Axes of a torus have links of their own; those over a switch, or over DCN, share each device's port."""
    names = (DCN if axis in model.network.dcn else axis if model.chip.is_torus else SWITCH for axis in axes)
    return tuple(dict.fromkeys(names))


def _move(kind: str, axes: Axes) -> Move:
    match kind:
        case "AllGather":
            return AllGather(axes, 0)
        case "ReduceScatter":
            return ReduceScatter(axes, 0)
        case "AllReduce":
            return AllReduce(axes)
        case "AllToAll":
            return AllToAll(axes, 0, 1)
        case _:
            return CollectivePermute(axes, ())


def _over_whole_axes(collective: Collective, devices: int) -> int:
    """The local bytes that would bring a device as many wire bytes if the group were all `devices`."""
    n, local = collective.group_size, collective.local_bytes
    if collective.kind in ("CollectivePermute", "CollectiveBroadcast") or n == devices:
        return local
    if collective.kind == "AllGather":
        return ceil(local * (n - 1) / (devices - 1))
    return ceil(local * (n - 1) * devices / (n * (devices - 1)))
