"""Loops planned whole: against every choice of what their text leaves free, within loops and around them."""

import sys
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import CHIPS, LinkModel
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import spell
from shardc.planner import Objective, plan_program, planned_at_once
from shardc.planner.options import Options
from shardc.planner.program.loops import _Looped
from shardc.testing import shardings
from shardc.testing.oracles import all_shardings

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program

SIZES = {"I": 64, "J": 32, "K": 128}
# Per kind: the text, {} for each sharding that is drawn, ‹name› for each that is free; and the dims of those.
KINDS = {
    "carried": (
        "x‹a› = neg(A[I, J]{}); for L {{ x‹x› = relu(x · W[L, J, K]{} · V[L, K, J]{}) }}; S[I, J]{} = neg(x)",
        {"a": "IJ", "x": "IJ"},
    ),
    "an intermediate": (
        "for L {{ T‹t› = x[I, J]{} · W[L, J, K]{}; x‹x› = T · V[L, K, J]{} }}; S[I, J]{} = neg(x)",
        {"t": "IK", "x": "IJ"},
    ),
    "used twice": (
        "for L {{ y‹y› = relu(x[I, J]{}); x‹x› = y + square(y) · V[J, K]{} · Z[K, J]{} }}; S[I, J]{} = neg(x)",
        {"y": "IJ", "x": "IJ"},
    ),
    "stacked": (
        "for L {{ H[L, I, K]‹› = A[I, J]{} · W[L, J, K]{} }}; S[I, K]{} = sum_L(H)",
        {},
    ),
    "fixed": (
        "B‹b› = neg(A[I, J]{}); for L {{ x‹x› = x[I, K]{} + B · W[J, K]{} }}; S[I, K]{} = relu(x)",
        {"b": "IJ", "x": "IK"},
    ),
    "fixed, and used before": (
        "Q[I, K]{} = A[I, J]{} · B[J, K]{}; for L {{ x‹x› = x[I, K]{} + A · B }}; S[I, K]{} = x + Q",
        {"x": "IK"},
    ),
    "loops in a loop": (
        "for L {{ for M {{ x‹x› = relu(x[I, J]{} · W[L, M, J, K]{} · V[L, K, J]{}) }}; R[L, I]{} = sum_J(x) }}; "
        "S[I, J]{} = neg(x); Q = sum_L(R)",
        {"x": "IJ"},
    ),
    "accumulated": (
        "G‹g› = neg(C[I, K]{}); for L {{ G‹x› = G + A[L, I, J_X] · B[L, J_X, K] }}; S[I, K]{} = neg(G)",
        {"g": "IK", "x": "IK"},
    ),
    "accumulated of two": (
        "G = neg(C[I, K]{}); for L {{ G‹x› = (A[L, I, J_X] · B[L, J_X, K] + G) - x[I, K]{}; x = x[I, K] ⊙ 0.5 }}; "
        "S[I, K]{} = neg(G)",
        {"x": "IK"},
    ),
    "a sum": (
        "for L {{ T‹t› = A[L, I, J]{} · B[L, J, K]{}; G[I, K] = G[I, K] + T }}; S[I, K]{} = neg(G)",
        {"t": "IK"},
    ),
}


@st.composite
def cases(draw, meshes=({"X": 2}, {"X": 4}, {"X": 2, "Y": 2})):
    kind = draw(st.sampled_from(sorted(KINDS)))
    text, free = KINDS[kind]
    mesh = Mesh.of({"X": 4} if len(free) > 1 else draw(st.sampled_from(meshes)))
    parts = text.replace("{{", "⟨").replace("}}", "⟩").split("{}")
    done = parts[0]
    for part in parts[1:]:
        head, _, dims = done.rpartition("[")
        names = tuple(dims.removesuffix("]").split(", "))
        own = tuple(name for name in names if name not in "LM")
        spelled = spell(own, draw(shardings(mesh, len(own), unreduced=False)))
        rows = "".join(f"{name}, " for name in names if name in "LM")
        done = head + spelled.replace("[", "[" + rows, 1) + part
    text = done.replace("⟨", "{").replace("⟩", "}")
    trips = draw(st.integers(1, 3))
    return mesh, trips, text, {name: tuple(dims) for name, dims in free.items()}


def with_choice(text, chosen):
    for name, spelled in chosen.items():
        text = text.replace(f"‹{name}›", spelled)
    return text.replace("‹›", "")


def free_text(text, free):
    return with_choice(text, dict.fromkeys(free, ""))


def each_choice(text, free, mesh):
    options = [[spell(dims, lies) for lies in all_shardings(mesh, len(dims))] for dims in free.values()]
    for chosen in product(*options):
        yield with_choice(text, dict(zip(free, chosen, strict=True)))


def parsed(text, mesh, trips):
    text = text.replace("{ ", "{\n").replace(" }", "\n}")
    dims = {dim: size for dim, size in SIZES.items() if dim in text} | {"L": trips}
    dims |= {"M": 2} if "M" in text else {}
    return shardc.parse(text, mesh=dict(mesh.axes), dims=dims, dtype="bf16")


def model_of(mesh):
    return LinkModel.of(mesh, CHIPS["v5p"])


def least_of_all(text, free, mesh, trips, objective):
    prices = []
    for choice in each_choice(text, free, mesh):
        try:
            planned = planned_at_once(parsed(choice, mesh, trips), model_of(mesh), objective, Options(masks=True))
            prices.append(planned.price(objective))
        except ShardcError:
            continue  # nothing leads there
    return objective.first(min(prices))


def assert_no_choice_is_cheaper(case, objective):
    mesh, trips, text, free = case
    program = parsed(free_text(text, free), mesh, trips)
    found = plan_program(program, model_of(mesh), objective)
    assert objective.first(found.price(objective)) <= least_of_all(text, free, mesh, trips, objective)
    assert_means_the_program(found.schedule)


@settings(max_examples=6, deadline=None)
@given(cases(), st.sampled_from(Objective))
def test_no_choice_of_what_a_loop_leaves_free_is_cheaper(case, objective):
    assert_no_choice_is_cheaper(case, objective)


@pytest.mark.exhaustive
@settings(max_examples=15, deadline=None)
@given(cases(), st.sampled_from(Objective))
def test_no_choice_of_what_a_loop_leaves_free_is_cheaper_over_more(case, objective):
    assert_no_choice_is_cheaper(case, objective)


@pytest.mark.instant
@settings(max_examples=15, deadline=None)
@given(st.data(), st.sampled_from(Objective), st.sampled_from([1, 3, 8]))
def test_in_turn_a_loop_is_chosen_by_what_it_costs(data, objective, trips):
    """Where it carries x: brought there once, read in two shardings in each trip, and left there."""
    mesh, prices = Mesh.of({"X": 4}), []
    x, y, z = (spell("IJ", data.draw(shardings(mesh, 2, unreduced=False))) for _ in range(3))
    text = f"for L {{ T{y} = neg(x{x}); R{z} = relu(x); x = T[I, J] - R }}"

    def noted(loop, trip):
        prices.append(priced(loop, trip))
        return prices[-1]

    priced = _Looped._price
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Looped, "_price", noted)
        found = planned_at_once(parsed(text, mesh, trips), model_of(mesh), objective).price(objective)
    chosen, spent = (objective.measures(price) for price in (min(prices), found))
    assert chosen[1] == spent[1] and abs(chosen[0] - spent[0]) <= 4 * trips  # steps, each a picosecond up or down


def test_what_is_carried_may_be_moved_to_where_it_lies():
    """An inner loop stacks what it carries before it binds it anew from both: SHC900 before."""
    text = """for -L {
        y[B, D] = x[B, D]
        s[B_?, D_?] = bf16((0 ⊙ index_B) · (1 + 0 ⊙ index_D))
        for -M { H[M, B, D] = s; t[B_?, D_?] = s + y; s[B_?, D_?] = t }
        Z[L, B, D] = s
        G[M_?, B_?, D_?] = G[M, B, D] + H
        x[B_?, D_?] = y
    }"""
    plan = shardc.plan(text, mesh={"X": 2}, dims={"B": 8, "D": 16, "L": 4, "M": 3})
    assert plan.prove().holds
