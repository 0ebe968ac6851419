"""Hypothesis strategies of loops, and of backward programs."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from shardc import api
from shardc.backward import grad
from shardc.errors import ShardcError
from shardc.interface.arguments import MeshLike
from shardc.ir.sharding import Sharding, spell
from shardc.testing.strategies import Case, drawn_mesh, named_sizes, programs, shardings

_INSIDE = ("relu", "tanh", "neg", "sign")  # none that makes whole numbers grow


@st.composite
def loops(draw: st.DrawFn, max_axes: int = 2, max_size: int = 3, mesh: MeshLike | None = None) -> Case:
    """A product in a loop: what is carried from trip to trip, what is fixed, scanned (and named), and stacked.

    `for L { x[B_X, D] = relu(x[B, D] · W[L, D, E_Y] ·_E V[E, D]); S[L, B] = sum_D(x) }`, then `return x, S`, or `x`.
    Shardings of the inputs are any; of what is carried also the planner's. Shrinks to one trip on one device.
    """
    drawn = drawn_mesh(draw, mesh, max_axes, max_size)
    used: list[tuple[tuple[str, ...], Sharding]] = []

    def array(name: str, *dims: str) -> str:
        sharding = draw(shardings(drawn, len(dims), unreduced=False))
        sharding = sharding.with_dim(0, ()) if dims[0] == "L" else sharding
        used.append((dims, sharding))
        return name + spell(dims, sharding)

    carried = array("x", "B", "D")
    fixed = draw(st.sampled_from((("E", "D"), ("L", "E", "D"))))
    scanned = array("W", "L", "D", "E")
    inside = [f"w = {scanned}"] if draw(st.booleans()) else []
    product = f"{carried} · {'w' if inside else scanned} ·_E {array('V', *fixed)}"
    inside.append(f"{carried} = {draw(st.sampled_from(_INSIDE))}({product})")
    is_stacked = draw(st.booleans())
    if is_stacked:
        inside.append("S[L, B] = sum_D(x)")
    trips = draw(st.integers(1, 3))
    text = f"for L {{ {'; '.join(inside)} }}; return {'x, S' if is_stacked else 'x'}"
    sizes = named_sizes(draw, drawn, [(dims, lies) for dims, lies in used], {})
    return Case(text, drawn, sizes | {"L": _free(trips, set(sizes.values()) - {sizes["L"]})})


def _free(trips: int, taken: set[int]) -> int:
    """No two dims of one size."""
    return next(count for count in range(trips, trips + len(taken) + 1) if count not in taken)


@st.composite
def backward_programs(draw: st.DrawFn, max_axes: int = 2, max_size: int = 3, mesh: MeshLike | None = None) -> Case:
    """The backward program of what `programs` draws, alone or with the forward one: as text, with its declarations."""
    case = draw(programs(max_axes, max_size, mesh))
    try:
        found = grad(
            api.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="f32"),
            whole=draw(st.booleans()),
            remat=draw(st.booleans()),
        )
    except ShardcError as error:
        assume(error.code not in ("SHC220", "SHC225"))
        raise
    lines = [line for line in str(found).splitlines() if not line.startswith(("mesh ", "dims ", "dtype "))]
    return Case("\n".join(lines), case.mesh, dict(found.sizes))
