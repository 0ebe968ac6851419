"""Rewrites of collectives: whether two ways to do a thing leave the same on every device, and when."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, TypeAlias

from shardc.errors import ShardcError
from shardc.ir.mesh import MAX_DEVICES, Mesh
from shardc.testing.differences import Difference, difference, difference_at_edges
from shardc.testing.refusals import count_of, mesh_of
from shardc.testing.saying import lines
from shardc.testing.sides import INTEGERS, FunctionSide, Moves, MovesSide, Refused, Side, TextSide, dtype_in, spelled
from shardc.testing.values import Seen

Given: TypeAlias = "str | Moves | Callable[..., Any]"

_MOST_DEVICES = 64  # of virtual ones
_FEW_DEVICES = 2  # an axis, on which a text that is ever legal is so
_DECLARED, _NAMED = re.compile(r"(?:^|[;\n])\s*mesh\s([^;\n]*)"), re.compile(r"(\w+)\s*=")
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_OF_DIMS = re.compile(r"_\{([A-Z, ]+)\}|_([A-Z]+)(?![A-Za-z0-9_])")
_OF_MOVES = re.compile(r"(?:[A-Z][A-Za-z]*|U)_(?:\{([A-Z]+)(?:[A-Z, ]*)\}|([A-Z]+)(?![A-Za-z0-9_]))|U\.([A-Z]+)")


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
    sums of them; comparison is exact. On the smallest mesh they also hold 0, 1, −1, ties and large numbers. The
    smallest mesh on which they differ is reported.

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
    every = meshes_of(sides[0].axes(), max_size, _limit(*sides)) if alone is None else [alone]
    found = next(differences(*sides, every, seen), None)
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


def differences(before: Side, after: Side, meshes: Sequence[Mesh], seen: Seen) -> Iterator[Difference]:
    """One for each mesh on which the sides differ. On the first they are also given 0, ties and large numbers."""
    for number, mesh in enumerate(meshes):
        found = difference(before, after, mesh, seen)
        if found is None and not number:
            found = difference_at_edges(before, after, mesh, seen)
        if found is not None:
            yield found


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
    dtype = next((found for text in texts if (found := dtype_in(text))), INTEGERS)
    if not any(callable(given) for given in (before, after)):
        return _side(before, axes, (), dtype), _side(after, axes, (), dtype)
    if not axes:
        raise ShardcError("SHC001", "without axes functions are run on one device alone", help='give mesh=["X"]')
    taken = tuple(inputs) or _inputs_of(before, axes, dtype) or _inputs_of(after, axes, dtype)
    if not taken and all(callable(given) for given in (before, after)):
        raise ShardcError("SHC001", "functions, and no inputs for them", help='give inputs=["A[I_X, J]"]')
    return _side(before, axes, taken, dtype), _side(after, axes, taken, dtype)


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


def _inputs_of(given: Given, axes: tuple[str, ...], dtype: str) -> tuple[str, ...]:
    """What a text or moves begin from, as the notation writes it, for a function beside it; none, if the text is legal
    on no mesh."""
    if callable(given) or isinstance(given, Moves):
        return (given.source,) if isinstance(given, Moves) else ()
    side = TextSide(given, axes, dtype)
    for sizes in product(range(1, _FEW_DEVICES + 1), repeat=len(axes)):
        mesh = Mesh.of(dict(zip(axes, sizes, strict=True)))
        with suppress(Refused):
            return tuple(map(spelled, side.inputs(mesh, side.units(mesh))))
    return ()


def _side(given: Given, axes: tuple[str, ...], inputs: tuple[str, ...], dtype: str) -> Side:
    match given:
        case str():
            return TextSide(given, axes, dtype)
        case Moves():
            return MovesSide(given, axes, dtype)
        case _:
            from shardc.testing.on_devices import traced_once

            return FunctionSide(traced_once(given), inputs, axes, dtype)


def conditions(
    before: Given,
    after: Given,
    *,
    inputs: Sequence[str] = (),
    mesh: Iterable[str] = (),
    max_size: int = 4,
) -> str:
    """When a rewrite holds, in terms of the sizes of its axes: "always", "never", or as in "X = 1 or Y = 1".

    Found, not assumed: both sides are run on every mesh of axes up to `max_size`, and the shortest of a few kinds of
    conditions (an axis is of one device, two are of equal sizes, one divides another) that says exactly where they
    agree is returned; where none does, the meshes are named. A side that is not legal leaves nothing there. `inputs`
    are as in `assert_rewrite`, and so is `mesh`, which has no sizes.

    >>> from shardc.testing import conditions
    >>> conditions("B[I] = AllGather_XY(A[I_XY])", "B[I] = AllGather_YX(A[I_XY])")
    'never'
    >>> conditions("A[I_YX] = A[I_XY]", Moves("A[I_XY]"))
    'X = 1 or Y = 1'
    """
    from shardc.testing.shortest import shortest

    names, alone = _axes_given(mesh)
    if alone is not None:
        so = f"give the names alone, mesh={list(names)}; on one mesh ask holds_on, or assert_rewrite"
        raise ShardcError("SHC001", f"conditions are of the sizes of axes, and {mesh!r} has sizes", help=so)
    sides = _sides(before, after, inputs, names)
    every = meshes_of(sides[0].axes(), max_size, _limit(*sides))
    seen = Seen()
    holds = {mesh: difference(*sides, mesh, seen) is None for mesh in every}
    agree = [mesh for mesh, held in holds.items() if held]
    if agree and difference_at_edges(*sides, agree[0], seen):  # of values, not of meshes: asked on each
        holds |= {mesh: difference_at_edges(*sides, mesh, seen) is None for mesh in agree}
    if all(holds.values()):
        seen.check()
    return shortest(holds)


def holds_on(before: Given, after: Given, sizes: Mapping[str, int], *, inputs: Sequence[str] = ()) -> bool:
    """Whether two sides leave the same on one mesh. Where both are functions, `inputs` are what they take."""
    names, mesh = _axes_given(sizes)
    if mesh is None:
        raise ShardcError("SHC001", f"sizes are not {sizes!r}", help='give {"X": 2, "Y": 2}')
    seen = Seen()
    differs = next(differences(*_sides(before, after, inputs, names), [mesh], seen), None)
    if differs is None:
        seen.check()
    return differs is None
