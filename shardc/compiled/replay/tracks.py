"""The rows on which communication is shown: of a mesh axis on a torus one for each way round, `X+` and `X-`.

A gather goes both ways, where links go both ways; the blocks of a permute whose pairs are known go the shorter one.
Behind a switch, and over the data-centre network, a device has one port, whichever axis it communicates along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardc.compiled.hlo.groups import coordinate
from shardc.cost.layout import ONE_WAY
from shardc.cost.links.torus import Torus
from shardc.cost.model import LinkModel
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes

DCN, SWITCH = "DCN", "switch"
BOTH = ("+", "-")


def tracks(axes: Axes, model: LinkModel, pairs: Sequence[Sequence[int]] = ()) -> tuple[str, ...]:
    """The rows of a collective over these axes; of a permute of known `pairs` those of the ways that blocks take."""
    found = dict[str, None]()
    for axis in axes:
        if axis in model.network.dcn or not model.chip.is_torus:
            found[DCN if axis in model.network.dcn else SWITCH] = None
        else:
            ways = _taken(axis, pairs, model) if pairs else _there(axis, model)
            found |= {axis + way: None for way in ways}
    return tuple(found)


def in_order(shown: Iterable[str], first: tuple[str, ...], mesh: Mesh) -> tuple[str, ...]:
    """Those that are shown: `first`, then axis by axis, then others."""
    found = dict.fromkeys(shown)
    known = [*first, *(axis + way for axis in mesh.names for way in BOTH)]
    return tuple([track for track in known if track in found] + [track for track in found if track not in known])


def _there(axis: str, model: LinkModel) -> tuple[str, ...]:
    levels = (level for level in model.network.levels((axis,)) if isinstance(level, Torus))
    shapes = {line.shape for level in levels for line in level.lines}
    return ("+",) if shapes == {ONE_WAY} else BOTH


def _taken(axis: str, pairs: Sequence[Sequence[int]], model: LinkModel) -> tuple[str, ...]:
    """The ways of blocks along a mesh axis: the shorter one round where it closes, both where none is."""
    mesh, n = model.mesh, model.mesh.size(axis)
    steps = {coordinate(target, axis, mesh) - coordinate(source, axis, mesh) for source, target in pairs} - {0}
    if model.network.closes(axis):
        steps = {step % n if 2 * (step % n) < n else step % n - n if 2 * (step % n) > n else 0 for step in steps}
    if all(step > 0 for step in steps):
        return ("+",)
    return ("-",) if all(step < 0 for step in steps) else BOTH
