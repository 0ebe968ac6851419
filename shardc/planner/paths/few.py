"""A few of the shardings that a value may have, where all of them would be too many to search."""

from __future__ import annotations

from collections.abc import Iterator

from shardc.ir.expressions import Pattern
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding


def few_choices(pattern: Pattern, mesh: Mesh, pool: Axes) -> Iterator[Sharding]:
    """Where an array may lie that is left open: on no more axes than are written; or on all others, on one dim."""
    written = [axes or () for axes in pattern.dims]
    taken = pattern.unreduced.union(*written)
    others = tuple(axis for axis in pool if axis not in taken)
    yield Sharding(tuple(written), pattern.unreduced)
    for dim, axes in enumerate(pattern.dims):
        if axes is None and others:
            yield Sharding((*written[:dim], others, *written[dim + 1 :]), pattern.unreduced)


def fitted(pattern: Pattern, lies: Sharding) -> Sharding:
    """A sharding that matches a pattern, as near as can be to how a value lies."""
    taken = pattern.unreduced.union(*(axes or () for axes in pattern.dims))
    return Sharding(
        tuple(
            tuple(axis for axis in old if axis not in taken) if axes is None else axes
            for axes, old in zip(pattern.dims, lies.dims, strict=True)
        ),
        pattern.unreduced,
    )
