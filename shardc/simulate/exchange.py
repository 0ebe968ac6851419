"""Pieces of blocks from device to device."""

from __future__ import annotations

from collections.abc import Iterable

from shardc.ir.exchange import pieces, tails
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding
from shardc.simulate.blocks import Label, Part, Values, part_of, regroup
from shardc.simulate.local import IllegalStep


def exchange(blocks: Values, before: Sharding, after: tuple[Axes, ...], mesh: Mesh) -> Values:
    """What each device holds when every piece is where it is wanted.

    For each dim the devices, in order of the blocks that they hold, are (kept, joined), and a block is
    (cut, rest). In order of the blocks that they want the devices are (kept, cut), and a block is (joined, rest).
    """
    parts = tails(before.dims, after, mesh)
    if before.unreduced or pieces(parts) is None:
        raise IllegalStep(f"no exchange leads from {before.dims} to {after}")
    moved = [axis for part in parts for axis in part.old]
    here = part_of(blocks, mesh, moved)
    dims = range(here.rank)
    others = [axis for axis in here.axes if axis not in moved]
    front, local = len(others), here.values.shape[len(here.axes) :]
    if any(size % part.cut for size, part in zip(local, parts, strict=True)):
        raise IllegalStep(f"a block of shape {local} is not cut from {before.dims} to {after}")

    held = regroup(here.values, here.labels, [*_alone(others), *(part.old for part in parts), *_alone(dims)])
    devices = [count for part in parts for count in (part.before // part.joined, part.joined)]
    cuts = [count for part, size in zip(parts, local, strict=True) for count in (part.cut, size // part.cut)]
    labels = [*others, *_labels(dims, "kept", "joined"), *_labels(dims, "cut", "rest")]
    groups = [
        *_alone(others),
        *((f"kept {d}", f"cut {d}") for d in dims),
        *((f"joined {d}", f"rest {d}") for d in dims),
    ]
    wanted = regroup(held.reshape(*held.shape[:front], *devices, *cuts), labels, groups)

    placed = [axis for part in parts for axis in part.new]
    sizes = [mesh.size(axis) for axis in placed]
    spread = wanted.reshape(*wanted.shape[:front], *sizes, *wanted.shape[front + here.rank :])
    ordered = regroup(spread, [*others, *placed, *dims], [*_alone(here.axes), *_alone(dims)])
    return Part(ordered, here.axes).blocks(mesh)


def _alone(labels: Iterable[Label]) -> list[tuple[Label, ...]]:
    return [(label,) for label in labels]


def _labels(dims: range, *names: str) -> list[str]:
    return [f"{name} {dim}" for dim in dims for name in names]
