"""Arrays of one number on devices: each fills its own block, of every sharding, in loops and under a gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.ir.masks import Mask
from shardc.ir.plan import every_step

pytestmark = pytest.mark.devices

MESH, SIZES = {"X": 2, "Y": 4}, {"M": 3, "B": 8, "D": 16, "F": 24}
TEXTS = {
    "sharded": "h[B_X, D_Y] = 2; C[B_X, D_Y] = h ⊙ A[B_X, D_Y]",
    "on every device": "h[B, D] = 2; C[B_X, D_Y] = h ⊙ A[B_X, D_Y]",
    "left open": "h[B_?, D_?] = 2; C[B_X, D_Y] = h ⊙ A[B_X, D_Y]",
    "a result": "h[B_X, D_Y] = 3; C[B, D] = A[B_X, D_Y] + A; return h, C",
    "a product's operand": "h[D_?, F_?] = 1; C[B_X, F_Y] = A[B_X, D_Y] · h",
    "of no dims": "h[] = 5; C[B_X, D] = h ⊙ A[B_X, D]",
    "added to partial sums": "h[B_?, F_?] = 7; C[B, F] = h + A[B, D_XY] · V[D_XY, F]",
    "carried": "h[B_X, D] = 0; for M { h = h + A[M, B_X, D]; S[M, B, D] = h }; return h, S",
    "carried in parts": "G[D_?, F_?] = 0; for M { G = G + A[M, B_XY, D] ·_B V[M, B_XY, F] }; C[D_X, F_Y] = G",
    "carried in parts, from one": "G[D_?, F_?] = 1; for M { G = G + A[M, B_XY, D] ·_B V[M, B_XY, F] }; C[D_X, F_Y] = G",
    "of a trip": "for M { h[B_X, D] = 2; S[M, B_X, D] = h ⊙ A[M, B_X, D] }; return S",
}


@pytest.mark.parametrize("objective", ["time", "bytes"])
@pytest.mark.parametrize("name", TEXTS)
def test_every_shard_is_as_numpy_has_it(name, objective):
    """Whole numbers, so that equality is exact; a wrong number, a wrong block or a sum of it over devices is seen."""
    plan = shardc.plan(TEXTS[name], mesh=MESH, dims=SIZES, dtype="int32", objective=objective)
    rng = np.random.default_rng(7)
    given = [rng.integers(-9, 9, plan.schedule.values[number].shape) for number in plan.schedule.inputs]
    wanted, simulated = plan.reference(*given), plan.simulate(*given)
    found = plan.compile()(*(jnp.asarray(each, jnp.int32) for each in given))
    for of_numpy, of_simulator, result in zip(*map(each_of, (wanted, simulated, found)), strict=True):
        assert np.array_equal(of_numpy, of_simulator)
        for shard in result.addressable_shards:
            assert np.array_equal(shard.data, of_numpy[shard.index])


def each_of(found):
    return found if isinstance(found, tuple) else (found,)


def test_micro_batches_are_added_up_in_parts_and_reduced_once():
    """Of three micro-batches one ReduceScatter; zeros are partial sums as they are, ones have to be masked."""
    alone = shardc.plan("G[D, F]{U_XY} → C[D_X, F_Y]", mesh=MESH, dims=SIZES, dtype="int32", objective="bytes")
    for name, is_masked in (("carried in parts", False), ("carried in parts, from one", True)):
        plan = shardc.plan(TEXTS[name], mesh=MESH, dims=SIZES | {"B": 64}, dtype="int32", objective="bytes")
        ops = [done.step.op for done in every_step(plan.schedule.block)]
        assert any(isinstance(op, Mask) for op in ops) == is_masked
        assert plan.cost.wire_bytes == alone.cost.wire_bytes


def test_einsum_takes_them_and_has_their_gradients():
    text = "s: f32[B_X] = 0; for M { s = 0.5 ⊙ s + x[M, B_X]; S[M, B_X] = s }; return S"
    x = jnp.arange(24.0).reshape(3, 8)

    def plain(x):
        rows = [x[0]]
        for row in x[1:]:
            rows.append(0.5 * rows[-1] + row)
        return jnp.stack(rows)

    with jax.set_mesh(jax.make_mesh((2,), ("X",))):
        laid = jax.device_put(x, jax.P(None, "X"))
        assert np.array_equal(shardc.einsum(text, laid), plain(x))
        found = jax.grad(lambda x: jnp.sum(jnp.sin(shardc.einsum(text, x))))(laid)
    assert np.allclose(found, jax.grad(lambda x: jnp.sum(jnp.sin(plain(x))))(x), rtol=1e-6, atol=1e-6)
