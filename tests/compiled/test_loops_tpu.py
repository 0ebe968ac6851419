"""Loops compiled for a slice of TPUs: every trip's collectives as planned, and the memory."""

import pytest

import shardc

pytestmark = pytest.mark.tpu

DIMS = {"L": 5, "B": 4096, "D": 2048, "F": 4096}
TEXTS = {
    "tensor parallel": """for L {
        x[B_X, D] = relu(x[B_X, D] ·_D Win[L, D, F_Y] ·_F Wout[L, F_Y, D])
        S[L, B_X] = sum_D(x)
    }""",
    "fully sharded": """for L {
        H[B_X, F_Y] = x[B_X, D] ·_D Win[L, D_X, F_Y]
        x = x + relu(H) ·_F Wout[L, F_Y, D_X]
    }
    Out[B_X, D] = x""",
    "moved once, before the loop": "for L { x[B_X, D] = relu(x[B_X, D] ·_D W[D_Y, F] ·_F V[F, D_Y]) }",
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_trip_moves_what_is_planned(name):
    plan = shardc.plan(TEXTS[name], mesh={"X": 4, "Y": 2}, dims=DIMS, topology="v5e:4x2")
    found = plan.verify()
    assert found.agrees, [(step.kind, step.predicted_bytes, step.compiled_bytes) for step in found.steps]
    assert found.predicted_bytes == plan.cost.wire_bytes > 0
    assert found.compiled_bytes == pytest.approx(plan.cost.wire_bytes, rel=0.01)
    # Buffers that are small enough stay on the chip inside a loop, and are not counted by the compiler.
    assert found.predicted_memory.total_bytes >= 0.95 * found.compiled_memory.total_bytes


@pytest.mark.exhaustive
def test_the_memory_of_a_layer_that_does_not_stay_on_the_chip():
    dims = {"L": 4, "B": 8192, "D": 4096, "F": 16384}
    plan = shardc.plan(TEXTS["fully sharded"], mesh={"X": 4, "Y": 2}, dims=dims, topology="v5e:4x2")
    found = plan.verify()
    assert found.agrees
    promised, taken = found.predicted_memory.total_bytes, found.compiled_memory.total_bytes
    assert 0.95 * taken <= promised <= 1.3 * taken, "one gathered weight more than is taken, and none less"


def test_what_a_loop_only_adds_up_is_reduced_after_it_and_verify_says_so():
    """The compiler adds partial sums in the loop, and reduces their sum: a quarter of what is planned."""
    text = "for M { dW[D, F_Y] = A[M, B_X, D] ·_B dH[M, B_X, F_Y]\n G[D, F_Y] = G[D, F_Y] + dW }"
    plan = shardc.plan(text, mesh={"X": 4, "Y": 2}, dims={"M": 4, **DIMS}, topology="v5e:4x2")
    found = plan.verify()
    (step,) = found.steps
    assert not found.agrees and step.remark == "once, not in each trip"
    assert 4 * step.compiled_bytes == step.predicted_bytes
