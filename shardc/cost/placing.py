"""The best way to lay mesh axes on the physical axes of a slice, of all that there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from shardc.cost import order
from shardc.ir.mesh import Mesh


def best_shares(
    mesh: Mesh, shape: tuple[int, ...], wraps: tuple[bool, ...], given: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]] | None:
    """What each mesh axis has of each physical axis, earlier mesh axes the outer parts; None if the sizes do not fit.

    The fewest pieces of cut physical axes; then the fastest slowest mesh axis, in links per device; then the largest
    sum of these; then the first.
    """
    return _Placing(mesh, shape, wraps, given).best()


@dataclass(frozen=True, slots=True)
class _Laid:
    """A mesh axis on parts of physical axes: what is left of these, inside; pieces of cut axes; links per device."""

    sizes: tuple[int, ...]
    left: tuple[int, ...]
    pieces: int
    rate: Fraction | None  # of an axis of one device, none


@dataclass(slots=True)
class _Placing:
    """The best placement, mesh axis after mesh axis, each outside of the next.

    There are millions of placements on 64x64x64, but how the axes from the n-th on lie best depends only on what is
    left of each physical axis: that is worked out once. First the fewest pieces, and of such the fastest slowest
    axis; then, of axes no slower than that, the largest sum.
    """

    mesh: Mesh
    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    given: Mapping[str, tuple[int, ...]]
    _choices: dict[tuple[int, tuple[int, ...]], tuple[_Laid, ...]] = field(default_factory=dict)

    def best(self) -> dict[str, tuple[int, ...]] | None:
        fastest = self._least({}, lambda laid, rest: (laid.pieces + rest[0], max(-_rate(laid), rest[1])), -_FASTEST)
        if fastest is None:
            return None
        slowest = -fastest[1]
        known: dict[_State, _Score | None] = {}

        def score(laid: _Laid, rest: _Score) -> _Score | None:
            total = rest[1] - (laid.rate or 0)
            return None if _rate(laid) < slowest else (laid.pieces + rest[0], total)

        self._least(known, score, Fraction(0))
        found, left = dict[str, tuple[int, ...]](), self.shape
        for number, name in enumerate(self.mesh.names):
            laid = next(
                laid
                for laid in self._of(number, left)
                if (rest := known.get((number + 1, laid.left))) is not None and score(laid, rest) == known[number, left]
            )
            found[name], left = laid.sizes, laid.left
        return found

    def _least(
        self, known: dict[_State, _Score | None], score: Callable[[_Laid, _Score], _Score | None], end: Fraction
    ) -> _Score | None:
        """The least score of the whole mesh; `known` gets that of each state. None where the sizes do not fit."""

        def least(number: int, left: tuple[int, ...]) -> _Score | None:
            if number == len(self.mesh.names):
                return known.setdefault((number, left), (0, end) if set(left) <= {1} else None)
            if (number, left) not in known:
                pairs = [(laid, least(number + 1, laid.left)) for laid in self._of(number, left)]
                scores = (score(laid, rest) for laid, rest in pairs if rest is not None)
                known[number, left] = min((found for found in scores if found is not None), default=None)
            return known[number, left]

        return least(0, self.shape)

    def _of(self, number: int, left: tuple[int, ...]) -> tuple[_Laid, ...]:
        """Every way to give a mesh axis a part of what is left of each physical axis, the outer part of it."""
        if (number, left) not in self._choices:
            name = self.mesh.names[number]
            every = order.factorings(self.mesh.size(name), left, self.given.get(name))
            self._choices[number, left] = tuple(self._laid(sizes, left) for sizes in every)
        return self._choices[number, left]

    def _laid(self, sizes: tuple[int, ...], left: tuple[int, ...]) -> _Laid:
        rest = tuple(have // used for have, used in zip(left, sizes, strict=True))
        cut = [axis for axis, size in enumerate(sizes) if size > 1]
        rates = [Fraction(2 if self._closes(axis, sizes, rest) else 1, rest[axis]) for axis in cut]
        pieces = sum(sizes[axis] < self.shape[axis] for axis in cut)
        return _Laid(sizes, rest, pieces, sum(rates, Fraction(0)) if rates else None)

    def _closes(self, axis: int, sizes: tuple[int, ...], rest: tuple[int, ...]) -> bool:
        """Whether a part of a physical axis goes all the way round it."""
        return self.wraps[axis] and sizes[axis] * rest[axis] == self.shape[axis]


_State: TypeAlias = tuple[int, tuple[int, ...]]  # the mesh axes laid, and what is left of each physical axis
_Score: TypeAlias = tuple[int, Fraction]  # pieces; then what is to be least
_FASTEST = Fraction(1 << 20)  # no axis has so many links


def _rate(laid: _Laid) -> Fraction:
    """Links per device; of an axis of one device, more than any other has."""
    return _FASTEST if laid.rate is None else laid.rate
