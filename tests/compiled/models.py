"""Blocks of models in plain JAX, with waste planted in them and without; for whatever mesh has axes X and Y."""

import jax
import jax.numpy as jnp
from jax import P
from jax.lax import with_sharding_constraint as constrain


def argument(mesh, shape, *spec, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=jax.NamedSharding(mesh, P(*spec)))


def mlp(mesh, wasteful, batch=1024, model=1024, hidden=4096):
    """`tanh(relu(x·w1)·w2)`. The wasteful one asks for the sum on every device, then for a part of it."""

    def block(x, w1, w2):
        y = jax.nn.relu(x @ w1) @ w2
        if wasteful:
            y = constrain(y, P("X", None))  # planted: an AllReduce
        return constrain(jnp.tanh(y), P("X", "Y"))

    shapes = (
        argument(mesh, (batch, model), "X", None),
        argument(mesh, (model, hidden), None, "Y"),
        argument(mesh, (hidden, model), "Y", None),
    )
    return jax.jit(block), *shapes


def reshard(mesh, wasteful, batch=64, tokens=256, model=256):
    """`h[B_Y, S, H_X] → h[B, S_XY, H]`, between two things that are done with it."""

    def block(h):
        h = constrain(h * 2, P("Y", None, "X"))
        target = P(None, ("X", "Y"), None) if wasteful else P("Y", None, "X")  # planted: XLA replicates
        return jnp.tanh(constrain(h, target))

    return jax.jit(block), argument(mesh, (batch, tokens, model), "Y", None, "X")


def attention(mesh, wasteful, batch=16, tokens=256, heads=8, size=128):
    """Attention by heads. The wasteful one asks for all of K and V, then for each device's heads of them."""

    def block(x, wq, wk, wv, wo):
        q, k, v = (jnp.einsum("bsd,dnh->bsnh", x, w) for w in (wq, wk, wv))
        if wasteful:
            k, v = (constrain(array, P("X", None, None, None)) for array in (k, v))  # planted: gathers
        q, k, v = (constrain(array, P("X", None, "Y", None)) for array in (q, k, v))
        scores = jnp.einsum("bsnh,btnh->bnst", q, k) / size**0.5
        weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(x.dtype)
        mixed = jnp.einsum("bnst,btnh->bsnh", weights, v)
        return constrain(jnp.einsum("bsnh,nhd->bsd", mixed, wo), P("X", "Y", None))

    model = heads * size
    weight = argument(mesh, (model, heads, size), None, "Y", None)
    out = argument(mesh, (heads, size, model), "Y", None, None)
    return jax.jit(block), argument(mesh, (batch, tokens, model), "X", None, None), weight, weight, weight, out


def attention_by_tokens(mesh, wasteful, batch=16, tokens=256, heads=8, size=128):
    """Q, K and V come by tokens, and are wanted by heads: an AllToAll each. The wasteful one gathers K and V."""

    def block(q, k, v):
        if wasteful:
            k, v = (constrain(array, P("X", None, None, None)) for array in (k, v))  # planted: gathers
        q, k, v = (constrain(array, P("X", None, "Y", None)) for array in (q, k, v))
        weights = jax.nn.softmax(jnp.einsum("bsnh,btnh->bnst", q, k), axis=-1)
        return constrain(jnp.einsum("bnst,btnh->bsnh", weights, v), P("X", None, "Y", None))

    return jax.jit(block), *[argument(mesh, (batch, tokens, heads, size), "X", "Y", None, None)] * 3


def layers(mesh, wasteful, depth=5):
    """A stack of MLPs in a loop, in f32 and small enough to run."""

    def layer(x, weights):
        w1, w2 = weights
        y = jax.nn.relu(x @ w1) @ w2
        if wasteful:
            y = constrain(y, P("X", None))
        return constrain(jnp.tanh(y), P("X", "Y")), None

    def block(x, w1, w2):
        return jax.lax.scan(layer, x, (w1, w2))[0]

    one = argument(mesh, (256, 256), "X", "Y", dtype=jnp.float32)
    first = argument(mesh, (depth, 256, 1024), None, None, "Y", dtype=jnp.float32)
    second = argument(mesh, (depth, 1024, 256), None, "Y", None, dtype=jnp.float32)
    return jax.jit(block), one, first, second
