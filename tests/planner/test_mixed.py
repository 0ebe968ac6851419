"""Programs of every kind of statement at once: planned, on slices too, and proved for every value.

    t2[F_?, D] = W1 ·_B W3[B, D]; for L { t4 = relu(t2[S_?, D_?]); W5 = W5 + t4; S6[L, S, D] = t4 }; t7 = max_L(S6)

Loops take rows of what is computed, and what is bound anew; dims are named anew everywhere. All are of eight elements,
so that any may be named as another, and sharded over any axes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import shardc
from shardc.errors import ShardcError

DIMS = "BTSDF"
SIZES = dict.fromkeys(DIMS, 8) | {"L": 8}
WHERE = [("topology v5e:2x4", "X=2,Y=4"), ("topology v5e:2x4", "X=8"), ("topology v5p:2x2x2", "X=2,Y=2,Z=2")]
WHERE += [("chip v5e", "X=2,Y=2"), ("chip v5p", "X=4,Y=2")]
ELEMENTS = ("relu", "tanh", "neg", "square", "silu", "exp", "sin", "abs", "sigmoid", "gelu")
OVER_DIMS = ("sum", "mean", "max", "min", "softmax", "logsumexp")
Made = tuple[str, tuple[str, ...]]  # an expression of an array, and its dims
Kind = Callable[[str, bool], Made | None]


@dataclass
class Drawn:
    """A program in the making; `known` are the dims of what may be read, inside a loop those of a row."""

    random: Random
    axes: list[str]
    known: dict[str, tuple[str, ...]] = field(default_factory=dict)
    names: int = 0

    def fresh(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def brackets(self, dims: tuple[str, ...], free: float = 0.0) -> str:
        """Any sharding, but over a loop's dim; some dims are left to the planner."""
        over: dict[str, list[str]] = {dim: [] for dim in dims}
        for axis in self.random.sample(self.axes, len(self.axes)):
            if dims and self.random.random() < 0.45:
                over[self.random.choice(dims)].append(axis)
        said = [
            f"{dim}_?" if self.random.random() < free else f"{dim}_{{{','.join(on)}}}" if on and dim != "L" else dim
            for dim, on in over.items()
        ]
        return f"[{', '.join(said)}]"

    def given(self, dims: tuple[str, ...], inside: bool = False) -> str:
        """A new input, by its brackets."""
        name = self.fresh("W")
        self.known[name] = tuple(dim for dim in dims if dim != "L" or not inside)
        return name + self.brackets(dims)

    def statement(self, inside: bool) -> str:
        kinds: list[Kind] = [self.product] * 5 + [self.elements] * 4
        kinds += [self.sums] * 3 + [self.over] * 2 + [self.named_anew] * 3 + [self.masked]
        while True:
            name = self.random.choice(sorted(self.known))
            made = self.random.choice(kinds)(name, inside)
            if made is not None:
                break
        expr, dims = made
        result = self.fresh("t")
        self.known[result] = dims
        return f"{result}{self.brackets(dims, 0.4) if self.random.random() < 0.4 else ''} = {expr}"

    def product(self, name: str, inside: bool) -> Made | None:
        own = self.known[name]
        if not own:
            return None
        dim = self.random.choice(own)
        others = [one for one in sorted(self.known) if dim in self.known[one] and one != name]
        if others and self.random.random() < 0.5:
            other = written = self.random.choice(others)
        else:
            dims = tuple(dict.fromkeys([dim, *self.random.sample(DIMS, self.random.randint(0, 2))]))
            written = self.given(("L", *dims) if inside and self.random.random() < 0.6 else dims, inside)
            other = written.partition("[")[0]
        left = tuple(dict.fromkeys(one for one in own + self.known[other] if one != dim))
        return (f"{name} ·_{dim} {written}", left) if len(left) < 4 else None

    def elements(self, name: str, inside: bool) -> Made:
        return f"{self.random.choice(ELEMENTS)}({name})", self.known[name]

    def sums(self, name: str, inside: bool) -> Made:
        smaller = [one for one in sorted(self.known) if set(self.known[one]) <= set(self.known[name])]
        return f"{name} {self.random.choice('+-⊙')} {self.random.choice(smaller)}", self.known[name]

    def over(self, name: str, inside: bool) -> Made | None:
        own = self.known[name]
        if not own:
            return None
        dim, function = self.random.choice(own), self.random.choice(OVER_DIMS)
        return f"{function}_{dim}({name})", own if function == "softmax" else tuple(one for one in own if one != dim)

    def named_anew(self, name: str, inside: bool) -> Made | None:
        own, others = self.known[name], [dim for dim in DIMS if dim not in self.known[name]]
        places = [dim for dim in own if dim != "L"]
        if not places or not others:
            return None
        before, after = self.random.choice(places), self.random.choice(others)
        dims = tuple(after if dim == before else dim for dim in own)
        use = f"{name}[{', '.join(f'{dim}_?' for dim in dims)}]"
        return (f"{self.random.choice(ELEMENTS)}({use})" if self.random.random() < 0.5 else use), dims

    def masked(self, name: str, inside: bool) -> Made | None:
        if len(self.known[name]) < 2:
            return None
        one, other = self.random.sample(self.known[name], 2)
        return f"where(index_{one} >= index_{other}, {name}, 0)", self.known[name]

    def loop(self) -> str:
        """Some statements; what is carried is bound before; each is read in the loop, or stacked."""
        outside = dict(self.known)
        self.known = {name: tuple(dim for dim in dims if dim != "L") for name, dims in outside.items()}
        body = [self.statement(inside=True) for _ in range(self.random.randint(1, 3))]
        made = [line.partition(" = ")[0].partition("[")[0] for line in body]
        pairs = [(old, new) for old in sorted(outside) for new in made if outside[old] == self.known[new] != ()]
        if pairs and self.random.random() < 0.7:
            old, new = self.random.choice(pairs)
            body.append(f"{old} = 0.5 ⊙ ({old} + {new})")
        for name in made:
            rows = self.fresh("S")
            body.append(f"{rows}[{', '.join(('L', *self.known[name]))}] = {name}")
            outside[rows] = ("L", *self.known[name])
        self.known = outside
        return f"for {self.random.choice(['', '-'])}L {{ {'; '.join(body)} }}"

    def program(self) -> str:
        lines = list[str]()
        for dims in [tuple(self.random.sample(DIMS, self.random.randint(1, 3))), ("L", self.random.choice(DIMS))]:
            result = self.fresh("t")
            lines.append(f"{result} = {self.random.choice(ELEMENTS)}({self.given(dims)})")
            self.known[result] = dims
        for _ in range(self.random.randint(1, 4)):
            lines.append(self.loop() if self.random.random() < 0.35 else self.statement(inside=False))
        return "\n".join(lines)


@pytest.mark.parametrize("how", ["forward", "grad", "whole", "remat"])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False), st.sampled_from(WHERE), st.sampled_from(["time", "bytes"]))
@example(Random(3), WHERE[0], "bytes")
def test_what_is_planned_is_what_the_program_means(how, random, where, objective):
    hardware, mesh = where
    text = f"{hardware}\n{Drawn(random, [part[0] for part in mesh.split(',')]).program()}"
    program = shardc.parse(text, mesh=mesh, dims=SIZES, dtype="f32")
    if how != "forward":
        try:
            program = shardc.grad(program, whole=how == "whole", remat=how == "remat")
        except ShardcError as error:
            assert error.code == "SHC225", error  # nothing has a gradient
            return
    assert shardc.plan(program, objective=objective).prove().holds is not False


REDUCED = ("max_S(W)", "min_S(neg(W))", "logsumexp_S(W)", "sum_S(W)", "mean_S(W)")
READ = (
    *("u = r ·_D W", "u = r ·_D V[D, K]", "u = r ⊙ W", "u = relu(r)", "u = max_D(r)", "u = r + r"),
    *("u = where(W == r, 1, 0)", "u[F, D] = r", "u = r ·_D W; v = max_S(W)", "u = softmax_D(r); v = r ·_D W"),
)


@pytest.mark.parametrize(("where", "objective"), [(WHERE[0], "time"), (WHERE[1], "time"), (WHERE[2], "bytes")])
@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("reduced", REDUCED)
def test_what_is_reduced_over_a_sharded_dim_is_read_by_all_that_follows(reduced, read, where, objective):
    """The largest of each device's part is not yet the array: no sum is taken of it."""
    hardware, mesh = where
    text = f"{hardware}\nr = {reduced.replace('W', 'W[F, D, S_X]', 1)}; {read}"
    program = shardc.parse(text, mesh=mesh, dims=dict.fromkeys("FDSK", 512), dtype="f32")
    assert shardc.plan(program, objective=objective).prove().holds is not False


def freed(text: str) -> str:
    """The same with every array that a statement makes left to the planner: `t1[S, D_X] =` as `t1[S_?, D_?] =`."""
    free = partial(re.sub, r"([A-Z])(_(\{[^}]*\}|\?|[A-Z]))?", r"\1_?")
    return re.sub(r"\b(t\d+)\[([^\]]*)\] =", lambda made: f"{made[1]}[{free(made[2])}] =", text)


STATED = {
    "an output by another statement's name": (
        *(WHERE[1], "time", 2048),
        "for L { t1[F_?, T, S] = W2[D, F] ·_D W5[L, D, T, S_X]; S8[L, F, T, S] = t1 }",
    ),
    "what a loop does once, and what is there": (
        *(WHERE[2], "bytes", 512),
        "t1 = sigmoid(W2[D, S, B_Y]);"
        "for -L { t5[D_Z, T, B_?] = W2[D_?, T_?, B_?]; t7 = softmax_D(t5); S8[L, D, T, B] = t5; S9[L, D, T, B] = t7 }",
    ),
    "rows that a loop brings": (
        *(WHERE[0], "time", 512),
        "t3 = neg(W4[L, B_Y]); t5[L_?, T_X] = abs(W4[L_?, T_?]);"
        "for -L { t6[B] = t3 + W4; t8 = W4 ·_B W9[L, B]; S1[L, B] = t6; S2[L] = t8 }",
    ),
    "sums of rows": (
        *(WHERE[2], "time", 64),
        "t3 = tanh(W4[L, D_Y]); t6[D_X] = max_L(W4); for L { t7[] = W4 ·_D t3; S8[L] = t7 }",
    ),
}


@pytest.mark.parametrize("name", STATED)
def test_what_is_left_to_the_planner_is_no_dearer_than_what_is_stated(name):
    (hardware, mesh), objective, size, text = STATED[name]
    dims = dict.fromkeys("BTSDF", size) | {"L": 3}
    stated, free = (
        shardc.plan(f"{hardware}\n{each}", mesh=mesh, dims=dims, dtype="bf16", objective=objective).cost
        for each in (text, freed(text))
    )
    if objective == "time":
        assert free.time_s <= stated.time_s * (1 + 1e-9)
    else:
        assert free.wire_bytes <= stated.wire_bytes
