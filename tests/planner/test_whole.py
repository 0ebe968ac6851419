"""A program's plan against every choice of its free shardings, and against the same text in other statements."""

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
from shardc.testing import shardings
from shardc.testing.oracles import all_shardings

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program

MESHES = ({"X": 2}, {"X": 4}, {"X": 2, "Y": 2})
SIZES = {"I": 64, "J": 32, "K": 128, "L": 16, "M": 256}
# Per kind: its lines, {} for each sharding that is drawn; and the arrays that it leaves free.
KINDS = {
    "two consumers": (
        "T = A[I, J]{} · B[J, K]{}; S[I, L]{} = T · C[K, L]{}; R[I, M]{} = T · D[K, M]{}",
        {"T": "IK"},
    ),
    "a function": ("T = A[I, J]{} · B[J, K]{}; S[I, K]{} = relu(T)", {"T": "IK"}),
    "a product of a function": (
        "T = A[I, J]{} · B[J, K]{}; H = gelu(T); S[I, L]{} = H · C[K, L]{}",
        {"T": "IK", "H": "IK"},
    ),
    "a sum of products": (
        "T = A[I, J]{} · B[J, K]{}; V = C[I, L]{} · D[L, K]{}; S[I, K]{} = T + V",
        {"T": "IK", "V": "IK"},
    ),
    "a residual": ("T = A[I, J]{} · B[J, J2]{}; S[I, J2]{} = relu(T) - T", {"T": "IJ2"}),
    "an open input": ("T = A[I_?, J_?] · B[J, K]{}; S[I, L]{} = T · C[K, L]{}", {"A": "IJ", "T": "IK"}),
}


def model_of(mesh):
    return LinkModel.of(mesh, CHIPS["v5p"])


def parsed(text, mesh, dims=SIZES):
    return shardc.parse(text, mesh=dict(mesh.axes), dims={d: n for d, n in dims.items() if d in text}, dtype="bf16")


def drawn_text(draw, mesh, kind):
    """The lines with a sharding in each bracket that is to have one."""
    text, free = KINDS[kind]
    text = text.replace("J2", "L") if kind == "a residual" else text
    parts = text.split("{}")
    done = parts[0]
    for part in parts[1:]:
        head, _, dims = done.rpartition("[")
        names = tuple(dims.removesuffix("]").split(", "))
        done = head + spell(names, draw(shardings(mesh, len(names), unreduced=False))) + part
    return done, {name: tuple(dims.replace("J2", "L")) for name, dims in free.items()}


@st.composite
def cases(draw, meshes=MESHES, kinds=tuple(KINDS)):
    mesh = Mesh.of(draw(st.sampled_from(meshes)))
    kind = draw(st.sampled_from(kinds))
    if kind in ("a product of a function", "a sum of products", "an open input"):
        mesh = Mesh.of({"X": 4})  # two free arrays: 4 · 4 choices on one axis
    return mesh, *drawn_text(draw, mesh, kind)


def each_choice(text, free, mesh):
    """The text with every choice of shardings for what it leaves free."""
    options = [[spell(dims, lies) for lies in all_shardings(mesh, len(dims))] for dims in free.values()]
    for chosen in product(*options):
        found = text
        for (name, dims), lies in zip(free.items(), chosen, strict=True):
            found = found.replace(f"{name}[{', '.join(dim + '_?' for dim in dims)}]", name + lies)
            found = found.replace(f"{name} = ", f"{name}{lies} = ", 1)
        yield found


def least_of_all(text, free, mesh, objective, dims=SIZES):
    """The price of the cheapest choice, each planned statement by statement."""
    found = []
    for choice in each_choice(text, free, mesh):
        try:
            planned = planned_at_once(parsed(choice, mesh, dims), model_of(mesh), objective)
        except ShardcError:
            continue  # nothing leads there
        found.append(planned.price(objective))
    return min(found)


def first(price, objective):
    return objective.first(price)


@settings(max_examples=25, deadline=None)
@given(cases(), st.sampled_from(Objective))
def test_no_choice_of_the_free_shardings_is_cheaper(case, objective):
    mesh, text, free = case
    planned = plan_program(parsed(text, mesh), model_of(mesh), objective)
    assert first(planned.price(objective), objective) <= first(least_of_all(text, free, mesh, objective), objective)
    assert planned.bound_bytes <= planned.cost.wire_bytes
    assert_means_the_program(planned.schedule)


@settings(max_examples=25, deadline=None)
@given(cases(), st.sampled_from(Objective))
def test_a_plan_is_never_dearer_than_statement_by_statement(case, objective):
    mesh, text, _ = case
    program, model = parsed(text, mesh), model_of(mesh)
    in_turn = planned_at_once(program, model, objective)
    assert plan_program(program, model, objective).price(objective) <= in_turn.price(objective)


def test_the_oracle_finds_plans_that_planning_in_turn_misses():
    mesh = Mesh.of({"X": 4})
    text = "T = A[I, J_X] · B[J_X, K]; V = C[I, L_X] · D[L_X, K]; S[I_X, K] = T + V"
    dims = {"I": 64, "J": 512, "K": 64, "L": 512}
    found = least_of_all(text, {"T": "IK", "V": "IK"}, mesh, Objective.BYTES, dims)
    in_turn = planned_at_once(parsed(text, mesh, dims), model_of(mesh), Objective.BYTES)
    assert Objective.BYTES.first(found) * 2 <= in_turn.cost.wire_bytes


@pytest.mark.parametrize(
    ("text", "ops"),
    [
        (
            "T = A[I, J_X] · B[J_X, K]; V = C[I, L_X] · D[L_X, K]; S[I_X, K] = T + V",
            ["Einsum", "Einsum", "add", "ReduceScatter"],
        ),
        ("Q[I, K_X] = A[I_X, J] · B[J, K_X]; R[I, M_X] = A · D[J, M_X]", ["AllGather", "Einsum", "Einsum"]),
    ],
)
def test_what_the_plan_is_told_by(text, ops):
    """Steps and statements are those of the text: a sum that was put off, a gather that serves two."""
    sizes = {"I": 2048, "J": 2048, "K": 2048, "L": 2048, "M": 2048}
    found = shardc.plan(text, mesh={"X": 4}, dims={d: n for d, n in sizes.items() if d in text})
    assert [step.op for step in found.steps] == ops
    assert [statement.text for statement in found.statements] == [part.strip() for part in text.split(";")]
    for number, statement in enumerate(found.statements):
        mine = [step.op for step in found.steps if step.statement == number]
        own, *others = statement.cheapest(3)
        assert [step.op for step in own.steps] == mine
        assert all(other.time_s >= own.time_s for other in others)
