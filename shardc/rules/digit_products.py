"""The ways to multiply with dims seen as digits.

    A[I_XY, J] · B[J, K] → C[I_Y, K]     I as I0·I1·I2, cut where X ends, and Y

An axis gains only on a digit where an operand has it or the result wants it, and on the last digit of a dim, the
rest, where it keeps nobody from a place. So there are few ways for each axis, and they are independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, pairwise, permutations, product, takewhile
from typing import TypeAlias

from shardc.ir.collectives import Move, Slice, apply
from shardc.ir.digits import Reshape, names_after
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Axes, Dims, Sharding
from shardc.rules.routes import added, scattered

Digit: TypeAlias = tuple[str, int]  # a dim, and which of its digits
NOWHERE: Digit = ("", 0)  # on no dim


@dataclass(frozen=True, slots=True)
class Digits:
    """Of each dim the sizes of its digits but the last, major to minor."""

    sizes: dict[str, tuple[int, ...]]

    def op(self, dims: Dims, joins: bool = False) -> Reshape:
        """Whole dims to digits, or back."""
        return Reshape(tuple(self.sizes[dim] for dim in dims), joins)

    def rests(self, dims: Dims) -> tuple[int, ...]:
        """The places of the last digits."""
        return tuple(count - 1 for count in accumulate(len(self.numbers(dim)) for dim in dims))

    def numbers(self, dim: str) -> range:
        return range(len(self.sizes[dim]) + 1)

    def places(self, dims: Dims) -> list[Digit]:
        """Every digit of these dims."""
        return [(dim, number) for dim in dims for number in self.numbers(dim)]

    @property
    def cuts(self) -> list[Digit]:
        """Each cut between two digits: the dim, and the upper one's number."""
        return [(dim, upper) for dim, sizes in self.sizes.items() for upper in range(len(sizes))]

    def names(self, taken: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The names of each dim's digits."""
        every = tuple(self.sizes)
        found = iter(names_after(self.op(every), every, taken))
        return {dim: tuple(next(found) for _ in self.numbers(dim)) for dim in every}

    def of_dims(self, dims: Dims, names: dict[str, tuple[str, ...]]) -> Dims:
        """The names of the digits of some dims."""
        return tuple(name for dim in dims for name in names[dim])

    def joined(self, array: Array, dims: Dims) -> Array:
        """An array in digits as formulas name it: a dim is divided by the axes of all its digits."""
        shape, axes = array.shape, array.sharding.dims
        ends = [0, *(place + 1 for place in self.rests(dims))]
        runs = [slice(start, end) for start, end in pairwise(ends)]
        whole = Sharding(tuple(tuple(chain.from_iterable(axes[run])) for run in runs), array.sharding.unreduced)
        return Array(array.name, dims, tuple(math.prod(shape[run]) for run in runs), whole, array.dtype)

    def without(self, dim: str, upper: int) -> Digits:
        """With two digits of a dim seen as one."""
        sizes = self.sizes[dim]
        below = (sizes[upper] * sizes[upper + 1], *sizes[upper + 2 :]) if upper + 1 < len(sizes) else ()
        return Digits(self.sizes | {dim: (*sizes[:upper], *below)})


@dataclass(frozen=True, slots=True)
class Placement:
    """Of each dim of a product, the axes on each of its digits."""

    axes: dict[str, tuple[Axes, ...]]

    def operand(self, dims: Dims) -> Sharding:
        return Sharding(tuple(axes for dim in dims for axes in self.axes[dim]))

    def result(self, dims: Dims) -> Sharding:
        summed = [axis for dim, digits in self.axes.items() if dim not in dims for axes in digits for axis in axes]
        return Sharding(self.operand(dims).dims, frozenset(summed))

    def joined(self, digits: Digits, dim: str, upper: int, mesh: Mesh) -> Placement | None:
        """With two digits of a dim seen as one; None if the blocks are not blocks then."""
        axes = self.axes[dim]
        if axes[upper + 1] and mesh.product(axes[upper]) != digits.sizes[dim][upper]:
            return None
        return Placement(self.axes | {dim: (*axes[:upper], axes[upper] + axes[upper + 1], *axes[upper + 2 :])})


@lru_cache(maxsize=1024)
def digits_of_dims(placed: tuple[tuple[Dims, Sharding], ...], mesh: Mesh) -> Digits:
    """Dims cut where axes of these arrays end, as far as every array fills the digits from the first on.

    I_XY and I_Z, of X=2, Y=2, Z=4, make I0=4 and a rest: Z fills no digit of 2.
    """
    axes_of: dict[str, list[Axes]] = {}
    for dims, sharding in placed:
        for dim, axes in zip(dims, sharding.dims, strict=True):
            axes_of.setdefault(dim, []).append(axes)
    return Digits({dim: _sizes(axes, mesh) for dim, axes in axes_of.items()})


def _sizes(shardings: Sequence[Axes], mesh: Mesh) -> tuple[int, ...]:
    ends = [{mesh.product(axes[: n + 1]) for n in range(len(axes))} for axes in shardings]
    totals = [mesh.product(axes) for axes in shardings]
    common = sorted(
        end
        for end in set[int]().union(*ends)
        if all(end in own or end % total == 0 for own, total in zip(ends, totals, strict=True))
    )
    return tuple(end // before for before, end in zip([1, *common], common, strict=False))


@dataclass(frozen=True, slots=True)
class Choices:
    """The ways to put axes on digits: for each axis, independently, the places where it may stand."""

    axes: Axes
    places: tuple[tuple[Digit, ...], ...]
    orders: dict[tuple[Digit, frozenset[str]], Axes]  # of axes that share a digit, as the first array has them there

    @property
    def count(self) -> int:
        return math.prod(map(len, self.places))

    def parts(self, mesh: Mesh) -> list[int]:
        """Of each way to choose a place for each axis, into how many the product is shared."""
        sizes = map(mesh.size, self.axes)
        some = zip(sizes, self.places, strict=True)
        factors = ([1 if place == NOWHERE else size for place in places] for size, places in some)
        return [math.prod(found) for found in product(*factors)]

    def placements(self, chosen: Sequence[Digit], digits: Digits) -> Iterator[Placement]:
        """The placements with each axis on the place chosen for it: axes that share a digit in every order."""
        found: dict[Digit, Axes] = {}
        for axis, place in zip(self.axes, chosen, strict=True):
            found[place] = (*found.get(place, ()), axis)
        every = digits.places(tuple(digits.sizes))
        for orders in product(*(self._in_order(place, found.get(place, ())) for place in every)):
            on = iter(orders)
            yield Placement({dim: tuple(next(on) for _ in digits.numbers(dim)) for dim in digits.sizes})

    def _in_order(self, place: Digit, axes: Axes) -> list[Axes]:
        """The orders of axes on a digit: the one that an array has them in, or all."""
        known = self.orders.get((place, frozenset(axes)))
        return list(permutations(axes)) if known is None else [known]


def choices(placed: Sequence[tuple[Dims, Sharding]], digits: Digits, pool: Axes) -> Choices:
    """An axis may stand nowhere, where some array has it, or on the rest of a dim. `placed` are arrays in digits."""
    numbered = [list(zip(digits.places(dims), sharding.dims, strict=True)) for dims, sharding in placed]
    rests = [(dim, len(sizes)) for dim, sizes in digits.sizes.items()]
    places = tuple(
        tuple(dict.fromkeys([NOWHERE, *(at for array in numbered for at, here in array if axis in here), *rests]))
        for axis in pool
    )
    orders: dict[tuple[Digit, frozenset[str]], Axes] = {}
    for array in numbered:
        for at, here in array:
            orders.setdefault((at, frozenset(here)), here)
    return Choices(pool, places, orders)


def reductions(left: Sharding, goal: Sharding, rests: Sequence[int], mesh: Mesh) -> Iterator[tuple[Move, ...]]:
    """The moves that make a product's partial sums sums, on the way to the goal, in every sensible place.

    Axes that take no part are sliced first where the goal has them: the sums are smaller then. Each axis of the sums
    is scattered where the goal has it, or on one of `rests`, the places in nobody's way.
    """
    slices = [
        Slice(free, place)
        for place, (old, new) in enumerate(zip(left.dims, goal.dims, strict=True))
        if new[: len(old)] == old and (free := _leading(new[len(old) :], left.used))
    ]
    sliced = left
    for move in slices:
        sliced = apply(move, sliced, mesh)
    listed = tuple(axis for axis in goal.sharded if axis in left.unreduced)
    axes = listed + mesh.ordered(left.unreduced.difference(listed))
    for dims in dict.fromkeys(_scattered(sliced.dims, axes, goal.dims, rests)):
        yield (*slices, *scattered(added(sliced.dims, dims)))


def _leading(axes: Axes, used: frozenset[str]) -> Axes:
    return tuple(takewhile(lambda axis: axis not in used, axes))


def _scattered(
    dims: tuple[Axes, ...], axes: Axes, goal: tuple[Axes, ...], rests: Sequence[int]
) -> Iterator[tuple[Axes, ...]]:
    if not axes:
        yield dims
        return
    wanted = (place for place, new in enumerate(goal) if axes[0] in new)
    for place in dict.fromkeys([*wanted, *rests]):
        longer = (*dims[:place], (*dims[place], axes[0]), *dims[place + 1 :])
        yield from _scattered(longer, axes[1:], goal, rests)
