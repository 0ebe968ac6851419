"""Hypothesis strategies of loops, and of backward programs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import assume
from hypothesis import strategies as st

from shardc import api
from shardc.backward import grad
from shardc.errors import ShardcError
from shardc.interface.arguments import MeshLike
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding, spell
from shardc.testing.strategies import Case, drawn_mesh, named_sizes, programs, shardings

_INSIDE = ("relu", "tanh", "neg", "sign")  # none that makes whole numbers grow


@st.composite
def loops(draw: st.DrawFn, max_axes: int = 2, max_size: int = 3, mesh: MeshLike | None = None) -> Case:
    """A product in a loop: what is carried from trip to trip, what is fixed, scanned (and named), and stacked.

    `U[L_X, D, E] = tanh(W[L, D, E_Y]); for L { x[B_X, D] = relu(x[B, D] · U ·_E V[E, D]); S[L, B] = sum_D(x) }`, then
    `R = neg(S)` and `return x, R`. What is scanned or fixed may be computed before, and lie in any sharding; what is
    stacked may be read behind. What is carried may be bound by another name of its dims, `t = relu(x[B, D] · U ·_E
    V[E, F]); x[B_X, D] = t[B_?, D_?]`. Shardings of the inputs are any; of the rest also the planner's. Shrinks to one
    trip on one device.
    """
    text, last = _Text(draw, drawn_mesh(draw, mesh, max_axes, max_size)), draw(st.sampled_from("DF"))
    carried = text.array("x", "B", "D")
    fixed = draw(st.sampled_from((("E", last), ("L", "E", last))))
    scanned, inside, behind = text.perhaps_before("U", "W", "L", "D", "E"), list[str](), list[str]()
    if draw(st.booleans()):
        inside.append(f"w = {scanned}")
        scanned = "w"
    product = f"{carried} · {scanned} ·_E {text.perhaps_before('T', 'V', *fixed)}"
    if last == "D":
        inside.append(f"{carried} = {text.applied(product)}")
    else:
        inside += [f"t = {text.applied(product.replace('·', '·_D', 1))}", f"{carried} = t[B_?, D_?]"]
    left = ["x"]
    if draw(st.booleans()):
        inside.append("S[L, B] = sum_D(x)")
        left.append("S")
        if draw(st.booleans()):
            behind.append(f"R = {text.applied('S')}")
            left[-1] = "R"
    every = [*text.before, f"for L {{ {'; '.join(inside)} }}", *behind, f"return {', '.join(left)}"]
    return Case("; ".join(every), text.mesh, text.sizes())


@dataclass
class _Text:
    """What is drawn of a loop's text: statements before it, and arrays that lie so."""

    draw: st.DrawFn
    mesh: Mesh
    before: list[str] = field(default_factory=list)
    used: list[tuple[tuple[str, ...], Sharding]] = field(default_factory=list)

    def array(self, name: str, *dims: str, is_scanned: bool = True) -> str:
        """By its brackets; on each device are all rows of what the loop scans."""
        sharding = self.draw(shardings(self.mesh, len(dims), unreduced=False))
        sharding = sharding.with_dim(0, ()) if dims[0] == "L" and is_scanned else sharding
        self.used.append((tuple("D" if dim == "F" else dim for dim in dims), sharding))  # another name of D
        return name + spell(dims, sharding)

    def applied(self, to: str) -> str:
        return f"{self.draw(st.sampled_from(_INSIDE))}({to})"

    def perhaps_before(self, computed: str, name: str, *dims: str) -> str:
        """An input, or the name of what is computed of it before the loop, where the text or the planner says."""
        given = self.array(name, *dims)
        if not self.draw(st.booleans()):
            return given
        bound = self.array(computed, *dims, is_scanned=False) if self.draw(st.booleans()) else computed
        self.before.append(f"{bound} = {self.applied(given)}")
        return computed

    def sizes(self) -> dict[str, int]:
        """No two dims are of one size."""
        sizes = named_sizes(self.draw, self.mesh, self.used, {})
        share = math.lcm(*(self.mesh.product(lies.dims[0]) for dims, lies in self.used if dims[0] == "L"))
        trips, taken = share * self.draw(st.integers(1, 3)), {size for dim, size in sizes.items() if dim != "L"}
        while trips in taken:
            trips += share
        return sizes | {"L": trips}


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
