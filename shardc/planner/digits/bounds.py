"""What an array's moves in digits cost at least, from the places of its axes alone.

There are hundreds of ways to put axes on digits, and few are worth a route; so this is worked out with no sharding
made. With one axis to a digit, as nearly always, it is what `Search.bound` says:

    A[I0_X, I1] → A[I0, I1_X]     X leaves its place: 1/2 of A comes, a device keeps 1/4
    A[I0_X, I1] → A[I0_Y, I1]     some device keeps nothing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import chain
from operator import or_

from shardc.cost.bounds import scatter_bound
from shardc.cost.legs import Leg
from shardc.cost.model import CostModel
from shardc.ir.collectives import AllGather, AllToAll, CollectivePermute
from shardc.ir.sharding import Axes, Sharding
from shardc.planner.paths.graph import Remaining
from shardc.planner.paths.search import Search
from shardc.rules.digit_products import NOWHERE, Digit

SUMMED: Digit = ("", 1)  # on a dim that the result lacks
# What becomes of axes: held where the route starts, or once slices are taken; summed; moved; gathered; clashing, if one
# stands before where the other does after: then some device holds nothing of what it needs.
ROLES = ("held", "summed", "moved", "gathered", "clashing")


@dataclass(frozen=True, slots=True)
class Sites:
    """Where the axes that a way places may stand of one array, whatever its sizes: `own` are the array's digits,
    `every` those of the product, `lies` the axes of each of its own where it lies, or is wanted.

    Sets of these axes are bits. A code has five such sets, `ROLES`, a bit for digits with several axes, one for axes
    that do not divide their digits, and one for each place of the array: codes of single axes, put together, are that
    of the whole array.
    """

    axes: Axes
    own: tuple[Digit, ...]
    every: tuple[Digit, ...]
    lies: tuple[Axes, ...]
    is_result: bool
    unfit: frozenset[tuple[str, Digit]]  # the axes that do not divide a digit

    @property
    def at(self) -> dict[Digit, Axes]:
        return {place: some for place, some in zip(self.own, self.lies, strict=True) if some}

    @property
    def several(self) -> int:
        return 1 << len(ROLES) * len(self.axes)

    def code(self, axis: str, home: Digit, own: Digit, there: Axes) -> int:
        """The code of one axis, at home on one of the array's places or nowhere, on another of these, or summed, or
        nowhere; `there` are the axes at home there."""
        if (axis, own) in self.unfit:
            return self.several << 1
        before, after = (own, home) if self.is_result else (home, own)
        others = tuple(other for other in there if other != axis)
        roles = (  # in the order of ROLES
            before != SUMMED and (before, after) != (NOWHERE, NOWHERE),
            before == SUMMED,
            NOWHERE not in (before, after) and before not in (SUMMED, after),
            before != NOWHERE and after == NOWHERE,
            bool(others),
        )
        bits, count, code = 1 << self.axes.index(axis), len(self.axes), 0
        for number, is_played in enumerate(roles):
            if is_played:
                code |= bits << number * count
        for other in others:
            code |= 1 << self.axes.index(other) + ROLES.index("clashing") * count
        if len(there) > 1:
            code |= self.several
        return code | (self.several << 2 + self.own.index(own) if own in self.own else 0)


@lru_cache(maxsize=4096)
def _codes(sites: Sites) -> tuple[Mapping[Digit, int], ...]:
    """Of each axis, by its place of the product."""
    others, at, found = SUMMED if sites.is_result else NOWHERE, sites.at, list[Mapping[Digit, int]]()
    for axis in sites.axes:
        home = next((place for place, some in at.items() if axis in some), NOWHERE)
        codes = {
            own: sites.code(axis, home, own, at.get(own, ())) for own in dict.fromkeys((*sites.own, others, NOWHERE))
        }
        found.append({place: codes.get(place, codes[others]) for place in (*sites.every, NOWHERE)})
    return tuple(found)


@lru_cache(maxsize=4096)
def _joined(sites: Sites, every: tuple[tuple[Digit, ...], ...]) -> tuple[int, ...]:
    """Of all ways to choose one of its places for each axis, in the order of `itertools.product`: the codes.

    Without the places that are taken; where one is taken twice, its digit has several axes.
    """
    found, several = [0], sites.several
    end = several << 2
    for codes, places in zip(_codes(sites), every, strict=True):
        own = [codes[place] for place in places]
        found = [a | b | several if a & b >= end else a | b for a in found for b in own]
    return tuple(code % end for code in found)


@dataclass(slots=True)
class MovesBound:
    """An operand's moves to the product, or the result's from there. `prices` are by codes without the last bits: the
    same wherever the array lies, and is to lie."""

    search: Search
    sites: Sites
    extents: Mapping[Digit, int]
    codes: tuple[Mapping[Digit, int], ...]  # these, and the next two, of its sites
    at: Mapping[Digit, Axes]
    several: int
    prices: dict[int, int]
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
        extents, mesh = dict(zip(places, search.shape, strict=True)), search.graph.mesh
        unfit = frozenset((axis, place) for axis in axes for place, size in extents.items() if size % mesh.size(axis))
        sites = Sites(axes, tuple(places), tuple(every), lies.dims, is_result, unfit)
        prices = search.in_digits.setdefault(axes, {})
        return cls(search, sites, extents, _codes(sites), sites.at, sites.several, prices)

    def joined(self, every: tuple[tuple[Digit, ...], ...]) -> tuple[int, ...]:
        """Of all ways to choose one of its places for each axis: the codes."""
        return _joined(self.sites, every)

    def bound(self, chosen: Sequence[Digit], code: int) -> int | None:
        """For each axis a place of the product, and the code of these. None if blocks do not divide."""
        if code >= self.several:
            return None if code >= self.several << 1 else self._sharing(chosen)
        if code not in self.prices:
            self.prices[code] = self.search.price_of(
                _legs(self.search.model, self.sites.axes, code, self.search.may_exchange), steps=0
            )
        return self.prices[code]

    def _sharing(self, chosen: Sequence[Digit]) -> int | None:
        """The same where axes share a digit."""
        mesh, own, at = self.search.graph.mesh, dict[Digit, Axes](), self.at
        for axis, place in zip(self.sites.axes, chosen, strict=True):
            own[place] = (*own.get(place, ()), axis)
        blocks, alone = 1, True
        for place in own.keys() & self.extents.keys():
            count = mesh.product(own[place])
            if self.extents[place] % count:
                return None
            blocks *= count
            alone = alone and (place not in at or len(own[place]) == len(at[place]) == 1)
        if alone:
            code = reduce(or_, (codes[place] for codes, place in zip(self.codes, chosen, strict=True)))
            return self.bound(chosen, code % self.several)
        summed = [axes for place, axes in own.items() if self.sites.is_result and place not in (*self.extents, NOWHERE)]
        key = blocks, tuple(chain.from_iterable(summed))
        if key not in self._shared:
            self._shared[key] = self.search.bound_of(self._some_move(*key))
        return self._shared[key]

    def _some_move(self, blocks: int, summed: Axes) -> Remaining:
        """Between where the operand lies, or the result is wanted, and so many blocks; any axis may stay."""
        mesh, there = self.search.graph.mesh, tuple(chain.from_iterable(self.sites.lies))
        pool = mesh.ordered({*self.search.graph.pool, *there})
        after = mesh.product(there) if self.sites.is_result else blocks
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
