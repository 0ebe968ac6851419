"""A hypothesis strategy of programs of every kind of statement at once, in loops and around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import strategies as st

from shardc.interface.arguments import MeshLike
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import spell_dim
from shardc.testing.strategies import Case, drawn_mesh, shardings

_DIMS, _TRIPS = "BTSDF", "L"  # any of the first may be named as another: they are of one size
_ELEMENTS = ("relu", "tanh", "neg", "square", "silu", "exp", "sin", "abs", "sigmoid", "gelu")
_NUMBERS = ("0", "1", "-0.5")
_OVER_DIMS = ("sum", "mean", "max", "min", "softmax", "logsumexp")
_MOST_DIMS = 3
_MOST_STATEMENTS = 4  # after the first two; in a loop one fewer

_T = TypeVar("_T")
_Dims = tuple[str, ...]
_Made = tuple[str, _Dims]  # an expression of an array, and its dims
_Kind = Callable[[str, bool], _Made]


@st.composite
def mixed_programs(draw: st.DrawFn, max_axes: int = 2, max_size: int = 4, mesh: MeshLike | None = None) -> Case:
    """Products, functions, sums, reductions, masks and dims named anew, in loops and around them, in any order.

        t2[F_?, D] = W1[B_X, F] ·_B W3[B, D]
        for L { t4 = relu(t2[S_?, D_?]); W5 = W5[S, D_X] + t4; S6[L, S, D] = t4 }
        t7[L, D_?] = -0.5; t8 = max_L(S6)

    Loops take rows of what is given and of what is computed, and bind what is there anew. Inputs, and some of what is
    made, lie in any sharding; the rest is the planner's. All dims but L are of one size, which any axes divide.
    """
    on = drawn_mesh(draw, mesh, max_axes, max_size)
    text = _Drawn(draw, on).program()
    size = on.product(on.names) * draw(st.integers(1, 2))
    return Case(text, on, dict.fromkeys(_DIMS, size) | {_TRIPS: draw(st.integers(1, 3))})


@dataclass
class _Drawn:
    """A program in the making; `known` are the dims of what may be read, inside a loop those of a row."""

    draw: st.DrawFn
    mesh: Mesh
    known: dict[str, _Dims] = field(default_factory=dict)
    names: int = 0

    def one_of(self, choices: Sequence[_T]) -> _T:
        return self.draw(st.sampled_from(choices))

    def once_in(self, count: int) -> bool:
        return self.draw(st.integers(0, count - 1)) == count - 1

    def fresh(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def array(self, letter: str, dims: _Dims, inside: bool = False) -> str:
        """A new one in any sharding, but over a loop's dim."""
        name = self.fresh(letter)
        self.known[name] = _row(dims) if inside else dims
        return f"{name}[{', '.join(self._lying(dims))}]"

    def _lying(self, dims: _Dims) -> list[str]:
        """Each dim with its axes."""
        row = _row(dims)
        on = dict(zip(row, self.draw(shardings(self.mesh, len(row), unreduced=False)).dims, strict=True))
        return [spell_dim(dim, on.get(dim, ())) for dim in dims]

    # --- programs

    def program(self) -> str:
        first = tuple(self.draw(st.lists(st.sampled_from(_DIMS), min_size=1, max_size=_MOST_DIMS, unique=True)))
        lines = [self._of_given(first), self._of_given((_TRIPS, self.one_of(_DIMS)))]
        for _ in range(self.draw(st.integers(0, _MOST_STATEMENTS))):
            lines.append(self.loop() if self.once_in(3) else self.statement(inside=False))
        return "\n".join(lines)

    def _of_given(self, dims: _Dims) -> str:
        given, result = self.array("W", dims), self.fresh("t")
        self.known[result] = dims
        return f"{result} = {self.one_of(_ELEMENTS)}({given})"

    def loop(self) -> str:
        """Some statements; what is carried was bound before; each is read in the loop, or stacked."""
        outside = dict(self.known)
        self.known = {name: _row(dims) for name, dims in outside.items()}
        body = [self.statement(inside=True) for _ in range(self.draw(st.integers(1, _MOST_STATEMENTS - 1)))]
        made = [line.partition(" = ")[0].partition("[")[0] for line in body]
        pairs = [(old, new) for old in sorted(outside) for new in made if outside[old] == self.known[new] != ()]
        if pairs and self.once_in(2):
            old, new = self.one_of(pairs)
            body.append(f"{old} = 0.5 ⊙ ({old} + {new})")
        for name in made:
            rows = self.fresh("S")
            outside[rows] = (_TRIPS, *self.known[name])
            body.append(f"{rows}[{', '.join(outside[rows])}] = {name}")
        self.known = outside
        return f"for {self.one_of(('', '-'))}{_TRIPS} {{ {'; '.join(body)} }}"

    # --- statements

    def statement(self, inside: bool) -> str:
        """Where it lies is said of some."""
        name = self.one_of(sorted(self.known))
        if self.once_in(8):
            return self.filled(self.known[name])
        kinds: list[_Kind] = [self.elements, self.sums]
        kinds += [self.product, self.over] if self.known[name] else []
        kinds += [self.named_anew] if _row(self.known[name]) else []
        kinds += [self.masked] if len(self.known[name]) > 1 else []
        expr, dims = self.one_of(kinds)(name, inside)
        result = self.fresh("t")
        self.known[result] = dims
        return f"{result}{self._asked(dims)} = {expr}"

    def filled(self, dims: _Dims) -> str:
        """An array of one number, which has no array's dims but its own."""
        lies = [f"{dim}_?" for dim in dims] if self.once_in(2) else self._lying(dims)
        result = self.fresh("t")
        self.known[result] = dims
        return f"{result}[{', '.join(lies)}] = {self.one_of(_NUMBERS)}"

    def _asked(self, dims: _Dims) -> str:
        """Of some dims how they lie; the rest is left open."""
        if not dims or not self.once_in(3):
            return ""
        said = [f"{dim}_?" if self.once_in(3) else so for dim, so in zip(dims, self._lying(dims), strict=True)]
        return f"[{', '.join(said)}]"

    def elements(self, name: str, inside: bool) -> _Made:
        return f"{self.one_of(_ELEMENTS)}({name})", self.known[name]

    def product(self, name: str, inside: bool) -> _Made:
        """Of the sum over one of its dims, with what is there or with a new one."""
        own = self.known[name]
        dim = self.one_of(own)
        others = [one for one in sorted(self.known) if dim in self.known[one] and one != name and self._fits(one, own)]
        if others and self.once_in(2):
            other = written = self.one_of(others)
        else:
            room = _MOST_DIMS - len(own) + 1
            more = self.draw(st.lists(st.sampled_from(_DIMS), max_size=room, unique=True))
            dims = tuple(dict.fromkeys([dim, *more]))
            scanned = inside and self.once_in(2)
            written = self.array("W", (_TRIPS, *dims) if scanned else dims, inside)
            other = written.partition("[")[0]
        left = tuple(dict.fromkeys(one for one in own + self.known[other] if one != dim))
        return f"{name} ·_{dim} {written}", left

    def _fits(self, other: str, own: _Dims) -> bool:
        return len({*own, *self.known[other]}) <= _MOST_DIMS + 1

    def sums(self, name: str, inside: bool) -> _Made:
        smaller = [one for one in sorted(self.known) if set(self.known[one]) <= set(self.known[name])]
        return f"{name} {self.one_of('+-⊙')} {self.one_of(smaller)}", self.known[name]

    def over(self, name: str, inside: bool) -> _Made:
        own = self.known[name]
        dim, function = self.one_of(own), self.one_of(_OVER_DIMS)
        return f"{function}_{dim}({name})", own if function == "softmax" else tuple(one for one in own if one != dim)

    def named_anew(self, name: str, inside: bool) -> _Made:
        own = self.known[name]
        before, after = self.one_of(_row(own)), self.one_of([dim for dim in _DIMS if dim not in own])
        dims = tuple(after if dim == before else dim for dim in own)
        use = f"{name}[{', '.join(f'{dim}_?' for dim in dims)}]"
        return (f"{self.one_of(_ELEMENTS)}({use})" if self.once_in(2) else use), dims

    def masked(self, name: str, inside: bool) -> _Made:
        one, other = self.draw(st.permutations(self.known[name]))[:2]
        return f"where(index_{one} >= index_{other}, {name}, 0)", self.known[name]


def _row(dims: _Dims) -> _Dims:
    """The dims that are no loop's."""
    return tuple(dim for dim in dims if dim != _TRIPS)
