"""Programs planned whole, compiled for eight simulated devices: every shard, and the bytes that are compiled."""

import numpy as np
import pytest

import shardc
from shardc import simulate

pytestmark = pytest.mark.devices

SIZES = {"B": 64, "D": 32, "H": 64, "I": 64, "J": 64, "K": 128, "L": 32, "M": 32}
TEXTS = (
    "Q[B, H_X] = x[B_X, D] · Wq[D, H_X]; K[B, H_X] = x · Wk[D, H_X]; V[B, H_X] = x · Wv[D, H_X]",
    "T = A[I, J_X] · B[J_X, K]; V = C[I, J_X] · D[J_X, K]; S[I_X, K] = T + V",
    "T = A[I, J_X] · B[J_X, K_Y]; H = relu(T); S[I_X, L] = H · C[K_Y, L]; R[I, M_X] = abs(T) · D[K, M_X]",
    "T = A[I_X, J] · B[J, K_Y]; S[I_X, L] = T · C[K, L_Y]",
)


@pytest.mark.parametrize("text", TEXTS)
def test_every_shard_is_numpys_and_the_bytes_compiled_are_those_planned(text):
    dims = {dim: size for dim, size in SIZES.items() if f"{dim}_" in text or f"{dim}," in text or f"{dim}]" in text}
    found = shardc.plan(text, mesh={"X": 4, "Y": 2}, dims=dims, dtype="f32")
    wholes = simulate.sample_inputs(found.program, 0)
    expected = found.reference(*wholes)
    results = found.compile()(*(np.asarray(whole, dtype=np.float32) for whole in wholes))
    pairs = zip(results, expected, strict=True) if len(found.outputs) > 1 else [(results, expected)]
    for result, whole in pairs:
        assert len(result.addressable_shards) == 8
        for shard in result.addressable_shards:
            # In f32 of samples in steps of 2^-8: rounding is far below, one unit far above.
            np.testing.assert_allclose(np.asarray(shard.data), whole[shard.index], atol=2.0**-11 * abs(whole).max())
    compiled = found.compare(rounds=1).ours
    assert sum(tally.wire_bytes for tally in compiled.collectives) == found.cost.wire_bytes > 0
