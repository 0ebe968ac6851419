"""`inputs_of`, which says what a text is given before its sizes are known, says what the whole reading does."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh
from shardc.notation import inputs_of, parse
from shardc.testing import Case, loops
from shardc.testing.strategies import matmuls, programs, reshards

DATA, EXAMPLES = (Path(__file__).parents[1] / "data", Path(__file__).parents[2] / "examples")
GOLDEN = json.loads((DATA / "notation.json").read_text(encoding="utf-8"))
BOOKS = [each for each in GOLDEN if isinstance(each.get("text"), str) and each.get("mesh")]


def same(text, mesh):
    """The names, dims, shardings and places; types are not known yet."""
    try:
        whole = parse(text, mesh=mesh).inputs
    except ShardcError:
        return
    found = [(array.name, array.dims, array.pattern, array.span) for array in inputs_of(text, mesh)]
    assert found == [(array.name, array.dims, array.pattern, array.span) for array in whole]


@pytest.mark.instant
@given(matmuls(), programs())
def test_inputs_of_random_programs(product, several):
    for case in (product, several):
        same(case.text, case.mesh)


@pytest.mark.instant
@given(reshards())
def test_inputs_of_random_reshards(case):
    same(case.text, case.mesh)


def test_inputs_of_what_the_books_write():
    for each in BOOKS:
        same(each["text"], Mesh.of(each["mesh"]))


@pytest.mark.instant
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.shard")), ids=lambda path: path.stem)
def test_inputs_of_the_examples(path):
    text = path.read_text(encoding="utf-8")
    same(text, parse(text).mesh)


XY = Mesh.of({"X": 4, "Y": 2})


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "x[B_X, T] · x[B_X, S] → y[B, T, S]",  # named anew: one input
        "A = A[I_X, J]; B = A · C[J, K]",  # bound again to itself, then used
        "T = relu(A[I, J]); U = T · T[I, K]; V = U + A",
        "[A_X, B] → [A, B]",
        "dims L=3; for L { x = x[B_X, D] · W[L, D, D'] }; y = x · V[D, F]",
        "where(index_I >= 2, A[I, J_XY], B[J]) → C[I, J]",
    ],
)
def test_inputs_where_names_are_used_again(text):
    same(text, XY)


@pytest.mark.instant
@pytest.mark.parametrize("text", ["A[IX, J] → A[I, J]", "A[I_Z, J] → A[I, J]", "A[I_X, J_X] → A[I, J]", "A → B[I]"])
def test_what_is_wrong_with_an_input_is_told_as_the_whole_reading_tells_it(text):
    raised = []
    for read in (inputs_of, lambda text, mesh: parse(text, mesh=mesh)):
        with pytest.raises(ShardcError) as caught:
            read(text, XY)
        raised.append((caught.value.code, caught.value.message, caught.value.span))
    assert raised[0] == raised[1]


@pytest.mark.parametrize(
    "inner", ["x = relu(x[B_X, D] · W[L, D, E] ·_E V[E, D])", "for M { x = x[B_X, D] + W[L, M, D] }"]
)
def test_how_often_a_loop_goes_round_an_array_says(inner):
    """So that it need not be declared, as no other size does; and where no array says it, that is told."""
    text, mesh = f"for L {{ {inner} }}", Mesh.of({"X": 2})
    assert inputs_of(text, mesh) == inputs_of(f"dims L=3, M=5; {text}", mesh)
    with pytest.raises(ShardcError, match="whose size is not known"):
        parse(text, mesh=mesh)


TYPED = "for L {{ x[B] = x[B] + V[L, B] ⊙ {} }}"


@given(loops(), st.sampled_from(["f32", "bf16"]))
@example(Case("T[L_X, B] = tanh(V[L, B]); for L { x[B] = x[B] ⊙ T }", Mesh.of({"X": 2}), {"L": 4, "B": 3}), "f32")
@example(Case(TYPED.format("f32(index_L)"), Mesh.of({"X": 2}), {"L": 4, "B": 3}), "f32")
@example(Case("for L { m[B] = and(m[B], V[L_X, B]) }; return m", Mesh.of({"X": 2}), {"L": 4, "B": 3}), "bool")
def test_inputs_of_loops_are_those_of_the_whole_reading(case, dtype):
    """Whatever axes lie along the dim of a loop elsewhere, and of whatever types its arrays are."""
    try:
        whole = parse(case.text, mesh=case.mesh, dims=case.dims, dtype=dtype)
    except ShardcError:
        return
    types = [array.dtype.name for array in whole.inputs]
    found = inputs_of(re.sub(r"\bdims [^;]*;", "", case.text), case.mesh, types)
    assert [(each.name, each.dims, each.pattern, each.dtype) for each in found] == [
        (each.name, each.dims, each.pattern, each.dtype) for each in whole.inputs
    ]


def test_an_array_of_each_type_is_known_by_its_own():
    text = "for L { x[B] = where(M[L, B], x[B], f32(n[L])) }; return x"
    found = inputs_of(text, Mesh.of({"X": 2}), ["bool", "f32", "int32"])
    assert [(each.name, each.dtype.name) for each in found] == [("M", "bool"), ("x", "f32"), ("n", "int32")]
