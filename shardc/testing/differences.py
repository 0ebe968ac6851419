"""Where two sides of a rewrite differ on a mesh: on which device, at which element, or in what else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from shardc import simulate
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array
from shardc.testing.edges import EDGES, Edge
from shardc.testing.saying import element, where
from shardc.testing.sides import Held, MovesSide, Refused, Side, spelled
from shardc.testing.values import Seen, Values, alike, drawn, draws_of

_ALONE, _BESIDE = 12, 4  # elements of a dim where edges are drawn: of the only dim, and of each of several


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two sides differ first: the smallest mesh, the smallest sizes, a device, an element."""

    mesh: Mesh
    sizes: dict[str, int]
    what: str

    def __str__(self) -> str:
        return f"{where(self.mesh, self.sizes)}: {self.what}"


def difference(before: Side, after: Side, mesh: Mesh, seen: Seen) -> Difference | None:
    """How the sides differ on a mesh; None if they do not. `seen` is told of all that is compared."""
    try:
        units = _units(before, after, mesh)
    except Refused as why:
        return Difference(mesh, {}, str(why))
    for times in (1, 2):
        sizes = {dim: unit * times for dim, unit in units.items()}
        try:
            what = _differs(before, after, mesh, sizes, seen)
        except Refused as why:
            what = str(why)
        if what is not None:
            return Difference(mesh, sizes, what)
    return None


def difference_at_edges(before: Side, after: Side, mesh: Mesh, seen: Seen) -> Difference | None:
    """How sides that are the same on distinct numbers differ on 0, ties, signs and large numbers."""
    if all(isinstance(side, MovesSide) for side in (before, after)):  # which look at no value
        return None
    units = _units(before, after, mesh)
    least = _ALONE if len(units) == 1 else _BESIDE
    sizes = {dim: unit * -(-least // unit) for dim, unit in units.items()}
    with suppress(Refused):  # what is legal of few elements may not be of more
        for edge in EDGES:
            what = _differs_at(edge, before, after, mesh, sizes, seen)
            if what is not None and _is_no_overflow(edge, before, after, mesh, sizes):
                return Difference(mesh, sizes, f"{what}, {edge}")
    return None


def _units(before: Side, after: Side, mesh: Mesh) -> dict[str, int]:
    units = before.units(mesh)
    return {dim: math.lcm(unit, units.get(dim, 1)) for dim, unit in (units | after.units(mesh)).items()}


def _is_no_overflow(edge: Edge, before: Side, after: Side, mesh: Mesh, sizes: dict[str, int]) -> bool:
    """Whether sides that differ on large numbers do so in wider types too, or nobody can tell but that they differ."""
    if not edge.large:
        return True
    try:
        return _differs_at(edge, before.wider(), after.wider(), mesh, sizes, Seen()) is not None
    except Exception:  # a function of a user's may take no other type
        return False


def _differs_at(edge: Edge, before: Side, after: Side, mesh: Mesh, sizes: dict[str, int], seen: Seen) -> str | None:
    given = before.inputs(mesh, sizes)
    places = _paired([array.name for array in given], [array.name for array in after.inputs(mesh, sizes)])
    wholes = edge.inputs([(array.shape, array.dtype) for array in given])
    return None if wholes is None else _run_apart(before, after, mesh, sizes, wholes, places, edge.turn, seen, edge)


def _differs(before: Side, after: Side, mesh: Mesh, sizes: dict[str, int], seen: Seen) -> str | None:
    given, other = before.inputs(mesh, sizes), after.inputs(mesh, sizes)
    places = _paired([array.name for array in given], [array.name for array in other])
    other = tuple(other[place] for place in places)
    if [(a.shape, a.sharding, a.dtype) for a in given] != [(a.shape, a.sharding, a.dtype) for a in other]:
        return f"the inputs differ: {_named(given)} before, {_named(other)} after"
    for draw in range(draws_of(given)):
        wholes = [drawn(array, place, draw) for place, array in enumerate(given)]
        what = _run_apart(before, after, mesh, sizes, wholes, places, draw, seen)
        if what is not None:
            return what
    return None


def _run_apart(
    before: Side,
    after: Side,
    mesh: Mesh,
    sizes: dict[str, int],
    wholes: Sequence[Values],
    places: Sequence[int],
    draw: int,
    seen: Seen,
    edge: Edge | None = None,
) -> str | None:
    """How the results of both sides differ on these inputs. `places`: which input of the second each is."""
    as_taken = [wholes[places.index(place)] for place in range(len(places))]
    left, right = before.run(mesh, sizes, wholes, draw), after.run(mesh, sizes, as_taken, draw)
    return _results_apart(left, right, mesh, seen, edge)


def _results_apart(
    before: Sequence[Held], after: Sequence[Held], mesh: Mesh, seen: Seen, edge: Edge | None
) -> str | None:
    if not before and not after:
        raise ShardcError("SHC001", "both sides leave nothing", help="return what is to be compared")
    if len(before) != len(after):
        return f"{len(before)} results before, {len(after)} after"
    for place, (one, other) in enumerate(zip(before, after, strict=True)):
        what = _apart(one, other, mesh, edge)
        if what is not None:
            return what
        seen.add(place, simulate.summed(one[1], one[0], mesh))
    return None


def _paired(names: Sequence[str], others: Sequence[str]) -> list[int]:
    """For each input of the first side which one of the second it is: by name, or by place where names differ."""
    if sorted(names) != sorted(others) or len(set(names)) < len(names):
        return list(range(len(others)))
    return [others.index(name) for name in names]


def _apart(before: Held, after: Held, mesh: Mesh, edge: Edge | None) -> str | None:
    """How two results differ. Of partial sums it is what they add up to that is compared."""
    (one, held), (other, found) = before, after
    said = f"the results differ: {one} before, {other} after"
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return f"{said}; {one.dtype} of {one.shape}, {other.dtype} of {other.shape}"
    if held.shape != found.shape or one.sharding.unreduced != other.sharding.unreduced:
        blocks = ", ".join(str(each.shape[len(mesh.axes) :]) for each in (held, found))
        return f"{said}; blocks {blocks}"
    held, found = (simulate.summed(each, one, mesh) for each in (held, found))
    wrong = ~alike(held, found) if edge is None else edge.apart(held, found, one.dtype)
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    sums = "the sum over " + ", ".join(sorted(one.sharding.unreduced)) + " " if one.sharding.unreduced else ""
    return f"{element(mesh, place)} of {one}: {sums}{held[place]} before, {found[place]} after"


def _named(arrays: Iterable[Array]) -> str:
    return ", ".join(map(spelled, arrays)) or "none"
