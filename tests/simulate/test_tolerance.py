"""What is allowed of floats: right results are accepted, wrong ones are not, and what cannot be told is said."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc import simulate
from shardc.ir.dtypes import DTYPES
from shardc.ir.functions import FUNCTIONS, NAMED, Gives
from shardc.machines.comparison import Verdict, report_of
from shardc.simulate import Coins
from shardc.simulate.stochastic import Inexact, Precision, quantum_of
from shardc.simulate.tolerance import spread_of
from shardc.testing import programs

sys.path.insert(0, str(Path(__file__).parent))
from as_held import Nearest, held, nearest

MESH = {"X": 2, "Y": 2}
FLOATS = ["bf16", "f16", "f32"]
NUMBERS = st.floats(-1e30, 1e30) | st.floats(-4, 4) | st.integers(-300, 300).map(float)


# Coins


@pytest.mark.instant
@settings(max_examples=200)
@given(NUMBERS, st.sampled_from(FLOATS))
@example(65519.0, "f16")
@example(1.0 + 2.0**-60, "bf16")
def test_a_value_goes_to_its_neighbours_and_the_mirrored_coin_to_the_other(value, name):
    dtype = DTYPES[name]
    one, other = (float(Coins(7, mirrored).rounded(np.array(value), dtype)) for mirrored in (False, True))
    low, high = sorted([one, other])
    near = float(nearest(np.array(value), dtype))
    assert low <= value <= high or np.isinf(near) or abs(value) > 65504
    if 2.0**-14 <= abs(value) < 65504:
        assert near in (one, other), "the nearest is one of the two"
        assert (one == other) == (value == near), "and what the type holds stays"


def test_each_operation_of_numpy_rounds_and_choosing_does_not():
    precision = Precision(DTYPES["bf16"], DTYPES["f32"], True)
    values = np.linspace(0.1, 3.0, 64).reshape(8, 8)
    x = Inexact.of(Coins(0, False).rounded(values, DTYPES["bf16"]), Coins(1, False), precision)

    def held(found):
        return np.array_equal(np.asarray(found), nearest(np.asarray(found), DTYPES["bf16"]))

    for found in (x * 3.3, x + 0.1, np.exp(x), x / 3, np.where(x > 1, x, 0) * 1.7, x.mean(axis=0), np.sum(x, axis=1)):
        assert isinstance(found, Inexact) and held(found)
    assert np.array_equal(np.maximum(x, 1.0), np.maximum(np.asarray(x), 1.0))
    assert not held(np.asarray(x) * 3.3), "without it nothing rounds"
    product = np.matmul(x, x)  # in the accumulator's type, or nearly
    assert not held(product) and np.allclose(product, np.asarray(x) @ np.asarray(x), rtol=1e-5)


OF_ONE = [row for row in FUNCTIONS.values() if row.arity == 1 and row.name in NAMED]


@pytest.mark.parametrize("name", [row.name for row in OF_ONE if not row.over_dims and row.gives is not Gives.BOOL])
@settings(max_examples=5)
@given(st.floats(-3, 3, width=32), st.sampled_from([{"X": 2}, {"X": 1}, {"X": 3, "Y": 2}]))
def test_a_number_is_rounded_as_an_array_of_one_is(name, value, mesh):
    """What `gelu` loses where it nearly cancels, at −2, it loses in a number as well; once it did in arrays alone."""
    found = []
    for dims in ("", "I"):
        schedule = shardc.plan(f"{name}(A[{dims}]) → T[{dims}]", mesh=mesh, dims={"I": 1}, dtype="f32").schedule
        found.append(
            [simulate.run(schedule, [np.full((1,) * len(dims), value)], coins=Coins(s, False)) for s in range(4)]
        )
    for (of_number,), (of_array,) in zip(*found, strict=True):
        np.testing.assert_array_equal(of_number.reshape(-1), of_array.reshape(-1))


def test_copies_are_rounded_alike():
    plan = shardc.plan("A[I_X, J] · B[J, K] → C[I, K]", mesh=MESH, dims="I=8,J=8,K=8", dtype="bf16")
    wholes = simulate.sample_inputs(plan.program)
    (blocks,) = simulate.run(plan.schedule, wholes, coins=Coins(0, False))
    simulate.gather(blocks, plan.schedule.values[plan.schedule.outputs[0]], plan.schedule.mesh)  # or ReplicaMismatch


# Laws, on plans of drawn programs, run in NumPy as devices would


def tried(plan, seed=0, change=lambda blocks: blocks):
    """The report of a run of the plan's steps that rounds to the nearest, its results changed."""
    schedule = plan.schedule
    wholes = simulate.sample_inputs(schedule.program, seed)
    found = simulate.run(schedule, wholes, coins=Nearest())
    arrays = [schedule.values[number] for number in schedule.outputs]
    results = [held(change(blocks), array, schedule.mesh) for blocks, array in zip(found, arrays, strict=True)]
    return report_of(schedule, wholes, results)


def planned(case, dtype):
    return shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype=dtype, objective="bytes")


@settings(max_examples=25, deadline=None)
@given(programs(), st.sampled_from(FLOATS), st.integers(0, 9))
def test_what_rounds_to_the_nearest_is_never_called_unequal(case, dtype, seed):
    report = tried(planned(case, dtype), seed)
    assert report.verdict is not Verdict.NOT_EQUAL, report


@settings(max_examples=25, deadline=None)
@given(programs(), st.sampled_from(FLOATS), st.integers(0, 9), st.booleans())
def test_what_is_off_by_a_quarter_of_its_spread_is_never_called_equal(case, dtype, seed, alternating):
    """Every element of every shard, up, or up and down in turns."""
    plan = planned(case, dtype)
    exact = simulate.reference(plan.program, simulate.sample_inputs(plan.program, seed))

    def wrong(blocks):
        local = blocks[(0,) * len(plan.schedule.mesh.axes)]
        spread = max(map(spread_of, exact))
        if local.size >= 64:
            spread = max(spread, *map(np.std, blocks.reshape(-1, local.size)))
        signs = 1.0 - 2.0 * (np.arange(local.size).reshape(local.shape) % 2) if alternating else 1.0
        return blocks + spread / 4 * signs

    with np.errstate(all="ignore"):
        report = tried(plan, seed, wrong)
    if all(np.isfinite(whole).all() and spread_of(whole) > 0 for whole in exact):
        assert report.verdict is not Verdict.EQUAL, report


BLOCK = """Qs[B_X, S, E] = x[B_X, S, D] ·_D WQ[D, E]
Ks[B_X, T, E] = y[B_X, T, D] ·_D WK[D, E]
Vs[B_X, T, E] = y ·_D WV[D, E]
Os[B_X, S, E] = softmax_T(Qs ·_E Ks) ·_T Vs
Out[B_X, S, D_Y] = Os ·_E WO[E, D]"""
WIDE = "B=2,S=16,T=16,E=256,D=64"


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_block_with_scores_that_nothing_scales_is_checkable(dtype):
    """Worst-case bounds allow 4.8e21 of it, or infinitely much."""
    plan = shardc.plan(BLOCK, mesh=MESH, dims=WIDE, dtype=dtype)
    (output,) = tried(plan).outputs
    assert output.ok and output.rms_bound * simulate.TOLD_APART <= output.spread
    assert output.bound < 30 * output.rms_bound, "and an element at most a few times what is to be expected"
    constant = BLOCK.replace("Qs ·_E Ks", "(Qs ·_E Ks) - (Qs ·_E Ks)")
    wrong = shardc.plan(constant, mesh=MESH, dims=WIDE, dtype=dtype)
    wholes = simulate.sample_inputs(plan.program)
    (blocks,) = simulate.run(wrong.schedule, wholes, coins=Nearest())
    array = wrong.schedule.values[wrong.schedule.outputs[0]]
    report = report_of(plan.schedule, wholes, [held(blocks, array, wrong.schedule.mesh)])
    assert report.verdict is Verdict.NOT_EQUAL, report


def test_moves_allow_nothing():
    plan = shardc.plan("A[I_X, J] → A[I, J_X]", mesh=MESH, dims="I=8,J=8", dtype="bf16")
    (right,) = tried(plan).outputs
    assert right.ok and right.bound == 0
    assert tried(plan, change=lambda blocks: blocks * (1 + 2**-7)).verdict is Verdict.NOT_EQUAL


@pytest.mark.parametrize(
    ("text", "dtype", "reason"),
    [
        ("C[I] = sum_J(softmax_J(A[I_X, J]))", "bf16", "lie apart by less than 8 times what rounding"),
        ("C[I, J] = exp(exp(exp(A[I_X, J])))", "f16", "a rounding makes values of f16 infinite"),
    ],
)
def test_what_cannot_be_told_apart_is_not_called_equal(text, dtype, reason):
    report = tried(shardc.plan(text, mesh=MESH, dims="I=64,J=64", dtype=dtype))
    assert report.verdict is Verdict.NOT_CHECKABLE and not report.ok
    assert f"NOT CHECKABLE: {reason}" in str(report).replace("values lie", "lie")
    json.dumps(report.to_json(), allow_nan=False)


def test_what_is_not_finite_must_be_so_in_both():
    """And where nothing is finite, being so in both says nothing."""
    for text, right in (("log(relu(A[I_X]))", Verdict.EQUAL), ("log(A[I_X] - A)", Verdict.NOT_CHECKABLE)):
        plan = shardc.plan(f"C[I] = {text}", mesh=MESH, dims="I=8", dtype="f32")
        found = tried(plan)
        assert found.verdict is right
        assert ("tells nothing; each input is drawn by itself" in str(found)) == (right is Verdict.NOT_CHECKABLE)
        assert tried(plan, change=np.zeros_like).verdict is Verdict.NOT_EQUAL


def test_a_result_of_another_type_is_not_equal_and_its_json_is_finite():
    plan = shardc.plan("A[I_X] → A[I]", mesh=MESH, dims="I=8", dtype="bf16")
    wholes = simulate.sample_inputs(plan.program)
    result = SimpleNamespace(shape=(8,), dtype=SimpleNamespace(name="float32"), addressable_shards=[])
    report = report_of(plan.schedule, wholes, [result])
    assert report.verdict is Verdict.NOT_EQUAL and report.max_error is None
    assert "float32" in json.loads(json.dumps(report.to_json(), allow_nan=False))["outputs"][0]["reason"]


ROUTED = """p[T_X, E] = softmax_E(x[T_X, D] · R[D, E]); m[T_X, E] = where(p == max_E(p), p, 0)
h[T_X, E, F] = relu(x · W[E, D, F]); y[T_X, F] = h ·_E m"""


@pytest.mark.parametrize(
    "text, dtype",
    [
        (ROUTED, "f32"),
        (
            ROUTED.replace("x[T_X, D] · R[D, E]", "x[T_X, E]").replace("relu(x · W[E, D, F])", "relu(W[E, T, F])"),
            "bf16",
        ),
        ("for L { m[T, E] = where(x[T, E] == max_E(x), x, 0); x = softmax_E(x + W[L, T, E]); H[L, T, E] = m }", "f32"),
    ],
    ids=["of a product", "of an input", "in a loop"],
)
def test_what_is_routed_to_the_largest_is_checkable(text, dtype):
    """Samples that tie are routed by their rounding: then nothing tells right from wrong."""
    plan = shardc.plan(text, mesh=MESH, dims="T=256,E=8,D=16,F=16,L=3", dtype=dtype)
    wholes = simulate.sample_inputs(plan.program)
    limits = simulate.allowed(plan.schedule, wholes, simulate.reference(plan.program, wholes))
    assert all(limit.checkable.all() for limit in limits)


# Sums that are exact in any order


@pytest.mark.instant
@given(st.integers(-40, 40), st.lists(st.integers(-300, 300), min_size=1, max_size=200))
def test_the_quantum_is_the_largest_power_of_two_that_divides_all(power, numbers):
    found = quantum_of(np.array(numbers) * 2.0**power)
    some = [number for number in numbers if number]
    wanted = 2.0**power * min((number & -number for number in some), default=math.inf)
    assert found == wanted
    assert quantum_of(np.array([*numbers, math.nan])) == quantum_of(np.array([math.inf, *numbers])) == 0


@pytest.mark.instant
@given(st.sampled_from(["f32", "bf16", "f16"]), st.integers(1, 40), st.integers(1, 1 << 13), st.integers(0, 5))
@example("f32", 32, (1 << 24) // 32, 0)
@example("f32", 32, (1 << 24) // 32 + 1, 0)
def test_what_is_exact_in_any_order_is_off_by_nothing_and_else_it_may_be(name, terms, size, seed):
    """Whole numbers whose sum has no more than the bits of the type that sums are in, in which no part has more."""
    precision = Precision(DTYPES["f32"], DTYPES["f32"], False)
    numbers = np.random.default_rng(seed).integers(-size, size + 1, (8, terms)).astype(float)
    numbers[0] = size
    found = [np.asarray(Inexact.of(numbers, Coins(n, False), precision).sum(axis=1)) for n in range(4)]
    if terms * size <= 1 << 24:
        assert all((each == numbers.sum(axis=1)).all() for each in found)
    elif terms > 8:
        assert any((each != numbers.sum(axis=1)).any() for each in found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "text",
    [
        "f = f32(index_S < index_E); n = sum_S(f); c[E_X] = f32(n < 2)",  # as far as a capacity goes
        "h = x[B_X, D] · W[D, H]; y[B_X, H] = where(h > 0, dy[B_X, H], 0)",
        "h[B_X, H] = x[B_X, D] · W[D, H_X]; dh[B_X, H] = where(h > 0, dy[B_X, D] · V[H_X, D], 0); dW[D, H_X] = x · dh",
        "p[B_X, E] = x[B_X, D] · W[D, E]; m[B_X, E] = f32(p == max_E(p))",
    ],
)
def test_what_compares_sums_of_few_whole_numbers_is_checkable(text, seed):
    """Samples are of quarters: a sum of some of them is 0 often, and what is done with that is right or wrong."""
    plan = shardc.plan(text, mesh={"X": 4}, dims="B=16,D=32,H=64,S=16,E=8", dtype="f32")
    wholes = simulate.sample_inputs(plan.program, seed)
    limits = simulate.allowed(plan.schedule, wholes, simulate.reference(plan.program, wholes))
    assert all(limit.checkable.all() for limit in limits)
    assert all((limit.largest == 0).all() for limit in limits)
