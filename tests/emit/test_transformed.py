"""`shardc.einsum` under what JAX makes of functions, forward and reverse: as a product of whole arrays is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc

pytestmark = pytest.mark.devices

EXPLICIT, AUTO = jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto
KINDS = {"explicit": (EXPLICIT, EXPLICIT), "auto": (AUTO, AUTO), "mixed": (EXPLICIT, AUTO)}
TEXT = "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]"
RNG = np.random.default_rng(5)
A, B, CHANGE = (RNG.integers(-3, 4, shape).astype(np.float32) for shape in ((8, 4), (4, 6), (8, 6)))


@pytest.fixture(params=KINDS)
def mesh(request):
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"), axis_types=KINDS[request.param])):
        yield request.param


def einsum(a, b):
    return shardc.einsum(TEXT, a, b)


def product(a, b):
    return jnp.einsum("ij,jk->ik", a, b)


def loss(call):
    return lambda a, b: jnp.sum(call(a, b) ** 2) / 2


def pulled(call, a, b, change):
    return jax.vjp(call, a, b)[1](change)


WAYS = {
    "jvp": lambda call: lambda a, b: jax.jvp(call, (a, b), (2 * a, 3 * b)),
    "jvp of one": lambda call: lambda a, b: jax.jvp(lambda b: call(a, b), (b,), (2 * b,)),
    "linearize": lambda call: lambda a, b: jax.linearize(call, a, b)[1](a, 2 * b),
    "jvp of jvp": lambda call: lambda a, b: jax.jvp(lambda a: jax.jvp(call, (a, b), (a, b))[1], (a,), (a,)),
    "jvp of grad": lambda call: lambda a, b: jax.jvp(jax.grad(loss(call), (0, 1)), (a, b), (a, b)),
    "grad of jvp": lambda call: jax.grad(lambda a, b: jnp.sum(jax.jvp(call, (a, b), (2 * a, b))[1] ** 2), (0, 1)),
    "grad of grad": lambda call: jax.grad(lambda a, b: jnp.sum(jax.grad(loss(call))(a, b) ** 2), (0, 1)),
    "jvp of vmap": lambda call: lambda a, b: jax.jvp(jax.vmap(call, (0, None)), (a[None], b), (a[None], b)),
    "vmap of jvp": lambda call: lambda a, b: jax.vmap(lambda t: jax.jvp(call, (a, b), (t, b))[1])(jnp.stack([a, -a])),
    "grad of vmap": lambda call: jax.grad(lambda a, b: jnp.sum(jax.vmap(loss(call), (None, 0))(a, b[None])), (0, 1)),
    "vmap of grad": lambda call: lambda a, b: jax.vmap(jax.grad(loss(call), (0, 1)), (None, 0))(a, b[None]),
    "vmap of vjp": lambda call: lambda a, b: jax.vmap(lambda c: pulled(call, a, b, c))(np.stack([CHANGE, 2 * CHANGE])),
    "jacfwd": lambda call: jax.jacfwd(call, (0, 1)),
    "jacrev": lambda call: jax.jacrev(call, (0, 1)),
    "hessian": lambda call: jax.hessian(loss(call)),
    "checkpoint": lambda call: jax.grad(jax.checkpoint(loss(call)), (0, 1)),
    "jvp of checkpoint": lambda call: lambda a, b: jax.jvp(jax.checkpoint(call), (a, b), (a, b)),
    "jvp of scan": lambda call: lambda a, b: jax.jvp(lambda b: scanned(call, a, b), (b,), (b,)),
}
TYPED = ("jvp of vmap", "grad of vmap", "vmap of grad")  # which make a typed array of NumPy's first, that lies whole
OF_JAX = ("jacrev", "hessian")  # outside jax.jit JAX asks NumPy's array for the mesh of its gradient, jax.reshard's too


def scanned(call, a, b):
    return jax.lax.scan(lambda sums, _: (sums + call(a, b), None), 0 * call(a, b), length=2)[0]


def placed():
    return jax.device_put(A, jax.P("X", "Y")), jax.device_put(B, jax.P("X", "Y"))


def of_numpy():
    return A, B


def eagerly(function):
    return function


def cases():
    for way in WAYS:
        for within in (jax.jit, eagerly):
            yield way, within, placed
            if way not in TYPED and (within is jax.jit or way not in OF_JAX):
                yield way, within, of_numpy


@pytest.mark.parametrize(("way", "within", "given"), list(cases()))
def test_it_is_transformed_as_a_product_is(mesh, way, within, given):
    wanted = jax.tree.leaves(WAYS[way](product)(*jax.tree.map(jnp.asarray, (A, B))))
    found = jax.tree.leaves(within(WAYS[way](einsum))(*given()))
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
