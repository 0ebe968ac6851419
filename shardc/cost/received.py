"""Wire bytes that all devices receive together, beside those of the busiest, by which a step is priced.

What gathers, scatters, sums or exchanges brings every device as much. Where blocks or pieces change devices some keep
what they have: X=2, Y=2, `A[I_XY] → A[I_YX]`, devices (0, 0) and (1, 1) receive nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import lcm, prod

from shardc.ir.exchange import moved, tails
from shardc.ir.mesh import Mesh
from shardc.ir.operations import ToDims
from shardc.ir.plan import Schedule, Step, single_steps
from shardc.ir.sharding import Array, Axes, Sharding

MOST = 2**14  # devices that are looked at one by one


def received(schedule: Schedule) -> int | None:
    """By the whole program; None where too many devices would have to be looked at."""
    found, mesh = 0, schedule.mesh
    for done in single_steps(schedule.block):
        if done.step.cost.wire_bytes:
            before = done.block.values[done.step.operands[0]]
            size = received_by_all(done.step, before, mesh)
            if size is None:
                return None
            found += done.times * size
    return found


def received_by_all(step: Step, array: Array, mesh: Mesh) -> int | None:
    """In a step that is given this array."""
    op, before, size = step.op, array.sharding, array.local_bytes(mesh)
    if not isinstance(op, ToDims):
        return mesh.devices * step.cost.wire_bytes
    if mesh.product(op.axes) > MOST:
        return None
    cells, block = _cells_received(before.dims, op.leaves(before).dims, mesh)
    return mesh.devices // mesh.product(op.axes) * cells * size // block


@lru_cache(maxsize=256)
def _cells_received(before: tuple[Axes, ...], after: tuple[Axes, ...], mesh: Mesh) -> tuple[int, int]:
    """By one group of devices over the axes that move, in cells that the blocks of both cut; and those of a block."""
    over = moved(tails(before, after, mesh), mesh)
    counts = [(mesh.product(old), mesh.product(new)) for old, new in zip(before, after, strict=True)]
    fine = [lcm(*both) for both in counts]
    found = 0
    for at in product(*(range(mesh.size(axis)) for axis in over)):
        place = dict.fromkeys(mesh.names, 0) | dict(zip(over, at, strict=True))
        held, wanted = Sharding(before).block_of(place, mesh), Sharding(after).block_of(place, mesh)
        kept = map(_overlap, held, wanted, counts, fine)
        found += prod(cells // new for cells, (_, new) in zip(fine, counts, strict=True)) - prod(kept)
    return found, prod(cells // old for cells, (old, _) in zip(fine, counts, strict=True))


def _overlap(held: int, wanted: int, counts: Sequence[int], fine: int) -> int:
    """Cells of a dim that block `held` of so many and block `wanted` of so many share."""
    old, new = (fine // count for count in counts)
    return max(0, min((held + 1) * old, (wanted + 1) * new) - max(held * old, wanted * new))
