"""Where nothing could have failed, no result is called equal: those of quite other inputs never are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc import simulate
from shardc.machines.comparison import Verdict, report_of
from shardc.simulate.telling import reached
from shardc.testing import programs

sys.path.insert(0, str(Path(__file__).parent))
from as_held import Nearest, held

MESH = {"X": 2, "Y": 2}
SIZES = {"I": 64, "J": 64, "K": 4}
MADE = ["A[I, J_X] · B[J_X]", "sum_J(A[I, J_X])", "A[I_X]", "max_J(A[I, J_X] ⊙ B[J])"]
DEAD = [  # of anything about 1 in size
    "relu({} - 1000)",
    "sqrt({} - 1000)",
    "exp({} + 1000)",
    "log(-1 - square({}))",
    "relu(-square({}))",
    "sigmoid({} + 1000)",
    "tanh({} - 1000)",
    "({}) > 1000",
    "where(({}) > 1000, 1, 0)",
    "0 / relu({} - 1000)",
    "where(index_I > 7, relu({} - 1000), -inf)",
    "f32(index_I) + sigmoid({} + 1000)",
    "int32({}) ⊙ 0",
]


def report(plan, seed, of=None):
    """The report of a run of the plan's steps that rounds to the nearest; `of`: on inputs of that seed in fact."""
    schedule = plan.schedule
    found = simulate.run(
        schedule, simulate.sample_inputs(schedule.program, seed if of is None else of), coins=Nearest()
    )
    arrays = [schedule.values[number] for number in schedule.outputs]
    results = [held(blocks, array, schedule.mesh) for blocks, array in zip(found, arrays, strict=True)]
    return report_of(schedule, simulate.sample_inputs(schedule.program, seed), results)


@pytest.mark.filterwarnings("error")
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(DEAD), st.sampled_from(MADE), st.sampled_from(["f32", "bf16", "f16"]), st.integers(0, 9))
def test_what_is_the_same_of_any_inputs_is_not_checkable_and_nothing_is_warned_of(dead, made, dtype, seed):
    plan = shardc.plan(f"C[I] = {dead.format(made)}", mesh=MESH, dims=SIZES, dtype=dtype)
    for each in (report(plan, seed), report(plan, seed, of=seed + 100)):
        (output,) = each.outputs
        assert output.verdict is Verdict.NOT_CHECKABLE and output.reason, (plan.program, each)
        json.dumps(each.to_json(), allow_nan=False)


BESIDE = [  # each would have A larger, or smaller
    "index_J / |J| - A[I, J_X]",
    "index_J - A[I, J_X]",
    "64 · A[I, J_X] - V[J]",
    "A[I, J_X] - V[J] / 1000",
    "mean_J(A[I, J_X])",
    "sum_J(square(A[I, J_X]))",
    "A[I, J_X] · W[J_X, K]",
]
TURNED = [  # at a size of A, as each other value is no result of it at another
    "int8(3 · A) + 1",
    "int32(A)",
    "floor(A)",
    "A < 1",
    "A > 0.5",
    "or(A > 1, A < -1)",
    "where(A > 1, A, 0)",
    "maximum(A, 0.5)",
    "minimum(A, -0.5)",
]


@pytest.mark.instant
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("turned", TURNED)
def test_what_is_turned_at_a_size_is_told_whatever_is_beside_it(turned, beside):
    """Inputs are as large as that: else all were on one side, and the steps had nothing to do wrong."""
    program = shardc.parse(
        f"R = {beside}; C[I, J_X] = {turned}", mesh=MESH, dims={"I": 8, "J": 16, "K": 4}, dtype="f32"
    )
    schedule = shardc.plan(program).schedule
    expected = simulate.reference(schedule.program, simulate.sample_inputs(schedule.program))
    assert simulate.untold(schedule, expected, [None, None], [False, True]) == [None, None]


@settings(max_examples=40, deadline=None)
@given(programs(), st.sampled_from(["f32", "bf16"]), st.integers(0, 9), st.sampled_from(["{}", *DEAD]))
def test_results_of_other_inputs_are_never_called_equal(case, dtype, seed, dead):
    """Of drawn programs, as they are and with an end that may leave nothing of them."""
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype=dtype)
    (*_, last) = plan.program.results
    if dead != "{}" and "int" not in dead and "index" not in dead:
        ended = f"{case.text}\nEnd[{', '.join(last.dims)}] = {dead.format(last.name)}"
        plan = shardc.plan(ended, mesh=case.mesh, dims=case.dims, dtype=dtype)
    for output, goes_in in zip(report(plan, seed, of=seed + 100).outputs, reached(plan.program), strict=True):
        assert not goes_in or output.verdict is not Verdict.EQUAL, (plan.program, output)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("C[I_X] = 3", "f32"),
        ("C[I_X, J] = where(index_I >= index_J, 0, -inf)", "f32"),
        ("C[I_X, J] = index_I >= 1000 + index_J", "f32"),
        ("C[I_X] = f32(index_I) / 0", "f32"),
        ("C[I, K] = A[I, J_X] · B[J_X, K]", "int32"),
        ("C[J] = max_I(A[I_X, J])", "int32"),
        ("C[J] = max_I(A[I_X, J])", "bf16"),
        ("C[] = sum_IJ(A[I_X, J])", "f32"),
        ("C[] = (A[I_X, J] · B[J, I_X]) > 0", "f32"),
        ("C[I_X] = A[I, J_X] · B[J_X] > 3", "f32"),
        ("C[I_X, J] = relu(A[I_X, J] - 2)", "f32"),
        ("A[I_X] → A[I]", "bool"),
        ("for L { c[I_X] = 2; x = x[I_X] + c; H[L, I_X] = c }", "f32"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_what_no_input_goes_into_and_what_is_exact_stays_equal(text, dtype, seed):
    plan = shardc.plan(text, mesh=MESH, dims=SIZES | {"L": 2}, dtype=dtype)
    assert report(plan, seed).verdict is Verdict.EQUAL, report(plan, seed)


@pytest.mark.parametrize(
    ("text", "is_said"),
    [
        ("C[I] = A[I, J_X] · B[J_X] > 0", True),
        ("C[I, K] = f32(A[I, J_X] · B[J_X, K] > 0)", True),
        ("p[I, K] = A[I, J_X] · B[J_X, K]; C[I, K] = p == max_K(p)", True),
        ("C[I, K] = sign(A[I, J_X] · B[J_X, K])", True),  # 0 of some
        ("C[I] = A[I, J_X] · B[J_X] > 3", False),
        ("C[I_X] = index_I > 3", False),
        ("C[I_X] = min_J(A[I_X, J])", False),
        ("C[I] = relu(A[I_X])", False),
    ],
)
def test_of_few_values_it_is_said_that_no_factor_would_show(text, is_said):
    plan = shardc.plan(text, mesh=MESH, dims=SIZES, dtype="f32")
    (output,) = report(plan, 0).outputs
    assert output.verdict is Verdict.EQUAL and ("off by a factor" in (output.reason or "")) is is_said, output


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "goes_in"),
    [
        ("C[I] = 3; D[I] = A[I_X] + C", [True]),
        ("D[I] = A[I_X]; C[I] = 3", [True, False]),
        ("for L { c[I_X] = 2; x = x[I_X] + c; H[L, I_X] = c }", [True, False]),
        ("p[I] = 0; q[I] = 1; for L { H[L, I] = p + 1; p = q; q = x[I_X] }", [True, True, True]),
    ],
)
def test_what_inputs_go_into_is_known_through_loops_and_names_that_are_bound_again(text, goes_in):
    plan = shardc.plan(text, mesh=MESH, dims=SIZES | {"L": 2}, dtype="f32")
    assert reached(plan.program) == goes_in
