"""Chains of products on simulated devices: whatever the order, equal to NumPy on every shard."""

import jax
import pytest

import shardc
from shardc import simulate
from shardc.emit.call.placing import from_blocks, make_mesh, spec_of
from shardc.machines.run import report_of

pytestmark = pytest.mark.devices

TWO = {"X": 2, "Y": 4}
THREE = {"X": 2, "Y": 2, "Z": 2}
SIZES = {"I": 16, "J": 32, "K": 24, "L": 8, "M": 40, "N": 48, "B": 8}
CHAINS = [
    (TWO, "A[I_X, J_Y] · B[J, K_Y] · V[K, L] → C[I_X, L]"),
    (TWO, "A[I_X, J_Y] · B[J_Y, K_X] · V[K_X, L_Y] → C[I_Y, L_X]"),
    (TWO, "A[I, J] · B[J_Y, K]{U_X} · V[K, L_Y] → C[I_Y, L]"),
    (TWO, "A[I, J_X] · B[J_X, K] · V[K, L] → C[I, L]{U_X}"),
    (TWO, "A[I, J_X] · B[J, K] · V[K_X, I] → C[I]"),  # a loop: I is batched last
    (TWO, "A[B_X, I, J] · B[B, J_Y, K] · V[B_Y, K, L] → C[B_X, I, L_Y]"),
    (TWO, "A[I_X] · B[J_Y] · C[I] · D[J] → E[I_Y, J_X]"),
    (TWO, "(A[I_X, J] ⊙ B[I, J_Y]) · C[J, K_X] · D[K, L] → E[I_Y, L]"),
    (TWO, "relu(A[I_X, J] · B[J, K_Y] · C[K, L]) · D[L, M_X] · F[M_Y, N] → E[I, N_X]"),
    (THREE, "A[I_X, J_Y] · B[J, K_Z] · C[K_X, L] · D[L_Y, M] → E[I, M_Z]"),
    (THREE, "A[I_XY, J] · B[J_Z, K] · C[K, L] · D[L, M_X] · F[M, N_Y] → E[I_Z, N]"),
    (THREE, "A[I_X, J] · (B[J_Y, K] · C[K, L_Z]) · D[L, M_X] → E[M_Y, I]"),
]


def run(mesh, text, dtype, objective):
    plan = shardc.plan(text, mesh=mesh, dims=SIZES, dtype=dtype, objective=objective)
    wholes = simulate.sample_inputs(plan.program, seed=3)
    devices, placed = make_mesh(plan.schedule.given_mesh), []
    for whole, number in zip(wholes, plan.schedule.inputs, strict=True):
        array = plan.schedule.given(number)
        blocks = simulate.scatter(whole, array, plan.schedule.given_mesh).astype(array.dtype.jax)
        flat = blocks.reshape(-1, *blocks.shape[len(plan.mesh) :])
        placed.append(from_blocks(list(flat), array, devices, jax.NamedSharding(devices, spec_of(array.sharding))))
    return report_of(plan.schedule, wholes, [plan.compile(devices)(*placed)])


@pytest.mark.parametrize("objective", ["time", "bytes"])
@pytest.mark.parametrize(("mesh", "text"), CHAINS, ids=str)
def test_integers_are_equal_bitwise(mesh, text, objective):
    report = run(mesh, text, "int32", objective)
    assert report.ok, report
    assert all(output.bound == 0 and output.shards == 8 for output in report.outputs)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_floats_are_within_what_their_roundings_allow_which_tells_right_from_wrong(dtype):
    for mesh, text in CHAINS[::3]:
        report = run(mesh, text, dtype, "time")
        assert report.ok, report
        (output,) = report.outputs
        assert output.rms_bound * simulate.TOLD_APART <= output.spread
