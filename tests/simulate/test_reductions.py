"""Reductions over dims in every sharding: local, then AllReduces of what is left, or a move, whichever is cheaper."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc import simulate
from shardc.ir.collectives import AllReduce, apply
from shardc.ir.legal import faults_of
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove
from shardc.ir.sharding import MAX, Sharding
from shardc.rules.placements import placements

MESH = Mesh.of({"X": 2, "Y": 2})
DIMS = {"I": 4, "J": 8}
LAWS = settings(max_examples=40, deadline=None, derandomize=True)
REDUCTIONS = ("sum", "mean", "max", "min", "logsumexp", "softmax")
EVERY = [Sharding(dims) for dims in placements(("X", "Y"), 2)]
OF_ONE = [Sharding(dims) for dims in placements(("X", "Y"), 1)]
NEXT = {"C": "", "square(C)": "", "C + C": "", "C / |I|": "", "exp(-C)": "", "C > 1": ""}


def spelled(name: str, dims: tuple[str, ...], sharding: Sharding) -> str:
    return (
        name
        + "["
        + ", ".join(d + ("_" + "".join(a) if a else "") for d, a in zip(dims, sharding.dims, strict=True))
        + "]"
    )


def check(text: str, draw_inf: bool = False, seed: int = 0, mesh: Mesh = MESH, dims: dict[str, int] = DIMS):
    plan = shardc.plan(text, mesh=mesh, dims=dims, dtype="f32")
    program, schedule = plan.schedule.program, plan.schedule
    assert not list(faults_of(schedule)), list(faults_of(schedule))
    generator = np.random.default_rng(seed)
    wholes = [generator.standard_normal(program.shape(array.dims)) * 3 for array in program.inputs]
    if draw_inf:
        wholes = [np.where(generator.random(whole.shape) < 0.5, -np.inf, whole) for whole in wholes]
    for number, found, whole in zip(
        schedule.outputs, simulate.run(schedule, wholes), simulate.reference(program, wholes), strict=True
    ):
        wanted = simulate.wanted(whole, schedule.values[number], schedule.mesh)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    return plan


@pytest.mark.parametrize("name", REDUCTIONS)
@LAWS
@given(
    st.sampled_from(EVERY),
    st.sampled_from(["I", "J", "{I,J}"]),
    st.sampled_from(EVERY + OF_ONE),
    st.sampled_from([*NEXT]),
)
def test_every_reduction_in_every_sharding(name: str, lies: Sharding, over: str, to: Sharding, after: str) -> None:
    left = ("I", "J") if name == "softmax" else tuple(dim for dim in "IJ" if dim not in over)
    result = to if to.rank == len(left) else Sharding.replicated(len(left))
    first = f"C = {name}_{over}({spelled('A', ('I', 'J'), lies)})"
    check(f"{first}; {spelled('E', left, result)} = {after}")


@pytest.mark.instant
@pytest.mark.parametrize("name", ["logsumexp", "softmax", "max"])
@pytest.mark.parametrize("lies", ["A[I, J_X]", "A[I_Y, J_X]", "A[I, J_YX]", "A[I_XY, J]"])
def test_masked_rows(name: str, lies: str) -> None:
    """Half of all is −inf, whole rows of a device among them."""
    left = "[I, J]" if name == "softmax" else "[I]"
    for seed in range(4):
        check(f"{name}_J({lies}) → C{left}", draw_inf=True, seed=seed, dims={"I": 4, "J": 8})


@pytest.mark.parametrize("number", [-np.inf, float(np.finfo(np.float32).min)])
def test_rows_that_are_masked_whole(number: float) -> None:
    """By −inf, or by the lowest number that there is: no shift is infinite, and none is above what it shifts."""
    plan = shardc.plan("logsumexp_J(A[I, J_X]) → C[I]", mesh=MESH, dims=DIMS, dtype="f32", objective="bytes")
    assert [step.op for step in plan.steps].count("AllReduce") == 2
    (found,) = simulate.run(plan.schedule, [np.full((4, 8), number)])
    assert (found == number + np.log(8)).all()


@pytest.mark.parametrize("given", [[np.inf], [np.inf, -np.inf], [np.inf, 3e38], [-np.inf, 3e38], [np.nan, np.inf]])
def test_rows_beside_what_is_infinite(given: list[float]) -> None:
    """Beside +inf the sum of exponentials is +inf, and so is its logarithm; NaN stays."""
    plan = shardc.plan("logsumexp_J(A[I, J_X]) → C[I]", mesh=MESH, dims=DIMS, dtype="f32", objective="bytes")
    assert [step.op for step in plan.steps].count("AllReduce") == 2
    rows = np.ones((4, 8))
    rows[1, 5], rows[2, : len(given)], rows[3, ::-3] = given[0], given, (given * 3)[:3]
    (found,) = simulate.run(plan.schedule, [rows])
    wanted = jax.nn.logsumexp(rows.astype(np.float32), axis=1)
    assert np.allclose(found.astype(np.float32), wanted, rtol=1e-6, equal_nan=True)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("name", "reductions"), [("sum", 1), ("mean", 1), ("max", 1), ("min", 1), ("logsumexp", 2), ("softmax", 2)]
)
def test_what_is_left_is_reduced_and_the_array_stays(name: str, reductions: int) -> None:
    """8192 numbers of two bytes over X=4: 2 · 3/4 · 16,384 B for each AllReduce."""
    left = "[I, J_X]" if name == "softmax" else "[I]"
    plan = shardc.plan(f"{name}_J(A[I, J_X]) → C{left}", mesh={"X": 4}, dims={"I": 8192, "J": 8192}, chip="v5p")
    moves = [step for step in plan.schedule.steps if step.is_collective]
    assert [step.name for step in moves] == ["AllReduce"] * reductions
    assert [step.cost.wire_bytes for step in moves] == [2 * 3 * 8192 * 2 // 4] * reductions


def test_a_small_array_is_gathered_where_that_is_cheaper() -> None:
    """Of 2 by 8 numbers an AllGather takes half the hops of two AllReduces."""
    plan = shardc.plan("softmax_J(A[I, J_X]) → C[I, J]", mesh={"X": 4}, dims={"I": 2, "J": 8}, chip="v5p")
    assert [step.name for step in plan.schedule.steps if step.is_collective] == ["AllGather"]


def test_a_partial_maximum_is_read_by_its_own_all_reduce_alone() -> None:
    partial = Sharding(((),), frozenset("X"), MAX)
    assert apply(AllReduce(("X",), MAX), partial, MESH) == Sharding(((),))
    for move in (AllReduce(("X",)), AllReduce(("X",), "min")):
        with pytest.raises(IllegalMove):
            apply(move, partial, MESH)


@pytest.mark.parametrize(("before", "after"), [*itertools.product(["[I_X, J]", "[I, J_X]"], repeat=2)])
def test_a_mean_stays_unreduced(before: str, after: str) -> None:
    """mean_K = sum_K / |K|: what is divided by a number may be reduced later."""
    plan = check(f"E{after} = mean_K(A{before[:-1]}, K_Y]) + sum_K(A)", dims={"I": 4, "J": 8, "K": 4})
    assert sum(step.name in ("AllReduce", "ReduceScatter") for step in plan.schedule.steps) <= 2
