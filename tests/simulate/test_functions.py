"""Every function, in every sharding of its operands and its result: what the plan's steps leave is what NumPy says."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc import simulate
from shardc.ir.functions import FUNCTIONS, MADE_OF_NONE
from shardc.ir.legal import faults_of
from shardc.notation import print_program

MESH = {"X": 2, "Y": 2}
DIMS = {"I": 4, "J": 8}
LAWS = settings(max_examples=5, deadline=None, derandomize=True)
PLACED = ("[I, J]", "[I_X, J]", "[I, J_X]", "[I_Y, J_X]", "[I_XY, J]", "[I, J_YX]", "[I_X, J_Y]")
ALONG = ("[J]", "[J_X]", "[J_YX]")

PLANNED = ("narrow",)  # no text says it: `planner/test_chunked.py` has it in loops
# What is said of A and B, both [I, J]; of V, [J]; and of M, which is true or false.
ELEMENTWISE = {
    **{
        name: f"{name}(A)"
        for name, row in FUNCTIONS.items()
        if row.arity == 1 and not row.over_dims and not row.truths and name not in (*MADE_OF_NONE, *PLANNED)
    },
    "add": "A + B",
    "sub": "A - V",
    "mul": "2.5 · A",
    "div": "A / B",
    "maximum": "maximum(A, V)",
    "minimum": "minimum(A, 0.25)",
    "less": "f32(A < B)",
    "less_equal": "f32(V <= A)",
    "greater": "f32(A > 0.5)",
    "greater_equal": "f32(A >= V)",
    "equal": "f32(A == B)",
    "not_equal": "f32(A != A)",
    "and": "f32(and(M, A > B))",
    "or": "f32(or(M, A > V))",
    "not": "f32(not(M))",
    "where": "where(M, A, -1)",
    "index": "where(index_J >= 2 * index_I, A, V)",
    "cast": "f32(int32(3 · A))",
    "again": "again(A)",
    "widen": "f32(bf16(A)) + A",
    "numbers": "(1 - A) / sqrt(|J|) + 1e-6 ⊙ |I|",
    "over one": "1 / (1 + square(A))",
}


def test_every_function_is_here() -> None:
    others = ("full", *PLANNED)
    by_sign = {name for name, row in FUNCTIONS.items() if not row.over_dims and name not in others} | {"index"}
    assert by_sign <= ELEMENTWISE.keys()


def inputs(program: shardc.Program, seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    shapes = [(array, program.shape(array.dims)) for array in program.inputs]
    return [
        generator.integers(0, 2, shape) if array.dtype.name == "bool" else generator.integers(1, 17, shape) / 8
        for array, shape in shapes
    ]


def held(expression: str, places: list[str], along: str) -> str:
    """The expression with its arrays' shardings, each at its first use."""
    given = {"A": f"A{places[0]}", "B": f"B{places[1]}", "M": f"M: bool{places[2]}", "V": f"V{along}"}
    for name, spelled in given.items():
        expression = re.sub(rf"\b{name}\b(?!:)", spelled, expression, count=1)
    return expression


def check(text: str, seed: int) -> None:
    plan = shardc.plan(text, mesh=MESH, dims=DIMS)
    program, schedule = plan.schedule.program, plan.schedule
    assert not list(faults_of(schedule))
    wholes = inputs(program, seed)
    for number, found, whole in zip(
        schedule.outputs, simulate.run(schedule, wholes), simulate.reference(program, wholes), strict=True
    ):
        array = schedule.values[number]
        wanted = simulate.wanted(whole, array, schedule.mesh)
        np.testing.assert_allclose(simulate.summed(found, array, schedule.mesh), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ELEMENTWISE)
@LAWS
@given(st.lists(st.sampled_from(PLACED), min_size=4, max_size=4), st.sampled_from(ALONG), st.integers(0, 9))
def test_elementwise(name: str, places: list[str], along: str, seed: int) -> None:
    check(f"dtype f32; {held(ELEMENTWISE[name], places, along)} → C{places[3]}", seed)


@pytest.mark.parametrize(
    "positions",
    [
        "index_I - index_J",
        "abs(index_J - 2 ⊙ index_I)",
        "(index_I + index_J) ⊙ (index_J - index_I)",
        "index_J / (1 + index_I)",
    ],
)
@LAWS
@given(st.sampled_from(PLACED), st.sampled_from(PLACED), st.integers(0, 9))
def test_positions_are_met_each_with_each(positions: str, given: str, after: str, seed: int) -> None:
    check(f"dtype f32; {positions} → C{after}", seed)
    check(f"dtype f32; where({positions} < 2, A{given}, 0) → C{after}", seed)


LINEAR = {
    "{A} / 3 → C{C}": 1,
    "2 · {A} → C{C}": 1,
    "-{A} / |J| → C{C}": 1,
    "where(M: bool[I, J], {A}, 0) → C{C}": 1,
    "where(index_I >= index_J, {A}, {B}) → C{C}": 2,
    "{A} / V[J] → C{C}": 1,
    "{A} + 2 ⊙ {B} → C{C}": 2,
    "f64({A}) → C{C}": 1,
}


@pytest.mark.parametrize("text", LINEAR)
@pytest.mark.parametrize("after", ["[I, J]{U_X}", "[I_X, J]", "[I, J]"])
def test_linear_ones_pass_partial_sums_on(text: str, after: str) -> None:
    spelled = text.replace("{A}", "A[I, J]{U_X}").replace("{B}", "B[I, J]{U_X}").replace("{C}", after)
    check(f"dtype f32; {spelled}", 0)
    plan = shardc.plan(f"dtype f32; {spelled}", mesh=MESH, dims=DIMS)
    reductions = [step.name for step in plan.schedule.steps if step.is_collective]
    assert len(reductions) == (0 if "U" in after else 1)


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "A[I]{U_X} + 1 → C[I]{U_X}",
        "where(M: bool[I], A[I]{U_X}, 1) → C[I]{U_X}",
        "2 / A[I]{U_X} → C[I]{U_X}",
        "maximum(A[I]{U_X}, B[I]) → C[I]{U_X}",
        "A[I]{U_X} > 0 → C[I]",
        "bf16(A: f32[I]{U_X}) → C[I]{U_X}",
        "int32(A[I]{U_X}) → C[I]{U_X}",
    ],
)
def test_others_refuse_them(text: str) -> None:
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.parse(text, mesh=MESH)
    assert caught.value.code == "SHC212"


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("A: int8[I] + 1 → C[I]", "int8"),
        ("A: int8[I] + 1.0 → C[I]", "f32"),
        ("A: int8[I] / 2 → C[I]", "f32"),
        ("A: int32[I] / B: int32[I] → C[I]", "f32"),
        ("A: int32[I] / B: bf16[I] → C[I]", "bf16"),
        ("A: bf16[I] ⊙ 1e-6 → C[I]", "bf16"),
        ("A: bf16[I] - B: f32[I] → C[I]", "f32"),
        ("A: f16[I] + B: bf16[I] → C[I]", "f32"),
        ("maximum(A: int8[I], 0) → C[I]", "int8"),
        ("A: int8[I] > 0 → C[I]", "bool"),
        ("where(A: bf16[I] > 0, A, -inf) → C[I]", "bf16"),
        ("where(A: bf16[I] > 0, 1, 0) → C[I]", "int32"),
        ("where(A: bf16[I] > 0, 1.0, 0) → C[I]", "f32"),
        ("where(A: bf16[I] > 0, B: int8[I], -inf) → C[I]", "f32"),
        ("mean_I(A: int8[I]) → C[]", "f32"),
        ("mean_I(A: bf16[I]) → C[]", "bf16"),
        ("index_I → C[I]", "int32"),
        ("index_I / |I| → C[I]", "f32"),
        ("f32(A: bf16[I]) ⊙ A → C[I]", "f32"),
    ],
)
def test_types_are_those_of_jax(text: str, dtype: str) -> None:
    assert str(shardc.parse(text).statements[-1].dtype) == dtype


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1/3 * 3 ⊙ A[I] → C[I]", 1.0),
        ("A[I] * (0.1 + 0.2 - 0.3) → C[I]", 0.0),
        ("A[I] * (2 * 3) → C[I]", 6),
        ("A[I] / sqrt(|I|) → C[I]", 8.0),
        ("A[I] / sqrt(2) → C[I]", 2**0.5),
        ("A[I] * (|I| - 1) → C[I]", 63),
        ("A[I] * -inf → C[I]", -np.inf),
        ("A[I] * exp(1) → C[I]", float(np.e)),
        ("A[I] * square(square(square(square(1e200)))) → C[I]", np.inf),
        ("A[I] * maximum(2, 3.5) → C[I]", 3.5),
        ("A[I] * log(0) → C[I]", -np.inf),
    ],
)
def test_numbers_are_folded_exactly(text: str, number: float) -> None:
    plan = shardc.plan(text, dims={"I": 64})
    found = next(each for each in plan.schedule.steps[0].op.numbers if each is not None)
    assert found == number and type(found) is type(number)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "code", "held_by"),
    [
        ("A[I] / (1 - 1) → C[I]; A / 0 → D[I]; (1 / 0) · A → E[I]", "SHC108", "/"),
        ("sqrt(-1) · A[I] → C[I]", "SHC108", "sqrt"),
        ("A[I] / |Q| → C[I]", "SHC210", "|Q|"),
        ("A[I] < B[I] < D[I] → C[I]", "SHC101", "<"),
        ("A: int8[I] + 300 → C[I]", "SHC214", "A: int8[I] + 300"),
        ("A: uint8[I] + -1 → C[I]", "SHC214", "A: uint8[I] + -1"),
        ("where(A[I], A, 0) → C[I]", "SHC214", "A[I]"),
        ("where(A[I] > 0, A) → C[I]", "SHC222", "where"),
        ("max(A[I], B[I]) → C[I]", "SHC222", "max"),
        ("f32(2) · A[I] → C[I]", "SHC214", "f32(2)"),
        ("f32(A[I], B[I]) → C[I]", "SHC222", "f32"),
        ("2 + 3 → C", "SHC222", "2 + 3"),
        ("sum_I(2) → C[]", "SHC222", "2"),
        ("index_I ·_I 2 → C[]", "SHC210", "·_I"),
        ("1.5.2 · A[I] → C[I]", "SHC108", "1.5.2"),
        ("01 · A[I] → C[I]", "SHC108", "01"),
        ("1e9999 · A[I] → C[I]", "SHC108", "1e9999"),
        ("A[I] → index_I", "SHC107", "index_I"),
        ("A[I] / B[J] → C[I, J]", "SHC210", "/"),
    ],
)
def test_misuse_is_refused_where_it_stands(text: str, code: str, held_by: str) -> None:
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.parse(text, mesh=MESH)
    assert caught.value.code == code, caught.value.render()
    assert caught.value.span is not None and caught.value.span.text == held_by, caught.value.render()


def test_a_size_too_large_for_the_type() -> None:
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.plan("A: int8[I] + |I| → C[I]", dims={"I": 4096})
    assert caught.value.code == "SHC214" and "4096" in caught.value.message


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        *(f"dtype f32; {held(text, [*PLACED], '[J]')} → C[I, J]" for text in ELEMENTWISE.values()),
        "mean_{I,J}(A[I, J]) + logsumexp_{I,J}(A) → C[]",
        "(A[I, J] + 1) · (B[J, K] / 2 - 1e-6) → C[I, K]",
        "2 · A[I, J] ·_J (3 ⊙ B[J, K]) / |K| → C[I, K]",
        "-(A[I, J] + 1) + B[J] - (2 - B) → C[I, J]",
        "bf16(sum_J(f32(A[I, J] ⊙ A))) → C[I]",
        "A[I, J] / (B[J] / 2) / 3 → C[I, J]",
        "where(not(A[I] > 1), 1, 0) → C[I]",
    ],
)
def test_a_program_without_its_text_is_spelled_and_parsed_to_the_same(text: str) -> None:
    program = shardc.parse(text, mesh=MESH)
    bare = replace(program, statements=tuple(replace(statement, text="") for statement in program.statements))
    again = shardc.parse(print_program(bare))
    assert [statement.expr for statement in again.statements] == [statement.expr for statement in program.statements]
