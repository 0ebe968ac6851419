"""shardc inside an ordinary JAX program: under jax.jit, under jax.grad, on simulated devices.

Run it with `python examples/use_in_jax.py`; it needs no accelerator.
"""

import jax

jax.config.update("jax_num_cpu_devices", 8)  # before anything starts JAX's devices: hence E402 below

import jax.numpy as jnp  # noqa: E402  # after its devices are set
import numpy as np  # noqa: E402  # after its devices are set

import shardc  # noqa: E402  # after its devices are set


def loss(x: jax.Array, w: jax.Array) -> jax.Array:
    y = shardc.einsum("In[B_X, D_Y] · W[D_X, F_Y] → Out[B_X, F_Y]", x, w)
    return jnp.sum(y**2)


def main() -> None:
    mesh = jax.make_mesh((4, 2), ("X", "Y"))
    x = np.arange(16 * 8, dtype=np.float32).reshape(16, 8) / 64
    w = np.cos(np.arange(8 * 12, dtype=np.float32)).reshape(8, 12)
    with jax.set_mesh(mesh):
        spec = jax.P("X", "Y")
        xs, ws = (jax.device_put(a, jax.NamedSharding(mesh, spec)) for a in (x, w))
        gradient = jax.jit(jax.grad(loss, argnums=1))(xs, ws)
        gathered = shardc.reshard(gradient, jax.P(None, "Y"))
    expected = 2 * x.T @ (x @ w)
    # Sums of 16 terms in f32 round to about 1e-6; a missing sum over X or Y would be off by half or more.
    assert np.allclose(gathered, expected, rtol=1e-5)
    print(f"gradient {jax.typeof(gathered)}, largest error {np.abs(np.asarray(gathered) - expected).max():.1e}")


if __name__ == "__main__":
    main()
