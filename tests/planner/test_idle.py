"""Mesh axes that a text does not name: used where that is cheaper, or kept as they are (`idle`)."""

import re
from itertools import product

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import LinkModel, chip
from shardc.ir.mesh import MAX_AXES, Mesh
from shardc.ir.plan import Cost, single_steps
from shardc.planner import Objective, idle, plan_program
from shardc.planner.idle import is_worth_it
from shardc.planner.program.finer import common_factors
from shardc.testing import matmuls, programs, reshards

OBJECTIVES = ("time", "bytes")
OPEN = (
    "A[I_X, J] · B[J, K] → C[I, K_?]",
    "T = A[I_X, J] · B[J, K]; C[I, L] = relu(T) · D[K, L]",
    "T[I, K] = A[I, J_X] · B[J_X, K]; C[I, L] = T · D[K, L]; E[I_X, K] = T + T",
    "x1[I_X, J] = relu(x[I_X, J]); for L { x1[I_X, J] = relu(x1 · W[L, J, K]) ·_K V[L, K, J] }; return x1",
)


def named(text):
    """The axes that a text writes, which are one letter each, by its letters alone."""
    return set("".join(re.findall(r"_\{?([A-Z]+)", text)))


def moved(plan):
    """The axes, of the mesh as given, over which anything of a plan lies or moves: of all its strategies."""
    found = set()
    steps = [(done.step, done.block.values) for done in single_steps(plan.schedule.block)]
    steps += [(step, way.values) for each in plan._found.statements for way in ways(each) for step in way.steps]
    for step, values in steps:
        found.update(getattr(step.op, "axes", ()))
        for number in (*step.operands, *step.results):
            found.update(values[number].sharding.used)
    return {axis.rstrip("0123456789") for axis in found}


def ways(planned):
    if hasattr(planned, "statements"):
        return [way for each in planned.statements for way in ways(each)]
    return planned.cheapest(20)


def planned(text, mesh, dims, objective, **options):
    return shardc.plan(text, mesh=mesh, dims=dims, dtype="f32", chip="v5p", objective=objective, **options)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(reshards(max_axes=2), matmuls(max_axes=2), programs()), st.sampled_from(OBJECTIVES), st.data())
def test_what_keeps_idle_axes_names_only_those_of_the_text(case, objective, data):
    """However it is planned: in turn, together, on finer meshes, within memory; and each strategy that it lists."""
    mesh = Mesh((*case.mesh.axes, ("S", 2), ("T", 4)))
    dims = {dim: 64 * size for dim, size in case.dims.items()}
    asked = data.draw(st.sampled_from([{"idle": "keep"}, {"formula": "book"}]))
    plan = planned(case.text, mesh, dims, objective, **asked)
    assert moved(plan) <= named(case.text)
    for leaner in plan.pareto(4):
        assert moved(leaner) <= named(case.text)


@pytest.mark.instant
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("text", OPEN)
def test_what_is_left_open_keeps_idle_axes_too(text, objective):
    dims = dict.fromkeys("IJK", 4096) | {"L": 4 if "for L" in text else 4096}
    plan = planned(text, "X=4,Y=4", dims, objective, idle="keep")
    assert moved(plan) <= {"X"}
    for leaner in plan.pareto(3):
        assert moved(leaner) <= {"X"}


@pytest.mark.parametrize(
    ("text", "objective"),
    [
        ("A[I_X, J] → A[I_Y, J]", "time"),
        ("A[I, J_X] · B[J_X, K] → C[I, K]", "bytes"),
        ("A[I, J_X] · B[J_X, K] → C[I, K]", "time"),
        ("T = A[I, J] · B[J, K]; C[I, L] = T · D[K, L]", "time"),
    ],
)
def test_idle_axes_are_used_unless_they_are_to_be_kept(text, objective):
    """And kept they cost what the mesh without them does: the same steps."""
    dims = dict.fromkeys("IJKL", 4096)
    used = planned(text, "X=4,Y=4,Z=4", dims, objective)
    assert "Z" in moved(used)
    assert planned(text, "X=4,Y=4,Z=4", dims, objective, idle="use").cost == used.cost
    kept = planned(text, "X=4,Y=4,Z=4", dims, objective, idle="keep")
    alone = planned(text, "X=4,Y=4", dims, objective, idle="keep")
    assert (kept.cost, [str(step) for step in kept.steps]) == (alone.cost, [str(step) for step in alone.steps])
    assert "Z" in moved(planned(text, "X=4,Y=4,Z=4", dims, objective, formula="book", idle="use"))


NAMES_Y = "; Named[P_Y] = neg(Given[P_Y])"  # which takes no time
SHARED = "T = A[I, J_Z] · B[J, K_X]; S[I_XZ, L] = T · C[K_ZX, L]; R[I_Z, M] = T · D[K, M_Z]"
CONSUMERS = (
    "Q[B{}, H{}] = In[B{}, D{}] · Wq[D{}, H{}]; K[B{}, H{}] = In · Wk[D{}, H{}]",
    "T = A[I{}, J{}] · B[J{}, K{}]; S[I{}, L{}] = T · C[K{}, L{}]; R[I{}, M{}] = T · D[K{}, M{}]",
)


@st.composite
def consumers(draw):
    """Over X and Z: Y stands idle."""
    pairs = draw(st.sampled_from(CONSUMERS)).split("{}")
    lies = [draw(st.sampled_from([("", ""), ("X", "Z"), ("Z", "X"), ("XZ", ""), ("Z", ""), ("", "X")])) for _ in pairs]
    axes = [axis and f"_{axis}" for pair in lies for axis in pair]
    return "".join(part + axis for part, axis in zip(pairs, [*axes[: len(pairs) - 1], ""], strict=True))


def assert_naming_an_axis_gains_nothing(text):
    """What is chosen for all statements together is planned over the axes that it was chosen over."""

    def time_of(text):
        dims = dict.fromkeys((dim for dim in "BDHIJKLMP" if f"[{dim}" in text or f" {dim}" in text), 16384)
        return shardc.plan(text, mesh="X=2,Y=2,Z=2", dims=dims, dtype="bf16", topology="v5p:2x2x2").cost.time_s

    assert time_of(text) <= 1.05 * time_of(text + NAMES_Y)


def test_an_axis_need_not_be_named_to_share_an_array_over_it():
    assert_naming_an_axis_gains_nothing(SHARED)


@pytest.mark.long
@settings(max_examples=5, deadline=None)
@example("T = A[I_ZX, J] · B[J_Z, K]; S[I_Z, L] = T · C[K_ZX, L]; R[I_Z, M] = T · D[K_ZX, M]")
@given(consumers())
def test_no_axis_need_be_named_to_be_used(text):
    assert_naming_an_axis_gains_nothing(text)


@pytest.mark.instant
@pytest.mark.parametrize("word", ["Keep", "", "kept", 1])
def test_another_word_is_a_coded_error(word):
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.plan("A[I_X] → A[I]", mesh="X=4", idle=word)
    assert caught.value.code == "SHC001" and "idle" in caught.value.message and "keep" in caught.value.help


@pytest.mark.instant
@pytest.mark.parametrize(
    ("pool", "apart", "together"),
    [("XST", 1, "ST"), ("ST", 1, "ST"), ("XS", 1, ""), ("S", 1, ""), ("XST", 10**6, "")],
)
def test_idle_axes_move_as_one_where_there_are_several_and_too_many_ways_apart(pool, apart, together, monkeypatch):
    monkeypatch.setattr(idle, "MAX_APART", apart)
    program = shardc.parse("A[I_X, J] · B[J, K] → C[I, K]", mesh=dict.fromkeys("XST", 2))
    assert idle.idle_together(program, tuple(pool)) == tuple(together)


def test_an_axis_that_nothing_lies_on_is_not_cut_for_its_factors():
    """X and Y have a factor in common; Z has one too, and would be cut in vain."""
    program = shardc.parse("A[I_X, J_W] → A[I_Y, J]", mesh={"X": 4, "Y": 6, "W": 5, "Z": 4}, dims={"I": 60, "J": 20})
    found = plan_program(program, LinkModel.of(program.mesh, chip("v5e")), Objective.BYTES)
    cuts = [[axis for axis, parts in by.parts if len(parts) > 1] for by in common_factors(found, Objective.BYTES)]
    assert ["X", "Y"] in cuts and not any("Z" in axes for axes in cuts)


def test_cuts_into_as_many_axes_as_there_may_be_are_tried_and_into_no_more():
    program = shardc.parse("A[I_X, J_Z] → A[I_Y, J]", mesh={"X": 8, "Y": 12, "Z": 4}, dims={"I": 24, "J": 8})
    found = plan_program(program, LinkModel.of(program.mesh, chip("v5e")), Objective.BYTES)
    assert max(len(by.fine.axes) for by in common_factors(found, Objective.BYTES)) == MAX_AXES


@pytest.mark.instant
@pytest.mark.parametrize("moves", [True, False])
def test_idle_axes_are_used_for_a_fiftieth_of_the_time_or_a_tenth_where_they_bring_or_need_more(moves):
    def cost(picoseconds, wire, peak):
        return Cost(wire, 0, 0.0, 0.0, picoseconds / 1e12, lambda: peak)

    plain, times = cost(1000, 60, 60), (898, 899, 900, 978, 979, 980)
    for wire, peak in product((59, 60, 61), repeat=2):
        worth = [time for time in times if is_worth_it(cost(time, wire, peak), plain, moves)]
        if moves:
            assert worth == ([*times[:-1]] if wire <= 60 else [])
        else:
            assert worth == ([*times[:-1]] if wire <= 60 and peak <= 60 else [898, 899])


def test_of_idle_axes_those_are_used_that_divide_some_dim_with_the_ones_before():
    program = shardc.parse("A[I] → A[I]; B[J] → B[J]", mesh={"X": 2, "Y": 3, "Z": 2}, dims={"I": 4, "J": 6})
    assert idle.useful_together(program, ("X", "Y", "Z")) == ("X", "Y")
    assert idle.useful_together(program, ("X", "Z", "Y")) == ("X", "Z")
    assert idle.useful_together(program, ("Y", "Z", "X")) == ("Y", "Z")
