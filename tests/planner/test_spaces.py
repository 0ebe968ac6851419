"""Shardings with axes at home: which these are, and that plans found among them are right, legal and near the best."""

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.ir.legal import faults_of
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.planner import Objective, plan_program
from shardc.planner.idle import Idle
from shardc.planner.whole import plan as whole
from shardc.planner.whole import spaces
from shardc.planner.whole.spaces import STRAYS, Spaces, Strays, spaces_of
from shardc.rules.placements import Homes, placements, subsets

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program
from test_whole import SIZES, cases, model_of, parsed

ROOT = Path(__file__).parents[2]
POOL = ("X", "Y", "Z")


@st.composite
def homes(draw):
    rank = draw(st.integers(1, 3))
    at_home = [tuple(draw(st.permutations(POOL))[: draw(st.integers(0, 3))]) for _ in range(rank)]
    return Homes(tuple(at_home), tuple(draw(st.booleans()) for _ in at_home), draw(st.integers(0, 3)))


@settings(max_examples=200)
@given(homes(), st.permutations(POOL))
def test_placements_with_homes_are_those_of_all_with_few_strays_and_each_once(found, pool):
    """On a dim first the axes at home, in their order, then strays in that of the pool."""

    def fits(dims):
        strays = [axis not in home for axes, home in zip(dims, found.dims, strict=True) for axis in axes]
        shut = (
            axis not in home and not is_open
            for axes, home, is_open in zip(dims, found.dims, found.is_open, strict=True)
            for axis in axes
        )
        return sum(strays) <= found.strays and not any(shut) and all(map(in_order, dims, found.dims))

    def in_order(axes, home):
        return list(axes) == [*(a for a in home if a in axes), *(a for a in pool if a in axes and a not in home)]

    listed = list(found.placements(tuple(pool), len(found.dims)))
    every = [dims for _, free in subsets(tuple(pool)) for dims in found.placements(free, len(found.dims))]
    assert spaces._count_with_homes(found, tuple(pool)) == len(every)
    assert len(set(listed)) == len(listed)
    assert set(listed) == {dims for dims in placements(tuple(pool), len(found.dims)) if fits(dims)}
    assert [sum(map(len, dims)) for dims in listed] == sorted(sum(map(len, dims)) for dims in listed)


TEXT = "T[I, K] = A[I_{X,Y}, J] · B[J_Y, K_Z]; S[I, M] = relu(T) · T[M, K]; R[I_{Y,X}, M] = S"


def program_of(text=TEXT, mesh=None):
    return parsed(text, Mesh.of(mesh or {"X": 2, "Y": 2, "Z": 2, "W": 2}), dict.fromkeys("IJKM", 64))


def forced(monkeypatch, strays):
    """Tables of this size alone, however small those of all shardings are."""
    monkeypatch.setattr(spaces, "MOST_SHARDINGS", 0)

    def chosen(program, pool):
        first, asked = spaces._first_names(program), list(spaces._asked(program))
        nowhere = tuple(axis for axis in pool if axis not in program.axes_written)
        return Spaces(spaces._homes(asked, first), nowhere, first, spaces._exactly(asked, first, pool), strays)

    monkeypatch.setattr(whole, "spaces_of", chosen)


def test_axes_are_at_home_where_they_are_written_and_on_dims_that_stand_for_these():
    """T is taken with M for I; W is written nowhere."""
    program = program_of()
    found = spaces_of(program, program.mesh.names)
    assert found.strays is None and found.notes == ()  # few enough
    own = Spaces(found.homes, found.nowhere, found.first, found.asked, Strays(1, True))
    assert own.of(("I", "M")) == Homes((("X", "Y", "W"), ("X", "Y", "W")), (True, True), 1)
    assert own.of(("J", "K")) == Homes((("Y", "W"), ("Z", "W")), (True, True), 1)
    shut = Spaces({**found.homes, "J": ()}, found.nowhere, found.first, found.asked, Strays(2, False))
    assert shut.of(("J", "K")) == Homes(((), ("Z", "W")), (False, True), 2)
    assert Sharding.of([["Y", "X"], []]) in own.within(("M", "M")).more


@pytest.mark.instant
@pytest.mark.parametrize("axes", range(4, 9))
def test_the_more_axes_the_fewer_strays(axes):
    mesh = {f"A{number}": 2 for number in range(axes)}
    text = "T = P[I_A0, J, K, L_A1] · W[L_A2, M]; S[I, J, K, M_A3] = relu(T)"
    program = parsed(text, Mesh.of(mesh), dict.fromkeys("IJKLM", 256))
    found = spaces_of(program, program.mesh.names[:axes])
    known = {4: Strays(1, True), 5: Strays(1, False), 6: None, 7: None, 8: None}
    assert (found and found.strays) == known[axes]


@pytest.mark.parametrize("strays", STRAYS, ids=repr)
@settings(max_examples=25, deadline=None)
@given(case=cases(meshes=({"X": 4}, {"X": 2, "Y": 2})), objective=st.sampled_from(Objective))
def test_plans_found_among_them_are_right_and_no_cheaper_than_the_best(strays, case, objective):
    mesh, text, _ = case
    free = plan_program(parsed(text, mesh), model_of(mesh), objective)
    with pytest.MonkeyPatch.context() as patch:
        forced(patch, strays)
        found = plan_program(parsed(text, mesh), model_of(mesh), objective)
    assert not list(faults_of(found.schedule))
    assert objective.first(found.price(objective)) >= objective.first(free.price(objective))
    assert_means_the_program(found.schedule)


D = "B=64,T=4096,S=4096,D=4096,G=8,R=4,E=128,F=14336"
LAYER = re.sub(r"^(mesh|dims|chip).*\n", "", (ROOT / "examples" / "llama_layer.shard").read_text("utf-8"), flags=re.M)
OVER_FOUR = LAYER.replace("B_data", "B_{data,fsdp}").replace("D_data", "D_fsdp")
ON_FOUR = "data=2,fsdp=2,model=4,seq=4"


def planned(text, mesh, objective="time"):
    return shardc.plan(text, mesh=mesh, dims=D, chip="v5p", objective=objective)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seq", ["written", pytest.param("idle", marks=pytest.mark.long)])
def test_a_layer_on_four_axes_is_planned_as_one_and_takes_what_it_takes_on_three(seq):
    """The same devices with data and fsdp as one axis; planned statement by statement 1.6 and 3.4 times as long."""
    texts = [LAYER, OVER_FOUR]
    if seq == "written":
        texts = [each.replace(" T, D]", " T_seq, D]").replace("R, T, E]", "R, T_seq, E]") for each in texts]
    three, four = (planned(each, mesh) for each, mesh in zip(texts, ("data=4,model=4,seq=4", ON_FOUR), strict=True))
    assert any("over shardings with axes on dims that are written with them" in note for note in four.notes)
    assert not any("search ended" in note or "each is planned" in note for note in (*four.notes, *three.notes))
    assert four.cost.time_s < 1.45 * three.cost.time_s
    assert four.statements[2].cases["fsdp"] == 2  # K[…] = h[…, D] · Wk[D_fsdp, …]
    assert any(len(each.alternatives) > 1 for each in four.statements)


@pytest.mark.exhaustive
def test_a_layer_and_its_gradients_are_planned_as_one_on_three_axes():
    """By time it took 2.6 times as long as by bytes, each statement planned after the one before."""
    layer = shardc.grad(shardc.parse(LAYER, mesh="data=4,model=4,seq=4", dims=D), whole=True)
    by_time, by_bytes = (shardc.plan(layer, chip="v5p", objective=objective) for objective in ("time", "bytes"))
    assert not any("planned after" in note for note in (*by_time.notes, *by_bytes.notes))
    assert by_time.cost.time_s < by_bytes.cost.time_s and by_bytes.cost.wire_bytes < by_time.cost.wire_bytes


IDLE = "T[I_X, K] = A[I_X, J] · B[J, K]; U[I_X, L] = relu(T) · C[K, L]; S[I_X, M] = relu(U) · E[L, M]"


@pytest.mark.parametrize("written", ["I_{Y,X}, K_?", "I_?, K_{W,Z}"])
def test_axes_of_a_dim_in_another_order_are_looked_at_where_other_dims_are_open(written, monkeypatch):
    """Spaces have them in one order; such a program was planned statement after statement."""
    monkeypatch.setattr(spaces, "MOST_SHARDINGS", 200)
    text = f"T[{written}] = A[I_{{X,Y}}, J] · B[J_Y, K_{{Z,W}}]; S[I, M] = relu(T) · C[K, M]; R[I_{{X,Y}}, M] = S"
    plan = shardc.plan(text, mesh="X=2,Y=2,Z=2,W=2", dims=dict.fromkeys("IJKM", 64), objective="bytes")
    assert any("over shardings with axes on dims that are written with them" in note for note in plan.notes)
    assert plan.prove().holds is not False


def test_what_the_text_says_of_an_array_on_the_way_it_says_of_the_axes_that_it_names():
    """T and U are shared over Y as well, and gathered once, at the end."""
    plan = shardc.plan(IDLE, mesh="X=4,Y=4", dims=dict.fromkeys("IJKLM", 8192), chip="v5p")
    (gathered,) = (step for step in plan.steps if step.op == "AllGather")
    assert gathered.axes == ("Y",) and gathered.result == "S[I_X, M]"
    made = {step.result for step in plan.steps if step.op == "Einsum"}
    assert made == {"T[I_XY, K]", "U[I_XY, L]", "S[I_XY, M]"}


@settings(max_examples=30, deadline=None)
@given(cases(meshes=({"X": 4},)), st.sampled_from(Objective))
def test_to_use_an_axis_that_nothing_names_makes_no_plan_dearer_than_to_keep_it(case, objective):
    _, text, _ = case
    wider = Mesh.of({"X": 4, "Y": 2})
    used, kept = (plan_program(parsed(text, wider, SIZES), model_of(wider), objective, None, idle) for idle in Idle)
    assert objective.first(used.price(objective)) <= objective.first(kept.price(objective))
    assert_means_the_program(used.schedule)
