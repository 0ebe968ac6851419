"""Hypothesis strategies that draw only what is valid, and shrink to the smallest mesh and no sharding at all.

With `mesh` all is drawn on that mesh, whatever `max_axes` and `max_size` say. What can be drawn from nothing is refused
with SHC001 when it is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st

from shardc.errors import ShardcError
from shardc.interface.arguments import MeshLike
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Axes, Sharding, spell
from shardc.testing.refusals import check_sizes, count_of, mesh_of

_AXES = ("X", "Y", "Z", "W", "V", "T", "S", "R")
_DIMS = ("I", "J", "K", "L")
_MOST_DIMS = 64
_OVER_K = ("sum_K", "max_K")  # leave the dim I
_FUNCTIONS = ("relu", "gelu", "silu", "tanh", "square", "neg", "sigmoid", "abs", "softmax_K")
_KINDS = (*_OVER_K, *_FUNCTIONS, "bias", "+", "-")  # what needs the fewest draws first


class Case(NamedTuple):
    """What `shardc.plan(text, mesh=mesh, dims=dims)` takes."""

    text: str
    mesh: Mesh
    dims: dict[str, int]


@dataclass(frozen=True, slots=True)
class Reshard:
    """An array of `shape` on a mesh, from one sharding to another."""

    mesh: Mesh
    shape: tuple[int, ...]
    source: Sharding
    target: Sharding

    @property
    def text(self) -> str:
        names = _DIMS[: len(self.shape)]
        return f"A{spell(names, self.source)} → A{spell(names, self.target)}"

    @property
    def dims(self) -> dict[str, int]:
        return dict(zip(_DIMS, self.shape, strict=False))


@st.composite
def meshes(draw: st.DrawFn, max_axes: int = 3, max_size: int = 4, min_axes: int = 1, min_size: int = 1) -> Mesh:
    """A mesh of 1 to `max_axes` axes X, Y, Z, … of 1 to `max_size` devices each; the smallest is X=1."""
    check_sizes(min_axes, max_axes, min_size, max_size)
    count = draw(st.integers(min_axes, max_axes))
    return Mesh(tuple((axis, draw(st.integers(min_size, max_size))) for axis in _AXES[:count]))


def drawn_mesh(draw: st.DrawFn, mesh: MeshLike | None, max_axes: int, max_size: int) -> Mesh:
    """The mesh that is asked for, if any."""
    return draw(meshes(max_axes, max_size)) if mesh is None else mesh_of(mesh)


@st.composite
def shardings(
    draw: st.DrawFn,
    mesh: MeshLike,
    rank: int,
    unreduced: bool = True,
    forbidden: Iterable[str] = (),
    copies: bool = True,
) -> Sharding:
    """A sharding of an array of that rank; axes `forbidden` are never unreduced, without `copies` all are used."""
    given = mesh_of(mesh)
    order = draw(st.permutations(given.names))
    count_of("rank", rank, 0, _MOST_DIMS)
    never = _names("forbidden", forbidden, given)
    dims: list[Axes] = [()] * rank
    partial: set[str] = set()
    for axis in order:
        may = unreduced and axis not in never
        if not (may or rank or copies):
            so = "give a rank of 1 or more, or let axes hold copies or partial sums"
            raise ShardcError("SHC001", f"there is no dim for `{axis}`", help=so)
        place = draw(st.integers(0 if copies else 1, rank + 1 if may else rank))  # 0: copies
        if place == rank + 1:
            partial.add(axis)
        elif place:
            dims[place - 1] += (axis,)
    return Sharding(tuple(dims), frozenset(partial))


def _names(what: str, given: Iterable[str], mesh: Mesh) -> set[str]:
    """Names of axes; SHC001 for others."""
    if not isinstance(given, Iterable):
        raise ShardcError("SHC001", f"{what} is {given!r}", help='give names of axes: ["X"]')
    found = set(given)
    for name in found - set(mesh.names):
        raise ShardcError("SHC001", f"`{name}` is {what}, and no axis of {mesh}", help="give axes of the mesh")
    return found


@st.composite
def reshards(
    draw: st.DrawFn,
    max_axes: int = 3,
    max_size: int = 4,
    max_rank: int = 3,
    unreduced: bool = True,
    mesh: MeshLike | None = None,
) -> Reshard:
    """Two shardings of one array, both of which divide it; the unreduced set only shrinks."""
    drawn = drawn_mesh(draw, mesh, max_axes, max_size)
    rank = draw(st.integers(1, count_of("max_rank", max_rank, 1, len(_DIMS))))
    permuted = draw(st.booleans())
    source = draw(shardings(drawn, rank, unreduced and not permuted, copies=not permuted))
    never = [axis for axis in drawn.names if axis not in source.unreduced]
    target = _reordered(draw, source) if permuted else draw(shardings(drawn, rank, unreduced, forbidden=never))
    needs = [
        math.lcm(drawn.product(old), drawn.product(new)) for old, new in zip(source.dims, target.dims, strict=True)
    ]
    return Reshard(drawn, _sizes(draw, needs), source, target)


@st.composite
def matmuls(
    draw: st.DrawFn,
    max_axes: int = 3,
    max_size: int = 4,
    unreduced: bool = True,
    batched: bool = True,
    mesh: MeshLike | None = None,
) -> Case:
    """`A[I, J] · B[J, K] → C[I, K]`, at times with a batched dim L, in any shardings that divide.

    A and B are never unreduced over the same axis. J is divisible by the axes over which C is unreduced, so
    that a product which leaves it so can always be had.
    """
    drawn = drawn_mesh(draw, mesh, max_axes, max_size)
    batch = ("L",) if batched and draw(st.booleans()) else ()
    names = ((*batch, "I", "J"), (*batch, "J", "K"), (*batch, "I", "K"))
    a = draw(shardings(drawn, len(names[0]), unreduced))
    b = draw(shardings(drawn, len(names[1]), unreduced, forbidden=a.unreduced))
    if draw(st.booleans()):
        b = _meeting(b, len(batch), a.dims[-1])
    c = draw(shardings(drawn, len(names[2]), unreduced))
    used = [("A", names[0], a), ("B", names[1], b), ("C", names[2], c)]
    dims = named_sizes(draw, drawn, [(n, s) for _, n, s in used], {"J": drawn.product(c.unreduced)})
    left, right, result = (name + spell(n, s) for name, n, s in used)
    return Case(f"{left} · {right} → {result}", drawn, dims)


@st.composite
def programs(draw: st.DrawFn, max_axes: int = 2, max_size: int = 4, mesh: MeshLike | None = None) -> Case:
    """Two or three statements: a product, a function of it, and at times a second product.

    `T[I_X, K] = A[I_X, J] · B[J, K]`, then `V = relu(T)`, `softmax_K(T)`, `T + D`, …, then `Out = V · C`.
    What lies between may be left to the planner.
    """
    drawn = drawn_mesh(draw, mesh, max_axes, max_size)
    used: list[tuple[tuple[str, ...], Sharding]] = []

    def array(name: str, *dims: str) -> str:
        sharding = draw(shardings(drawn, len(dims), unreduced=False))
        used.append((dims, sharding))
        return name + spell(dims, sharding)

    lines = [f"{_target(draw, array, 'T', 'I', 'K')} = {array('A', 'I', 'J')} · {array('B', 'J', 'K')}"]
    kind = draw(st.sampled_from(_KINDS))
    left = ("I",) if kind in _OVER_K else ("I", "K")
    expression = _function(array, kind)
    if len(left) == 2 and draw(st.booleans()):
        lines.append(f"{_target(draw, array, 'V', *left)} = {expression}")
        lines.append(f"{array('Out', 'I', 'L')} = V · {array('C', 'K', 'L')}")
    else:
        lines.append(f"{array('Out', *left)} = {expression}")
    return Case("\n".join(lines), drawn, named_sizes(draw, drawn, used, {}))


def _reordered(draw: st.DrawFn, source: Sharding) -> Sharding:
    """The same axes on each dim in another order, as a CollectivePermute may leave them; or the dims swapped."""
    dims = [tuple(draw(st.permutations(axes))) for axes in source.dims]
    return Sharding(tuple(dims[::-1] if draw(st.booleans()) else dims), source.unreduced)


def _meeting(b: Sharding, contracted: int, axes: Axes) -> Sharding:
    """B with its contracted dim sharded as A's is (case 3), and those axes nowhere else."""
    cleared = tuple(tuple(axis for axis in old if axis not in axes) for old in b.dims)
    return Sharding(cleared, b.unreduced.difference(axes)).with_dim(contracted, axes)


def _target(draw: st.DrawFn, array: Any, name: str, *dims: str) -> str:
    """A result whose sharding is asked for, or left open."""
    if draw(st.booleans()):
        return str(array(name, *dims))
    return f"{name}[{', '.join(dim + '_?' for dim in dims)}]"


def _function(array: Any, kind: str) -> str:
    if kind in ("+", "-"):
        return f"T {kind} {array('D', 'I', 'K')}"
    if kind == "bias":
        return f"T + {array('D', 'K')}"
    return f"{kind}(T)"


def named_sizes(
    draw: st.DrawFn, mesh: Mesh, used: list[tuple[tuple[str, ...], Sharding]], also: dict[str, int]
) -> dict[str, int]:
    needs = {dim: also.get(dim, 1) for names, _ in used for dim in names}
    for names, sharding in used:
        for dim, axes in zip(names, sharding.dims, strict=True):
            needs[dim] = math.lcm(needs[dim], mesh.product(axes))
    return dict(zip(needs, _sizes(draw, list(needs.values())), strict=True))


def _sizes(draw: st.DrawFn, needs: list[int]) -> tuple[int, ...]:
    """A multiple of each need, all of them distinct, so that no two dims can be mistaken for each other."""
    sizes: list[int] = []
    for need in needs:
        size = need * draw(st.integers(1, 3))
        while size in sizes:
            size += need
        sizes.append(size)
    return tuple(sizes)
