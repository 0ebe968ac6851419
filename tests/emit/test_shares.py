"""Softmaxes that add up by a product, on devices: every shard, in loops, under a gradient, beside other names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc

pytestmark = pytest.mark.devices

MESH = {"X": 2, "Y": 4}
SIZES = {"B": 2, "T": 8, "S": 256, "H": 4, "E": 8, "L": 2, "M": 512, "V": 16384}
SCORES, READ = "s[B_X, T, H_Y, S] = q[B_X, T, H_Y, E] · k[B_X, S, H_Y, E]", "o[B_X, T, H_Y, E] = p · v[B_X, S, H_Y, E]"
TEXTS = {
    "attention": f"{SCORES}; p = softmax_S(s); {READ}",
    "causal": f"{SCORES}; p = softmax_S(where(index_T * 32 >= index_S, s / 2, -inf)); {READ}",
    "turned": "s[B_X, H_Y, S, T] = q[B_X, T, H_Y, E] · k[B_X, S, H_Y, E]; p[H_Y, T, S, B_X] = softmax_S(s); " + READ,
    "its shares too": f"{SCORES}; p = softmax_S(s); {READ}; return p, o",
    "a loss": ("s[T_X, S] = q[T_X, E] · k[S, E]; z[T_X] = logsumexp_S(s) - sum_S(where(index_S == 3, s, 0)); return z"),
    "over a sharded dim": (
        "s[M_X, V_Y] = q[M_X, E] · k[V_Y, E]; z[M_X] = logsumexp_V(s) - sum_V(where(index_V == 3, s, 0)); return z"
    ),
    "nothing but −inf": "s[T_X, S] = where(index_T > 3, q[T_X, E] · k[S, E], -inf); z[T_X] = logsumexp_S(s)",
    "beside inf": "s[T_X, S] = q[T_X, E] · k[S, E]; z[T_X] = logsumexp_S(where(index_S == index_T * 100, inf, s))",
    "in a loop": "for L { s[T_X, S] = x[T_X, E] · k[L, S, E]; x[T_X, E] = softmax_S(s) · v[L, S, E] }; return x",
    "under the same name": "total[T_X, S] = q[T_X, E] · k[S, E]; p = softmax_S(total); o = p · v[S, E]",
}


def planned(name):
    return shardc.plan(TEXTS[name], mesh=MESH, dims=SIZES, dtype="bf16", topology="v5e:2x4", idle="keep")


def given_to(plan, seed):
    rng = np.random.default_rng(seed)
    return [
        jnp.asarray(rng.standard_normal(plan.schedule.values[number].shape), "bfloat16")
        for number in plan.schedule.inputs
    ]


@pytest.mark.parametrize("name", TEXTS)
def test_every_shard_is_as_numpy_has_it(name):
    """Shares of bf16, 2^-8 of their size; a row of another device, or one that is left out of the sum, changes some by
    far more: they are told apart by their distance from what they would be if all were equal."""
    plan = planned(name)
    assert "jnp.broadcast_to(jnp.bfloat16(1), (2, " in plan.source()
    given = given_to(plan, 3)
    wanted = plan.reference(*(np.asarray(each, "float64") for each in given))
    found = plan.compile()(*given)
    for ours, exact in zip(jax.tree.leaves(found), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        for shard in ours.addressable_shards:
            here, there = np.asarray(shard.data, "float64"), exact[shard.index]
            assert np.array_equal(np.isinf(here), np.isinf(there))
            here, there = (np.where(np.isinf(each), 0, each) for each in (here, there))
            assert np.abs(here - there).max() <= 0.03 * np.abs(exact[np.isfinite(exact)]).max()


@pytest.mark.exhaustive
def test_its_gradient_is_that_of_the_softmax():
    plan = planned("attention")
    given = given_to(plan, 4)
    program = plan.compile()

    def plain(q, k, v):
        s = jnp.einsum("bthe,bshe->bths", q, k).astype("bfloat16")
        return jnp.einsum("bths,bshe->bthe", jax.nn.softmax(s, axis=3), v)

    def squared(function):
        return lambda *given: jnp.sum(jnp.square(function(*given).astype("float32")))

    auto = (jax.sharding.AxisType.Auto,) * 2
    with jax.set_mesh(jax.make_mesh((2, 4), ("X", "Y"), auto)):
        found = jax.jit(jax.grad(squared(program), argnums=(0, 1, 2)))(*given)
    wanted = jax.grad(squared(plain), argnums=(0, 1, 2))(*given)
    for ours, theirs in zip(found, wanted, strict=True):
        ours, theirs = np.asarray(ours, "float64"), np.asarray(theirs, "float64")
        assert np.abs(ours - theirs).max() <= 0.05 * np.abs(theirs).max()
