"""The strategies draw only what is valid, reach every kind of case, and shrink to the smallest mesh."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import Counter
from typing import get_args

import jax
import pytest
from hypothesis import HealthCheck, find, given, seed, settings
from hypothesis import strategies as st

import shardc
from shardc.ir.collectives import COLLECTIVE_NAMES, Move
from shardc.ir.functions import FUNCTIONS, NAMED
from shardc.ir.mesh import Mesh
from shardc.ir.plan import every_step
from shardc.ir.sharding import Sharding
from shardc.lowering.forms import Form
from shardc.lowering.lower import lower
from shardc.planner.statement import build
from shardc.rules import products
from shardc.testing import (
    all_shardings,
    assert_rewrite,
    backward_programs,
    loops,
    matmuls,
    meshes,
    mixed_programs,
    partial_programs,
    paths,
    programs,
    reshards,
    shardings,
)

SETTINGS = settings(max_examples=150, deadline=None, database=None)
QUICK = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
ARRAY = re.compile(r"(\w+)\[([^\]]*)\](?:\{U_([^}]*)\})?")


def arrays(text):
    """Each bracketed array of a text: its name, its dims with their axes, its unreduced axes."""
    for name, inside, partial in ARRAY.findall(text):
        dims = [part.strip() for part in inside.split(",")]
        yield name, {dim.partition("_")[0]: dim.partition("_")[2] for dim in dims}, partial


def drawn(strategy, count=400):
    """That many draws."""
    found = []

    @seed(1)
    @settings(QUICK, max_examples=count)
    @given(strategy)
    def draw(value):
        found.append(value)

    draw()
    return found


def check_text(case):
    mesh, dims = case.mesh, case.dims
    assert len(set(dims.values())) == len(dims), "two dims of one size hide bugs"
    for _, subscripts, partial in arrays(case.text):
        axes = "".join(subscripts.values()).replace("?", "") + partial
        assert len(set(axes)) == len(axes) and set(axes) <= set(mesh.names)
        for dim, on in subscripts.items():
            assert on == "?" or dims[dim] % mesh.product(on) == 0


@SETTINGS
@given(matmuls())
def test_matmuls_are_valid(case):
    check_text(case)
    (_, _, a), (_, _, b), (_, _, c) = arrays(case.text)
    assert not set(a) & set(b)
    assert case.dims["J"] % case.mesh.product(c) == 0


@SETTINGS
@given(programs())
def test_programs_are_valid(case):
    check_text(case)
    assert 2 <= len(case.text.splitlines()) <= 3
    assert "{U" not in case.text


@pytest.mark.instant
@SETTINGS
@given(reshards())
def test_reshards_are_valid(case):
    check_text(case)
    assert case.source.divides(case.shape, case.mesh) and case.target.divides(case.shape, case.mesh)
    assert case.target.unreduced <= case.source.unreduced
    assert case.dims == dict(zip("IJK", case.shape, strict=False))


@pytest.mark.instant
@SETTINGS
@given(st.data())
def test_meshes_and_shardings_keep_to_what_is_asked(data):
    mesh = data.draw(meshes(max_axes=2, max_size=3, min_size=2))
    assert 1 <= len(mesh.axes) <= 2 and set(mesh.sizes) <= {2, 3}
    sharding = data.draw(shardings(mesh, 2, unreduced=False))
    assert sharding in set(all_shardings(mesh, 2, unreduced=False))


def test_every_sharding_is_drawn():
    mesh = Mesh.of({"X": 2, "Y": 2})
    assert set(drawn(shardings(mesh, 2))) == set(all_shardings(mesh, 2))


def test_every_case_of_the_four_is_drawn():
    counted = Counter(case for drawing in drawn(matmuls()) for case in cases(drawing.text, drawing.mesh))
    assert set(counted) == {1, 2, 3, 4} and min(counted.values()) >= 10, counted


def cases(text, mesh):
    """The case of each axis, read off the text."""
    (_, a, _), (_, b, _), _ = arrays(text)
    for axis in mesh.names:
        on_a = next((dim for dim, axes in a.items() if axis in axes), None)
        on_b = next((dim for dim, axes in b.items() if axis in axes), None)
        if on_a == on_b == "J":
            yield 3
        elif "J" in (on_a, on_b):
            yield 2
        else:
            yield 4 if on_a and on_b and on_a != on_b else 1


def test_every_kind_of_reshard_is_drawn():
    counted = Counter(kind for case in drawn(reshards()) for kind in kinds(case.source, case.target))
    wanted = {"gather", "slice", "exchange", "reorder", "reduce", "scatter", "stay unreduced"}
    assert set(counted) == wanted and min(counted.values()) >= 10, counted


def kinds(source, target):
    place = {axis: dim for dim, axes in enumerate(source.dims) for axis in axes}
    for dim, axes in enumerate(target.dims):
        for axis in axes:
            if axis in source.unreduced:
                yield "scatter"
            elif axis not in place:
                yield "slice"
            elif place[axis] != dim:
                yield "exchange"
        if set(axes) == set(source.dims[dim]) and axes != source.dims[dim]:
            yield "reorder"
    if set(place) - target.used:
        yield "gather"
    if source.unreduced - target.used:
        yield "reduce"
    if target.unreduced:
        yield "stay unreduced"


def test_every_kind_of_program_is_drawn():
    texts = "\n".join(case.text for case in drawn(programs()))
    functions = ("relu", "gelu", "silu", "tanh", "square", "neg", "sigmoid", "abs", "softmax_K", "sum_K", "max_K")
    for word in (*[f"{name}(T)" for name in functions], "T + D[I", "T - D[I", "T + D[K", "V · C", "[I_?"):
        assert word in texts, word


@pytest.mark.parametrize(
    "strategy, text, sizes",
    [
        (matmuls(), "A[I, J] · B[J, K] → C[I, K]", [1]),
        (programs(), "T[I_?, K_?] = A[I, J] · B[J, K]\nOut[I] = sum_K(T)", [1]),
        (reshards(), "A[I] → A[I]", [1]),
    ],
    ids=["matmuls", "programs", "reshards"],
)
def test_everything_shrinks_to_the_smallest_mesh_and_no_sharding(strategy, text, sizes):
    smallest = find(strategy, lambda case: True, settings=QUICK)
    assert smallest.text == text and list(smallest.mesh.sizes) == sizes


def test_a_failure_shrinks_to_the_smallest_mesh_that_shows_it():
    def gathers_over_two(case):
        return case.mesh.product(case.source.sharded) > 1 and case.target == Sharding.replicated(len(case.shape))

    smallest = find(reshards(), gathers_over_two, settings=settings(QUICK, max_examples=2000, derandomize=True))
    assert (smallest.mesh.devices, smallest.shape) == (2, (2,))  # an axis of one beside it is as small


EVERY = {
    "paths": paths,
    "reshards": reshards,
    "matmuls": matmuls,
    "programs": programs,
    "loops": loops,
    "backward_programs": backward_programs,
    "mixed_programs": mixed_programs,
    "partial_programs": partial_programs,
}
TWO = Mesh.of({"data": 1, "model": 2})


@pytest.mark.parametrize("name", EVERY)
def test_everything_is_drawn_on_one_device_on_one_axis_and_on_a_mesh_of_ones_own(name):
    strategy = EVERY[name]
    most = "max_devices" if strategy is partial_programs else "max_size"
    alone = drawn(strategy(**{most: 1}), 20)
    assert {case.mesh.devices for case in alone} == {1} and len({len(case.mesh.axes) for case in alone}) > 1
    assert {case.mesh for case in drawn(strategy(max_axes=1, **{most: 1}), 20)} == {Mesh.of({"X": 1})}
    assert {case.mesh.names for case in drawn(strategy(max_axes=1), 20)} == {("X",)}
    own = drawn(strategy(mesh=TWO), 20)
    assert {case.mesh for case in own} == {TWO}
    for case in own[:5]:
        planned(case)
    for said in ({"data": 1, "model": 2}, "data=1,model=2", jax.sharding.AbstractMesh((1, 2), ("data", "model"))):
        assert drawn(strategy(mesh=said), 20) == own


def planned(case):
    """Whatever is drawn is valid: a text has a plan, and a path is run."""
    if hasattr(case, "given"):
        assert_rewrite(case.given, case.given, mesh=case.mesh)
    else:
        shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype="f32", objective="bytes")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["matmuls", "programs", "reshards", "paths", "partial_programs", "mixed_programs"])
def test_on_one_device_everything_is_valid_and_shrinks(name):
    most = "max_devices" if name == "partial_programs" else "max_size"
    for case in drawn(EVERY[name](**{most: 1}), 15):
        planned(case)
    wanted = (lambda case: "relu" in case.text) if name == "partial_programs" else lambda case: True
    smallest = find(EVERY[name](), wanted, settings=settings(QUICK, max_examples=500))
    assert smallest.mesh.devices <= (2 if name == "partial_programs" else 1)  # of which three in four are wide


def test_the_fewest_dims_moves_and_statements_are_drawn():
    assert {len(path.shape) for path in drawn(paths(max_rank=1), 20)} == {1}
    assert {path.moves for path in drawn(paths(max_moves=0), 20)} == {()}
    assert {len(path.shape) for path in drawn(paths(max_rank=4), 60)} == {1, 2, 3, 4}
    assert {len(case.text.splitlines()) for case in drawn(partial_programs(max_statements=1), 20)} == {1}
    assert not any(path.source.unreduced for path in drawn(paths(unreduced=False), 40))
    mesh = Mesh.of({"X": 1})
    assert set(drawn(shardings(mesh, 0), 20)) == set(all_shardings(mesh, 0))


def test_many_axes_of_partial_sums_are_no_long_search():
    assert len(drawn(partial_programs(max_axes=8), 5)) == 5


@pytest.mark.exhaustive
def test_programs_with_partial_sums_are_planned_and_reach_every_operation():
    """Each is legal as written, and its first input is unreduced; together they name all that the notation has."""
    cases = drawn(partial_programs(), 1200)
    for case in cases:
        assert next(arrays(case.text.partition("=")[2]))[2], case.text
        assert case.mesh.devices <= 8
    for case in cases[::100]:
        shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype="f32", objective="bytes")
    text = "\n".join(case.text for case in cases)
    of_one = {row.name for row in FUNCTIONS.values() if row.arity == 1 and row.name in NAMED and not row.truths}
    named = {*COLLECTIVE_NAMES, *of_one}
    assert named - {"log", "log1p", "sqrt", "rsqrt", "exp", "exp2"} <= set(re.findall(r"[A-Za-z]+", text))
    assert all(sign in text for sign in (" · ", " ·_LOCAL ", " ⊙ ", " + ", " - ", "= -", "sum_I(", "_?", "[]{"))


def test_loops_carry_fix_scan_and_stack():
    texts = "\n".join(case.text for case in drawn(loops(), 100))
    for word in ("return x, S", "return x\n", "V[L", "V[E", "relu(x", "tanh(x", "neg(x", "sign(x", "T = ", "R = "):
        assert word in texts, word
    assert "x[B, D_?]" not in texts and "= t[B_?, D_?]" in texts
    for pattern in (r"x\[B_[XY]", r"W\[L, D_[XY]", r"[UT]\[L_[XY]"):
        assert re.search(pattern, texts), pattern


def test_backward_programs_leave_gradients_of_every_kind():
    texts = [case.text for case in drawn(backward_programs(), 60)]
    assert all(re.search(r"return .*d[ABCD]\b", text) for text in texts)
    assert any("Out" in text.split("return")[1] for text in texts)  # whole: forward and backward as one
    assert {"where(", "softmax", "tanh"} <= {word for word in ("where(", "softmax", "tanh") if word in "\n".join(texts)}


@pytest.mark.exhaustive
def test_loops_shrink_to_one_device():
    assert find(loops(), lambda case: True, settings=settings(QUICK, max_examples=20)).mesh.devices == 1


def test_every_kind_of_move_is_drawn():
    moved = Counter(type(move).__name__ for path in drawn(paths(), 400) for move in path.moves)
    assert set(moved) == {kind.__name__ for kind in get_args(Move)}, moved


COUNTS = ((matmuls(), 120), (reshards(), 100), (programs(), 40), (partial_programs(), 40), (loops(), 6))


def rules_written():
    """The words of every rule that a step may be explained by, from the functions that say them."""
    for reason in (products.Before.rule, products.After.rule):
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(reason)))):
            match node:
                case ast.Call(func=ast.Name(id="_rule"), args=[_, ast.Constant(value=str(words)), *_]):
                    yield words
    yield from ("reshard", "local product", build.NAMED.words, "digits of dims", "over a sharded dim", "rounds")


@pytest.mark.exhaustive
def test_every_rule_and_every_form_is_drawn():
    rules, forms = Counter(), Counter()
    for case in (case for strategy, count in COUNTS for case in drawn(strategy, count)):
        plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype="f32", objective="bytes")
        rules.update(str(done.step.rule) for done in every_step(plan.schedule.block))
        forms.update(map(type, lower(plan.schedule).forms))
    never = [rule for rule in rules_written() if not any(rule in found for found in rules)]
    assert len(rules) >= 25 and never == [], rules
    seldom = shardc.plan("A[I_X, J] → A[I_Y, J]", mesh="X=3,Y=3", dims="I=48,J=8", objective="bytes")
    forms.update(map(type, lower(seldom.schedule).forms))  # axes of one size, and one idle
    assert set(forms) == {*get_args(Form)}, forms


@pytest.mark.exhaustive
def test_every_kind_of_statement_is_in_mixed_programs_in_loops_and_around_them():
    """A product, a function, a sum, a reduction, a mask, a number, a dim named anew; carried, scanned and stacked."""
    texts = [case.text for case in drawn(mixed_programs(), 400)]
    inside = [body for text in texts for body in re.findall(r"\{ (.*) \}", text)]
    outside = [re.sub(r"\{ .* \}", "", text) for text in texts]
    for kind in (r"·_", r"sin\(", r" [+-] ", r"max_", r"where\(index_", r" = (0|1|-0\.5)$", r"\w\d\[[^]]*_\?\]$"):
        for where in (inside, outside):
            found = [text for text in where if re.search(kind, text.replace("; ", "\n"), re.MULTILINE)]
            assert len(found) >= 3, (kind, where is inside)
    assert all("S" in body for body in inside) and sum("0.5 ⊙" in body for body in inside) >= 3
