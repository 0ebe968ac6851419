"""Products of small matrices, added up term by term, on devices: every shard, in loops, and under a gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc

pytestmark = pytest.mark.devices

MESH = {"X": 2, "Y": 4}
SIZES = {"B": 4, "T": 32, "H": 4, "C": 8, "F": 8, "E": 16, "N": 2048, "L": 3}
TEXTS = {
    "a rotation": "Q[B, T, H_X, F, E] = x[B, T, H_X, C, E] · R[T, C, F, E]",
    "matrices": "Y[N_X, H, F_Y] = A[N_X, H, C] · W[N_X, C, F]",
    "turned": "Y[F, N_X, H] = A[N_X, C, H] · W[F, C, N_X]",
    "two types": "Y: f32[N, H, F] = A: bf16[N, H, C] · W[N, C, F]",
    "read by a product": "q[N, H, F] = A[N, H, C] · W[N, C, F]; s[H, E] = q ·_{N,F} G[N_X, F, E]",
    "over a sharded dim": "Y[N_X, H, F] = A[N_X, H, C_Y] · W[N_X, C_Y, F]",
    "in a loop": "w[N, H, C] = v[N_XY, H, C]; for L { w[N, H, C] = w[N, H, F] · A[L, N_XY, F, C] }; return w",
    "by names that terms have": "left[N, H, F] = right[N, H, C] · A[N, C, F]",
}


def planned(name, **options):
    dims = SIZES | ({"C": 16} if "sharded" in name else {})
    return shardc.plan(TEXTS[name], mesh=MESH, dims=dims, dtype="f32", topology="v5e:2x4", idle="keep", **options)


@pytest.mark.parametrize("name", TEXTS)
def test_every_shard_is_as_numpy_has_it(name):
    """Whole numbers, so that equality is exact: a term too many or too few, or one of another row, is seen."""
    plan = planned(name)
    assert "jnp.unstack(" in plan.source()
    rng = np.random.default_rng(7)
    given = [rng.integers(-3, 4, plan.schedule.values[number].shape) for number in plan.schedule.inputs]
    types = [plan.schedule.values[number].dtype.jax for number in plan.schedule.inputs]
    wanted = plan.reference(*given)
    found = plan.compile()(*(jnp.asarray(each, kind) for each, kind in zip(given, types, strict=True)))
    for shard in found.addressable_shards:
        assert np.array_equal(shard.data, wanted[shard.index])


def test_its_gradient_is_that_of_the_product():
    plan = planned("by names that terms have")
    rng = np.random.default_rng(8)
    given = [jnp.asarray(rng.integers(-3, 4, plan.schedule.values[n].shape), "float32") for n in plan.schedule.inputs]
    program = plan.compile()
    with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"))):
        found = jax.jit(jax.grad(lambda *x: jnp.sum(jnp.square(program(*x))), argnums=(0, 1)))(*given)
    wanted = jax.grad(lambda a, w: jnp.sum(jnp.square(jnp.einsum("nhc,ncf->nhf", a, w))), argnums=(0, 1))(*given)
    assert all(np.array_equal(ours, plain) for ours, plain in zip(found, wanted, strict=True))
