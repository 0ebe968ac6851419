"""What is told in which order its dims lie: products that are summed and kept."""

import jax
import numpy as np
import pytest

import shardc
from shardc import simulate
from shardc.emit import source
from shardc.emit.call.program import CompiledProgram
from shardc.lowering.laid import lies_as_told
from shardc.lowering.lower import lower
from shardc.proving.prove import prove

ROWS, TURNED = (0, 1), (1, 0)
CASES = {  # by the names of values, their dims' places from the major to the minor
    "p = A[I, J] · B[J, K]; y[I, K] = p / (1 + sum_K(p)); return y": {"p": ROWS},
    "p = A[I, J] · B[J, K]; y[I, K] = p / (1 + sum_I(p)); return y": {"p": ROWS},
    "p = A[I, J] · B[J, K]; y[K, I] = p / (1 + sum_K(p)); return y": {"p": TURNED},
    "p = A[I, J] · B[J, K]; y[K, I] = p / (1 + sum_K(p)); return p, y": {},  # no order is that of both
    "p = A[I, J] · B[J, K]; y[I, K] = exp(p - max_K(p)); return y": {"p": ROWS},
    "p = A[I, J] · B[J, K]; y[I, K] = softmax_K(p); return y": {"p": ROWS},  # reads it several times
    "p = A[I, J] · B[J, K]; s[I] = logsumexp_K(p); return p, s": {"p": ROWS},
    "p = A[I, J] · B[J, K]; s[I] = logsumexp_K(p); return s": {},  # which lies nowhere
    "p = A[I, J] · B[J, K]; s[I] = sum_K(relu(p)); return p, s": {"p": ROWS},
    "p = A[I, J] · B[J, K]; y[I, K] = relu(p) ⊙ p; return y": {},  # nothing is summed
    "h[I, K] = X[I, K] + A[I, J] · B[J, K]; y = h ⊙ rsqrt(mean_K(h ⊙ h))": {"h": ROWS},
    "h[I, K] = X[I, K] + A[I, J] · B[J, K]; w = f32(h); y = bf16(w ⊙ rsqrt(mean_K(w ⊙ w))); return y": {"h": ROWS},
    "p: f32 = A[I, J] · B[J, K]; y = p / (1 + sum_K(p)); return y": {},
    "y[I, K] = A[I, K] / (1 + sum_K(A)); return y": {},  # no product
    "p[L, I, K] = A[L, I, J] · B[L, J, K]; y = p / (1 + sum_K(p)); return y": {},  # of batches: scores
}


def planned(text, topology="v5e:2x2"):
    dims = {dim: size for dim, size in zip("IJKL", (128, 16, 256, 8), strict=True) if dim in text}
    return shardc.plan(text, mesh="X=4", dims=dims, dtype="bf16", topology=topology, idle="keep", overlap="off")


def laid(plan):
    forms = zip(plan.schedule.steps, lower(plan.schedule).forms, strict=True)
    told = ((step, form.laid) for step, form in forms if lies_as_told(form))
    return {plan.schedule.values[step.result].name: places for step, places in told}


@pytest.mark.instant
@pytest.mark.parametrize("text", CASES)
def test_which_values_are_told_how_to_lie(text):
    assert laid(planned(text)) == CASES[text]
    assert laid(planned(text, None)) == {}, "only for a slice that is named"


@pytest.mark.devices
@pytest.mark.parametrize("text", [text for text, found in CASES.items() if found])
def test_a_value_that_is_laid_is_what_it_was(text):
    """On every shard, and in the text, which is proved; within two places of bf16, as a barrier rounds once more."""
    plan, plain = planned(text), planned(text, None)
    given = [
        np.asarray(whole, jax.numpy.dtype(plan.schedule.values[number].dtype.jax))
        for whole, number in zip(simulate.sample_inputs(plan.program, seed=1), plan.schedule.inputs, strict=True)
    ]
    written = source(plan.schedule, "v5e")
    assert written.count("with_layout_constraint(") == 1 and "with_layout_constraint" not in source(plain.schedule, "")
    assert prove(plan.schedule, written).verdict.value == "proved"
    found, others = (CompiledProgram(each.schedule)(*given) for each in (plan, plain))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(others), strict=True):
        for shard, beside in zip(one.addressable_shards, other.addressable_shards, strict=True):
            values = (np.asarray(each.data, np.float32) for each in (shard, beside))
            np.testing.assert_allclose(*values, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("topology", ["v5e:2x2", "v5p:2x2x1"])
def test_it_takes_as_long_as_it_is_priced_and_less_than_what_xla_makes(topology):
    """A residual stream and its norm: laid for the sum, both are copied."""
    text = "h[B_X, D] = x[B_X, D] + o[B_X, F] · W[F, D]; y = h ⊙ rsqrt(mean_D(h ⊙ h)); return h, y"
    plan = shardc.plan(
        text, mesh="X=4", dims={"B": 32768, "D": 2048, "F": 2048}, dtype="bf16", topology=topology, idle="keep"
    )
    assert laid(plan) == {"h": ROWS}
    found = plan.verify()
    assert found.agrees and plan.cost.time_s == pytest.approx(found.replayed.step_s, rel=0.12)
    assert found.replayed.step_s < 0.7 * plan.compare().theirs.timeline.step_s
