"""What an array's moves in digits cost at least, from the places of its axes alone.

There are hundreds of ways to put axes on digits, and few are worth a route; so this is worked out with no sharding
made. With one axis to a digit, as nearly always, it is what `Search.least` says:

    A[I0_X, I1] → A[I0, I1_X]     X leaves its place: 1/2 of A comes, a device keeps 1/4
    A[I0_X, I1] → A[I0_Y, I1]     some device keeps nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.search import Search
from shardc.planner.space import ToCome
from shardc.rules.digit_products import NOWHERE, Place

SUMMED: Place = ("", 1)  # on a dim that the result lacks


@dataclass(slots=True)
class Floor:
    """An operand's moves to the product, or the result's from there. `axes` are those that a way places."""

    search: Search
    axes: Axes
    sizes: tuple[int, ...]
    extents: dict[Place, int]
    at: dict[Place, Axes]  # where the operand lies, or where the result is wanted
    home: dict[str, Place]
    parts: int
    pool: Axes
    is_result: bool
    shown: dict[Place, Place]  # each place of the product, as the array sees it
    _known: dict[tuple[Place, ...], int | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        search: Search,
        mesh: Mesh,
        axes: Axes,
        places: Sequence[Place],
        every: Sequence[Place],
        lies: Sharding,
        is_result: bool,
    ) -> Floor:
        """`places` are the array's own digits, `every` those of the product."""
        at = {place: some for place, some in zip(places, lies.dims, strict=True) if some}
        home = {axis: place for place, some in at.items() for axis in some}
        others = SUMMED if is_result else NOWHERE
        shown = {place: place if place in places else others for place in every} | {NOWHERE: NOWHERE}
        extents = dict(zip(places, search.shape, strict=True))
        pool = mesh.ordered({*search.space.pool, *lies.sharded})
        sizes = tuple(map(mesh.size, axes))
        return cls(search, axes, sizes, extents, at, home, mesh.product(lies.sharded), pool, is_result, shown)

    def least(self, chosen: Sequence[Place]) -> int | None:
        """For each axis a place of the product. None if blocks do not divide."""
        own = tuple([self.shown[place] for place in chosen])
        if own not in self._known:
            left = self._to_come(own)
            self._known[own] = None if left is None else self.search.floor(left)
        return self._known[own]

    def _to_come(self, own: tuple[Place, ...]) -> ToCome | None:
        block, kept, summed, moved, plain = 1, self.parts, 1, list[str](), True
        cut: dict[Place, int] = {}
        for axis, size, place in zip(self.axes, self.sizes, own, strict=True):
            home = self.home.get(axis)
            if place == SUMMED:
                summed *= size
                moved.append(axis)
            elif place != NOWHERE:
                cut[place] = cut.get(place, 1) * size
                if self.extents[place] % cut[place]:
                    return None
                block *= size
                plain = plain and len(self.at.get(place, ())) < 2
                kept = kept if place == home else 0 if place in self.at else kept * size
            if place != home and (place != NOWHERE if self.is_result else home is not None):
                moved.append(axis)
        goal = self.parts if self.is_result else block
        if not plain:  # of digits with several axes some may stay
            return ToCome(self.pool, goal, max(self.parts, block), summed, ())
        return ToCome(self.pool, goal, kept or None, summed, tuple(dict.fromkeys(moved)))
