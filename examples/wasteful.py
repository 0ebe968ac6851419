"""A block of a model in plain JAX, sharded by hand, for `shardc explain examples.wasteful:block`.

    shardc explain examples.wasteful:block --topology v5p:2x2x1

Between two layers the activations go from heads to tokens: `h[B_Y, S, H_X] → h[B, S_XY, H]`.
"""

import jax
import jax.numpy as jnp
from jax import P
from jax.lax import with_sharding_constraint as constrain

MESH = jax.sharding.AbstractMesh((2, 2), ("X", "Y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


def argument(shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=jax.NamedSharding(MESH, P(*spec)))


@jax.jit
def layers(h, w):
    h = constrain(jax.nn.relu(h), P("Y", None, "X"))
    h = constrain(h, P(None, ("X", "Y"), None))  # from heads to tokens
    return constrain(h @ w, P(None, ("X", "Y"), None))


def block():
    """The function, and the arguments to explain it for."""
    return layers, argument((64, 1024, 1024), "Y", None, "X"), argument((1024, 1024))


if __name__ == "__main__":
    print(__doc__)
