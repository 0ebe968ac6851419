"""Rewrites of collectives: whether two ways to do a thing leave the same on every device, and when."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from shardc import simulate
from shardc.errors import SYNTAX, ShardcError
from shardc.ir.mesh import MAX_DEVICES, Mesh
from shardc.ir.operations import IllegalMove
from shardc.simulate import IllegalStep
from shardc.testing.refusals import count_of, mesh_of
from shardc.testing.saying import element, lines, where
from shardc.testing.sides import FunctionSide, Held, Moves, MovesSide, Side, TextSide
from shardc.testing.values import Seen, alike, drawn, draws_of

Given: TypeAlias = "str | Moves | Callable[..., Any]"

_MOST_DEVICES = 64  # of virtual ones
_DECLARED, _NAMED = re.compile(r"(?:^|[;\n])\s*mesh\s([^;\n]*)"), re.compile(r"(\w+)\s*=")
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_OF_DIMS = re.compile(r"_\{([A-Z, ]+)\}|_([A-Z]+)(?![A-Za-z0-9_])")
_OF_MOVES = re.compile(r"(?:[A-Z][A-Za-z]*|U)_(?:\{([A-Z]+)(?:[A-Z, ]*)\}|([A-Z]+)(?![A-Za-z0-9_]))|U\.([A-Z]+)")


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two sides differ first: the smallest mesh, the smallest sizes, a device, an element."""

    mesh: Mesh
    sizes: dict[str, int]
    what: str

    def __str__(self) -> str:
        return f"{where(self.mesh, self.sizes)}: {self.what}"


def assert_rewrite(
    before: Given,
    after: Given,
    *,
    inputs: Sequence[str] = (),
    mesh: Iterable[str] | Mapping[str, int] | Mesh = (),
    max_size: int = 4,
) -> None:
    """Two ways to do a thing leave the same on every device, on every mesh of axes up to `max_size`.

    Each is statements of the notation ("A[I, J_X] = AllToAll_X(A[I_X, J])"), `Moves` of an array, or a function of
    JAX arrays that calls `jax.shard_map` for the mesh in force. Where both are functions `inputs` are what they take
    ("A[I_X, J]", …). Axes are the one-letter subscripts, and those of a mesh that a text declares; others are named by
    `mesh`, which with sizes ({"X": 4}) is the only mesh that is tried. Inputs of two texts are paired by name, if they
    have the same names. They hold whole numbers, no two alike (of a narrow type in all of several draws), and partial
    sums of them; comparison is exact. The smallest mesh on which they differ is reported.

    Raises AssertionError with the mesh, the sizes, the device, the element and both values.

    >>> from shardc.testing import assert_rewrite
    >>> gather_and_slice = "B[I, J] = AllGather_X(A[I_X, J]); C[I, J_X] = Slice_X(B[I, J])"
    >>> assert_rewrite(gather_and_slice, "C[I, J_X] = AllToAll_X(A[I_X, J])")
    >>> assert_rewrite(gather_and_slice, "C[I_X, J] = A[I_X, J]")
    Traceback (most recent call last):
    AssertionError: on mesh X=2; I=2, J=2: the results differ: C[I, J_X] before, A[I_X, J] after; blocks (2, 1), (1, 2)
      before: B[I, J] = AllGather_X(A[I_X, J]); C[I, J_X] = Slice_X(B[I, J])
      after:  C[I_X, J] = A[I_X, J]
    """
    names, alone = _axes_given(mesh)
    sides = _sides(before, after, inputs, names)
    seen = Seen()
    found = next(differences(*sides, max_size, seen), None) if alone is None else difference(*sides, alone, seen)
    if found is not None:
        raise AssertionError(f"{found}{lines(before=sides[0], after=sides[1])}")
    seen.check()


def _axes_given(mesh: object) -> tuple[tuple[str, ...], Mesh | None]:
    """The names of axes, and the one mesh to be tried, if sizes are given."""
    match mesh:
        case Mesh() | Mapping():
            return (given := mesh_of(mesh)).names, given
        case str() if "=" in mesh:
            return (given := mesh_of(mesh)).names, given
        case _ if hasattr(mesh, "axis_names"):  # a mesh of JAX
            return (given := mesh_of(mesh)).names, given
        case str() | Iterable():
            return tuple(mesh), None
        case _:
            raise ShardcError("SHC001", f"a mesh is not {mesh!r}", help='give names of axes, or {"X": 4}')


def differences(before: Side, after: Side, max_size: int, seen: Seen) -> Iterator[Difference]:
    """One for each mesh on which the sides differ, the smallest first."""
    for mesh in meshes_of(before.axes(), max_size, _limit(before, after)):
        found = difference(before, after, mesh, seen)
        if found is not None:
            yield found


def difference(before: Side, after: Side, mesh: Mesh, seen: Seen) -> Difference | None:
    """How the sides differ on a mesh; None if they do not. `seen` is told of all that is compared."""
    try:
        units = before.units(mesh)
        units = {dim: math.lcm(unit, units.get(dim, 1)) for dim, unit in (units | after.units(mesh)).items()}
    except (ShardcError, IllegalMove) as error:
        return Difference(mesh, {}, _refused(error))
    for times in (1, 2):
        sizes = {dim: unit * times for dim, unit in units.items()}
        what = _differs(before, after, mesh, sizes, seen)
        if what is not None:
            return Difference(mesh, sizes, what)
    return None


def meshes_of(axes: Sequence[str], max_size: int, most_devices: int) -> list[Mesh]:
    """Every mesh of these axes, of one to `max_size` devices each, the fewest devices first."""
    max_size = count_of("max_size", max_size, 1, MAX_DEVICES)
    if axes and min(most_devices, max_size) < 2:
        few, so = "one device along each axis", "give max_size=2 or more"
        if max_size > 1:
            few, so = "one device of JAX", 'call jax.config.update("jax_num_cpu_devices", 4) before its first use'
        raise ShardcError("SHC001", f"with {few} no mesh can tell a rewrite from another", help=so)
    max_size = min(max_size, most_devices)
    every = product(range(1, max_size + 1), repeat=len(axes))
    found = [sizes for sizes in every if math.prod(sizes) <= most_devices]
    return [Mesh.of(dict(zip(axes, sizes, strict=True))) for sizes in sorted(found, key=lambda s: (math.prod(s), s))]


def _differs(before: Side, after: Side, mesh: Mesh, sizes: dict[str, int], seen: Seen) -> str | None:
    try:
        given, other = before.inputs(mesh, sizes), after.inputs(mesh, sizes)
        places = _paired([array.name for array in given], [array.name for array in other])
        other = tuple(other[place] for place in places)
        if [(a.shape, a.sharding) for a in given] != [(a.shape, a.sharding) for a in other]:
            return f"the inputs differ: {_named(given)} before, {_named(other)} after"
        for draw in range(draws_of(given)):
            wholes = [drawn(array, place, draw) for place, array in enumerate(given)]
            as_taken = [wholes[places.index(place)] for place in range(len(places))]
            left, right = before.run(mesh, sizes, wholes, draw), after.run(mesh, sizes, as_taken, draw)
            what = _results_apart(left, right, mesh, seen)
            if what is not None:
                return what
        return None
    except (ShardcError, IllegalMove, IllegalStep) as error:
        return _refused(error)


def _results_apart(before: Sequence[Held], after: Sequence[Held], mesh: Mesh, seen: Seen) -> str | None:
    if not before and not after:
        raise ShardcError("SHC001", "both sides leave nothing", help="return what is to be compared")
    if len(before) != len(after):
        return f"{len(before)} results before, {len(after)} after"
    for place, (one, other) in enumerate(zip(before, after, strict=True)):
        what = _apart(one, other, mesh)
        if what is not None:
            return what
        seen.add(place, simulate.summed(one[1], one[0], mesh))
    return None


def _paired(names: Sequence[str], others: Sequence[str]) -> list[int]:
    """For each input of the first side which one of the second it is: by name, or by place where names differ."""
    if sorted(names) != sorted(others) or len(set(names)) < len(names):
        return list(range(len(others)))
    return [others.index(name) for name in names]


def _apart(before: Held, after: Held, mesh: Mesh) -> str | None:
    """How two results differ. Of partial sums it is what they add up to that is compared."""
    (one, held), (other, found) = before, after
    said = f"the results differ: {one} before, {other} after"
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return f"{said}; {one.dtype} of {one.shape}, {other.dtype} of {other.shape}"
    if held.shape != found.shape or one.sharding.unreduced != other.sharding.unreduced:
        blocks = ", ".join(str(each.shape[len(mesh.axes) :]) for each in (held, found))
        return f"{said}; blocks {blocks}"
    held, found = (simulate.summed(each, one, mesh) for each in (held, found))
    wrong = ~alike(held, found)
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    sums = "the sum over " + ", ".join(sorted(one.sharding.unreduced)) + " " if one.sharding.unreduced else ""
    return f"{element(mesh, place)} of {one}: {sums}{held[place]} before, {found[place]} after"


def _refused(error: ShardcError | IllegalMove | IllegalStep) -> str:
    """What a side is refused with on this mesh; a text that is no notation is refused on all, and is the caller's, as
    are devices that are not there."""
    if isinstance(error, ShardcError) and (error.exit_code == SYNTAX or error.code == "SHC301"):
        raise error
    return error.message if isinstance(error, ShardcError) else str(error)


def _named(arrays: Iterable[object]) -> str:
    return ", ".join(map(str, arrays)) or "none"


def _limit(before: Side, after: Side) -> int:
    if not any(isinstance(side, FunctionSide) for side in (before, after)):
        return _MOST_DEVICES
    from shardc.testing.on_devices import count_of_devices

    return count_of_devices()


def _sides(before: Given, after: Given, inputs: Sequence[str], mesh: Sequence[str]) -> tuple[Side, Side]:
    for given in (before, after):
        if not (isinstance(given, str | Moves) or callable(given)):
            raise ShardcError("SHC001", f"{given!r} is no rewrite", help="give text, Moves or a function")
    inputs = (inputs,) if isinstance(inputs, str) else inputs
    if not all(isinstance(text, str) for text in inputs):
        raise ShardcError("SHC001", f"inputs are {inputs!r}", help='give inputs=["A[I_X, J]"]')
    texts = [text for given in (before, after) for text in _texts(given)]
    axes = tuple(mesh) or axes_in([*texts, *inputs])
    taken = tuple(inputs) or _inputs_of(before, axes) or _inputs_of(after, axes)
    if any(callable(given) for given in (before, after)):
        if not taken:
            raise ShardcError("SHC001", "functions, and no inputs for them", help='give inputs=["A[I_X, J]"]')
        if not axes:
            raise ShardcError("SHC001", "without axes functions are run on one device alone", help='give mesh=["X"]')
    return _side(before, axes, taken), _side(after, axes, taken)


def _texts(given: Given) -> tuple[str, ...]:
    match given:
        case str():
            return (given,)
        case Moves(source, moves):
            return (source, *("U_" + "".join(move.axes) for move in moves))
        case _:
            return ()


def axes_in(texts: Sequence[str]) -> tuple[str, ...]:
    """The one-letter subscripts of dims, collectives and partial sums, and the axes of a mesh that a text declares, in
    the order of the alphabet.

    What a function is along (`softmax_J`), and what a collective is along beside its axes (`_{X,J}`), is a dim.
    """
    found = {name for text in texts for line in _DECLARED.findall(text) for name in _NAMED.findall(line)}
    for text in texts:
        shardings, rest = " ".join(_BRACKETS.findall(text)), _BRACKETS.sub("", text)
        matches = [*_OF_DIMS.finditer(shardings), *_OF_MOVES.finditer(rest)]
        found |= {letter for match in matches for letter in "".join(match.groups(""))}
    return tuple(sorted(name for name in found if name[0].isalpha()))


def _inputs_of(given: Given, axes: tuple[str, ...]) -> tuple[str, ...]:
    """What a text or moves begin from, as the notation writes it, for a function beside it."""
    if callable(given) or isinstance(given, Moves):
        return (given.source,) if isinstance(given, Moves) else ()
    side = TextSide(given, axes)
    whole = Mesh.of(dict.fromkeys(axes, 1))
    return tuple(map(str, side.inputs(whole, side.units(whole))))


def _side(given: Given, axes: tuple[str, ...], inputs: tuple[str, ...]) -> Side:
    match given:
        case str():
            return TextSide(given, axes)
        case Moves():
            return MovesSide(given, axes)
        case _:
            from shardc.testing.on_devices import traced_once

            return FunctionSide(traced_once(given), inputs, axes)


def conditions(before: Given, after: Given, *, mesh: Sequence[str] = (), max_size: int = 4) -> str:
    """When a rewrite holds, in terms of the sizes of its axes: "always", "never", or as in "X = 1 or Y = 1".

    Found, not assumed: both sides are run on every mesh of axes up to `max_size`, and the shortest of a few kinds of
    conditions (an axis is of one device, two are of equal sizes, one divides another) that says exactly where they
    agree is returned; where none does, the meshes are named.

    >>> from shardc.testing import conditions
    >>> conditions("B[I] = AllGather_XY(A[I_XY])", "B[I] = AllGather_YX(A[I_XY])")
    'never'
    >>> conditions("A[I_YX] = A[I_XY]", Moves("A[I_XY]"))
    'X = 1 or Y = 1'
    """
    from shardc.testing.shortest import shortest

    sides = _sides(before, after, (), _axes_given(mesh)[0])
    every = meshes_of(sides[0].axes(), max_size, _limit(*sides))
    seen = Seen()
    holds = {mesh: difference(*sides, mesh, seen) is None for mesh in every}
    if all(holds.values()):
        seen.check()
    return shortest(holds)


def holds_on(before: Given, after: Given, sizes: Mapping[str, int]) -> bool:
    """Whether two sides leave the same on one mesh."""
    names, mesh = _axes_given(sizes)
    if mesh is None:
        raise ShardcError("SHC001", f"sizes are not {sizes!r}", help='give {"X": 2, "Y": 2}')
    seen = Seen()
    differs = difference(*_sides(before, after, (), names), mesh, seen)
    if differs is None:
        seen.check()
    return differs is None
