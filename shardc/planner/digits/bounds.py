"""What an array's moves in digits cost at least, from the places of its axes alone.

There are hundreds of ways to put axes on digits, and few are worth a route; so this is worked out with no sharding
made. With one axis to a digit, as nearly always, it is what `Search.bound` says:

    A[I0_X, I1] → A[I0, I1_X]     X leaves its place: 1/2 of A comes, a device keeps 1/4
    A[I0_X, I1] → A[I0_Y, I1]     some device keeps nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import chain
from operator import or_

from shardc.cost.bounds import scatter_bound
from shardc.cost.model import CostModel
from shardc.ir.collectives import AllGather, AllToAll, CollectivePermute
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.paths.graph import Leg, Remaining
from shardc.planner.paths.search import Search
from shardc.rules.digit_products import NOWHERE, Digit

SUMMED: Digit = ("", 1)  # on a dim that the result lacks
# What becomes of axes: held where the route starts, or once slices are taken; summed; moved; gathered; clashing, if one
# stands before where the other does after: then some device holds nothing of what it needs.
ROLES = ("held", "summed", "moved", "gathered", "clashing")


@dataclass(slots=True)
class MovesBound:
    """An operand's moves to the product, or the result's from there. `axes` are those that a way places.

    Sets of these axes are bits. A code has five such sets, `ROLES`, a bit for digits with several axes, one for axes
    that do not divide their digits, and one for each place of the array: codes of single axes, put together, are that
    of the whole array. `prices` are by codes without those bits.
    """

    search: Search
    axes: Axes
    extents: dict[Digit, int]
    at: dict[Digit, Axes]  # where the operand lies, or where the result is wanted
    is_result: bool
    codes: list[dict[Digit, int]]  # of each axis, by its place of the product
    prices: dict[int, int] = field(default_factory=dict)
    _shared: dict[tuple[int, Axes], int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        search: Search,
        axes: Axes,
        places: Sequence[Digit],
        every: Sequence[Digit],
        lies: Sharding,
        is_result: bool,
    ) -> MovesBound:
        """`places` are the array's own digits, `every` those of the product."""
        at = {place: some for place, some in zip(places, lies.dims, strict=True) if some}
        found = cls(search, axes, dict(zip(places, search.shape, strict=True)), at, is_result, [])
        others = SUMMED if is_result else NOWHERE
        shown = {place: place if place in places else others for place in every} | {NOWHERE: NOWHERE}
        found.codes = [{place: found._code(axis, own) for place, own in shown.items()} for axis in axes]
        return found

    @property
    def _several(self) -> int:
        return 1 << len(ROLES) * len(self.axes)

    def _code(self, axis: str, own: Digit) -> int:
        """The code of one axis on one of the array's own places, or summed, or nowhere."""
        size = self.search.graph.mesh.size(axis)
        if own in self.extents and self.extents[own] % size:
            return self._several << 1
        home = next((place for place, some in self.at.items() if axis in some), NOWHERE)
        before, after = (own, home) if self.is_result else (home, own)
        others = tuple(other for other in self.at.get(own, ()) if other != axis)
        roles = {
            "held": before != SUMMED and (before, after) != (NOWHERE, NOWHERE),
            "summed": before == SUMMED,
            "moved": NOWHERE not in (before, after) and before not in (SUMMED, after),
            "gathered": before != NOWHERE and after == NOWHERE,
            "clashing": bool(others),
        }
        bits, count = 1 << self.axes.index(axis), len(self.axes)
        code = sum(bits << number * count for number, role in enumerate(ROLES) if roles[role])
        code |= sum(1 << self.axes.index(other) + ROLES.index("clashing") * count for other in others)
        if len(self.at.get(own, ())) > 1:
            code |= self._several
        if own in self.extents:
            code |= self._several << 2 + list(self.extents).index(own)
        return code

    def joined(self, every: Sequence[Sequence[Digit]]) -> list[int]:
        """Of all ways to choose one of its places for each axis, in the order of `itertools.product`: the codes.

        Without the places that are taken; where one is taken twice, its digit has several axes.
        """
        found, several = [0], self._several
        end = several << 2
        for codes, places in zip(self.codes, every, strict=True):
            own = [codes[place] for place in places]
            found = [a | b | several if a & b >= end else a | b for a in found for b in own]
        return [code % end for code in found]

    def bound(self, chosen: Sequence[Digit], code: int) -> int | None:
        """For each axis a place of the product, and their code. None if blocks do not divide."""
        if code >= self._several:
            return None if code >= self._several << 1 else self._sharing(chosen)
        if code not in self.prices:
            self.prices[code] = self.search.price_of(
                _legs(self.search.model, self.axes, code, self.search.may_exchange), steps=0
            )
        return self.prices[code]

    def _sharing(self, chosen: Sequence[Digit]) -> int | None:
        """The same where axes share a digit."""
        mesh, own = self.search.graph.mesh, dict[Digit, Axes]()
        for axis, place in zip(self.axes, chosen, strict=True):
            own[place] = (*own.get(place, ()), axis)
        blocks, alone = 1, True
        for place in own.keys() & self.extents.keys():
            count = mesh.product(own[place])
            if self.extents[place] % count:
                return None
            blocks *= count
            alone = alone and (place not in self.at or len(own[place]) == len(self.at[place]) == 1)
        if alone:
            code = reduce(or_, (codes[place] for codes, place in zip(self.codes, chosen, strict=True)))
            return self.bound(chosen, code % self._several)
        summed = [axes for place, axes in own.items() if self.is_result and place not in (*self.extents, NOWHERE)]
        key = blocks, tuple(chain.from_iterable(summed))
        if key not in self._shared:
            self._shared[key] = self.search.bound_of(self._some_move(*key))
        return self._shared[key]

    def _some_move(self, blocks: int, summed: Axes) -> Remaining:
        """Between where the operand lies, or the result is wanted, and so many blocks; any axis may stay."""
        mesh, there = self.search.graph.mesh, tuple(chain.from_iterable(self.at.values()))
        pool = mesh.ordered({*self.search.graph.pool, *there})
        after = mesh.product(there) if self.is_result else blocks
        return Remaining(pool, after, max(mesh.product(there), blocks), summed, ())


@lru_cache(maxsize=16384)
def _legs(model: CostModel, axes: Axes, code: int, exchanged: bool) -> tuple[Leg, ...]:
    """Slices, a reduction, an exchange, a gather: the legs of a route, from the roles that the axes play."""
    mesh, legs = model.mesh, list[Leg]()
    held, summed, moved, gathered, clashing = (
        tuple(axis for place, axis in enumerate(axes) if code >> number * len(axes) + place & 1)
        for number in range(len(ROLES))
    )
    blocks, n = mesh.product(held), mesh.product(summed)
    if summed:
        legs.append(Leg(scatter_bound(model, summed, exchanged), blocks, n - 1, n))
        blocks *= n
    if clashing:
        legs.append(Leg(model.rate(CollectivePermute(mesh.ordered({*clashing, *moved}), ())), blocks, 1, 1))
    elif moved:
        n = mesh.product(moved)
        legs.append(Leg(model.rate(AllToAll(moved, 0, 1)), blocks, n - 1, n))
    if gathered:
        legs.append(Leg(model.rate(AllGather(gathered, 0)), blocks, mesh.product(gathered) - 1, 1))
    return tuple(legs)
