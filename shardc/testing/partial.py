"""Programs whose inputs arrive as partial sums, with every statement of the notation after them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hypothesis import strategies as st

from shardc.interface.arguments import MeshLike
from shardc.ir.collectives import apply
from shardc.ir.functions import FUNCTIONS, NAMED
from shardc.ir.mesh import MAX_AXES, Mesh
from shardc.ir.sharding import Dims, Sharding, spell
from shardc.rules.moves import moves
from shardc.rules.products import local_product
from shardc.testing.refusals import count_of, mesh_of
from shardc.testing.strategies import Case, shardings

_DIMS = ("I", "J", "K", "L")
_MOST_DEVICES, _MOST_STATEMENTS = 64, 100
_NONE = frozenset[str]()


@st.composite
def partial_programs(
    draw: st.DrawFn, max_axes: int = 3, max_devices: int = 8, max_statements: int = 3, mesh: MeshLike | None = None
) -> Case:
    """One to three statements, each a reshard, a collective, a product, a sum, or any function; legal as written.

    `B[I_X, J_Y] = A[I, J]{U_XY}`, then `C[I_Y, J] = softmax_J(B)`. The first input is unreduced over one axis at
    least, later ones may be. What a statement takes is an input, or what an earlier one left: by its bare name, or
    in a sharding asked for, which may be reduced by then. A result is declared unreduced over no other axes than
    its operands were.
    """
    drawn = _Drawn(draw, draw(_meshes(max_axes, max_devices)) if mesh is None else mesh_of(mesh))
    for place in range(draw(st.integers(1, count_of("max_statements", max_statements, 1, _MOST_STATEMENTS)))):
        statement: Callable[[_Drawn], None] = draw(st.sampled_from(_LATER if place else _LINEAR))
        statement(drawn)
    needs = drawn.needs
    sizes = dict(zip(needs, _distinct(draw, list(needs.values())), strict=True))
    return Case("\n".join(drawn.lines), drawn.mesh, sizes)


def _meshes(max_axes: int, max_devices: int) -> st.SearchStrategy[Mesh]:
    """Axes of two devices or more, for the most part; of one, each fourth time."""
    most = count_of("max_devices", max_devices, 1, _MOST_DEVICES)
    some = [sizes for axes in range(1, count_of("max_axes", max_axes, 1, MAX_AXES) + 1) for sizes in _sizes(axes, most)]
    wide = [sizes for sizes in some if 1 not in sizes] or some
    chosen = st.integers(0, 3).flatmap(lambda turn: st.sampled_from(some if turn == 3 else wide))
    return chosen.map(lambda sizes: Mesh(tuple(zip("XYZWVTSR", sizes, strict=False))))


def _sizes(axes: int, most: int) -> Iterator[tuple[int, ...]]:
    """Of so many axes, with so many devices at most."""
    if axes == 0:
        yield ()
        return
    for first in range(1, most + 1):
        yield from ((first, *rest) for rest in _sizes(axes - 1, most // first))


@dataclass(frozen=True, slots=True)
class _Value:
    """An array, as a text that uses it names it, and the axes over which it is unreduced then."""

    text: str
    dims: Dims
    unreduced: frozenset[str]
    sharding: Sharding | None = None  # what the text asks for, if anything


@dataclass(slots=True)
class _Drawn:
    """What has been drawn so far."""

    draw: st.DrawFn
    mesh: Mesh
    values: list[_Value] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    needs: dict[str, int] = field(default_factory=dict)
    inputs: int = 0

    def sharding(self, dims: Dims, unreduced: frozenset[str], forced: bool = False) -> Sharding:
        """Any, unreduced over some of these axes at most; over one at least if `forced`."""
        never = [axis for axis in self.mesh.names if axis not in unreduced]
        found = self.draw(shardings(self.mesh, len(dims), forbidden=never))
        if forced and not found.unreduced:
            axis = self.draw(st.sampled_from(sorted(unreduced)))
            found = Sharding(tuple(tuple(a for a in axes if a != axis) for axes in found.dims), frozenset({axis}))
        self.require(dims, found)
        return found

    def require(self, dims: Dims, sharding: Sharding) -> None:
        """Sizes that this divides."""
        for dim, axes in zip(dims, sharding.dims, strict=True):
            self.needs[dim] = math.lcm(self.needs.get(dim, 1), self.mesh.product(axes))

    def fresh(self, dims: Dims, unreduced: frozenset[str]) -> _Value:
        """A new input, unreduced over some of these axes at most."""
        return self.given(dims, self.sharding(dims, unreduced, forced=not self.values and bool(unreduced)))

    def given(self, dims: Dims, sharding: Sharding) -> _Value:
        """A new input that lies so."""
        self.inputs += 1
        name = f"A{self.inputs}"
        self.values.append(_Value(name, dims, sharding.unreduced))
        return _Value(name + spell(dims, sharding), dims, sharding.unreduced, sharding)

    def full(self) -> _Value:
        """A new input over which every axis is laid, so that axes can change places."""
        sharding = self.draw(shardings(self.mesh, 2, copies=False))
        self.require(("I", "J"), sharding)
        return self.given(("I", "J"), sharding)

    def alike(self, other: _Value) -> _Value:
        """A new input with the same dims, unreduced over the same axes."""
        plain = self.sharding(other.dims, _NONE)
        dims = tuple(tuple(axis for axis in axes if axis not in other.unreduced) for axes in plain.dims)
        return self.given(other.dims, Sharding(dims, other.unreduced))

    def use(self, dims: Dims | None = None, unreduced: frozenset[str] | None = None, exact: bool = False) -> _Value:
        """A value with those dims, or any; written out where it has to be unreduced over some of these axes at most."""
        known = [value for value in self.values if dims is None or value.dims == dims]
        if not known or self.draw(st.integers(0, 3)) == 0:
            chosen = self.draw(st.sampled_from(_SHAPES)) if dims is None else dims
            return self.fresh(chosen, frozenset(self.mesh.names) if unreduced is None else unreduced)
        value = self.draw(st.sampled_from(known))
        if not exact and unreduced is None and self.draw(st.booleans()):
            return value
        allowed = value.unreduced if unreduced is None else value.unreduced & unreduced
        sharding = self.sharding(value.dims, allowed)
        return _Value(value.text + spell(value.dims, sharding), value.dims, sharding.unreduced, sharding)

    def summed(self, dims: Dims) -> _Value:
        """What a function that is not linear may take: a bare name, or what is written with no partial sums."""
        known = [value for value in self.values if value.dims == dims]
        if not known or self.draw(st.booleans()):
            return self.use(dims, _NONE)
        return self.draw(st.sampled_from(known))

    def state(self, expression: str, dims: Dims, unreduced: frozenset[str], sharding: Sharding | None = None) -> None:
        """`T1[I_X, J]{U_Y} = expression`, in a sharding drawn, left open, or this one."""
        name = f"T{len(self.lines) + 1}"
        if sharding is None and self.draw(st.integers(0, 3)) == 0:
            written, left = f"[{', '.join(dim + '_?' for dim in dims)}]", _NONE
        else:
            sharding = self.sharding(dims, unreduced) if sharding is None else sharding
            written, left = spell(dims, sharding), sharding.unreduced
        self.lines.append(f"{name}{written} = {expression}")
        self.values.append(_Value(name, dims, left))


_SHAPES: tuple[Dims, ...] = (("I", "J"), ("I", "J"), ("I",), ("I", "J", "K"), ())


def _reshard(drawn: _Drawn) -> None:
    value = drawn.use()
    dims = tuple(drawn.draw(st.permutations(value.dims)))
    drawn.state(value.text, dims, value.unreduced)


def _collective(drawn: _Drawn) -> None:
    """The move that the text names, of those that there are."""
    everywhere = bool(drawn.values) and drawn.draw(st.booleans())
    value = drawn.full() if everywhere else drawn.use(exact=True)
    assert value.sharding is not None
    found = sorted(moves(value.sharding, drawn.mesh, drawn.mesh.names), key=repr)
    if not found:
        return drawn.state(value.text, value.dims, value.unreduced)
    kind = drawn.draw(st.sampled_from(sorted({type(move).__name__ for move in found})))
    move = drawn.draw(st.sampled_from([move for move in found if type(move).__name__ == kind]))
    after = apply(move, value.sharding, drawn.mesh)
    drawn.require(value.dims, after)
    text = f"{move.facts.name}({value.text})" if move.facts.is_named else value.text
    return drawn.state(text, value.dims, after.unreduced, after)


def _product(drawn: _Drawn) -> None:
    """`A[I, J] · B[J, K]`, `A[I, J] ⊙ B[I, J]`, `A[I, J] · B[J]`."""
    left = drawn.use()
    others = [("J", "K"), ("J",), ("I", "K"), left.dims] if left.dims else [("I",), ()]
    wanted = drawn.draw(st.sampled_from(others))
    free = frozenset(drawn.mesh.names) - left.unreduced if left.sharding is not None else None
    right = drawn.use(wanted, free)
    shared = set(left.dims) & set(right.dims)
    every = tuple(dict.fromkeys(left.dims + right.dims))
    elementwise = shared in (set(left.dims), set(right.dims)) and drawn.draw(st.booleans())
    kept = tuple(dim for dim in every if elementwise or dim not in shared or drawn.draw(st.booleans()))
    text = f"{left.text} {'⊙' if elementwise else '·'} {right.text}"
    drawn.state(text, kept, left.unreduced | right.unreduced)


def _local(drawn: _Drawn) -> None:
    """`A[I_X, J]{U_Y} ·_LOCAL B[J, K]{U_Z}`, which leaves what it leaves."""
    left = drawn.use(("I", "J"), exact=True)
    assert left.sharding is not None
    free = frozenset(drawn.mesh.names) - left.sharding.used
    partial = frozenset(axis for axis in sorted(free) if drawn.draw(st.booleans()))
    sharding = Sharding((left.sharding.dims[1], ()), partial)
    drawn.require(("J", "K"), sharding)
    right = drawn.given(("J", "K"), sharding)
    dims = (left.dims, right.dims)
    after = local_product(dims, ("I", "K"), (left.sharding, sharding))
    assert after is not None
    drawn.state(f"{left.text} ·_LOCAL {right.text}", ("I", "K"), after.unreduced, after)


def _nested(drawn: _Drawn) -> None:
    """`-(A + B)`, `sum_I(A - B)`, `(A + B) · D[J, K]`: linear, so that partial sums may pass."""
    left = drawn.use(("I", "J"), exact=True)
    right = drawn.alike(left)
    both = f"{left.text} {drawn.draw(st.sampled_from('+-'))} {right.text}"
    match drawn.draw(st.integers(0, 2)):
        case 0:
            drawn.state(f"-({both})", left.dims, left.unreduced)
        case 1:
            drawn.state(f"sum_I({both})", ("J",), left.unreduced)
        case _:
            other = drawn.use(("J", "K"), frozenset(drawn.mesh.names) - left.unreduced)
            drawn.state(f"({both}) · {other.text}", ("I", "K"), left.unreduced | other.unreduced)


def _sum(drawn: _Drawn) -> None:
    value = drawn.use(drawn.draw(st.sampled_from((("I", "J"), ("I",), ("I", "J", "K")))))
    over = drawn.draw(st.sampled_from(value.dims))
    drawn.state(f"sum_{over}({value.text})", tuple(d for d in value.dims if d != over), value.unreduced)


def _of_one(drawn: _Drawn) -> None:
    """Any function of one array."""
    row = drawn.draw(st.sampled_from(_OF_ONE))
    dims = drawn.draw(st.sampled_from(_SHAPES[:4] if row.over_dims else _SHAPES))
    value = drawn.use(dims) if row.linear else drawn.summed(dims)
    over = drawn.draw(st.sampled_from(dims)) if row.over_dims else ""
    left = dims if row.keeps_dims else tuple(dim for dim in dims if dim != over)
    name = "-" if row.name == "neg" else row.name + (f"_{over}" if over else "")
    drawn.state(f"{name}({value.text})", left, value.unreduced if row.linear else _NONE)


def _of_two(drawn: _Drawn) -> None:
    """`A + B`, `A - B`, with partial sums over the same axes if both say so."""
    left = drawn.use()
    if left.sharding is None:
        right = drawn.use(left.dims)
    elif drawn.draw(st.booleans()):
        right = drawn.draw(st.sampled_from([value for value in drawn.values if value.dims == left.dims]))
    else:
        right = drawn.alike(left)
    drawn.state(
        f"{left.text} {drawn.draw(st.sampled_from('+-'))} {right.text}", left.dims, left.unreduced & right.unreduced
    )


_NARROW = ("log", "log1p", "sqrt", "rsqrt", "exp", "exp2")  # of negative or large numbers they are not finite
_OF_ONE = [
    row
    for row in FUNCTIONS.values()
    if row.arity == 1 and row.name not in _NARROW and not row.truths and row.name in (*NAMED, "neg")
]
_LINEAR: tuple[Callable[[_Drawn], None], ...] = (_reshard, _collective, _product, _local, _nested, _sum, _of_two)
_LATER = (*_LINEAR, _of_one, _of_one)


def _distinct(draw: st.DrawFn, needs: list[int]) -> tuple[int, ...]:
    sizes: list[int] = []
    for need in needs:
        size = need * draw(st.integers(1, 2))
        while size in sizes:
            size += need
        sizes.append(size)
    return tuple(sizes)
