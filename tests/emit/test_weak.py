"""Weakly typed arrays, Python's numbers among them, in shardc.einsum: results are of the types that JAX gives them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.errors import ShardcError

pytestmark = pytest.mark.devices

# Of what is weakly typed, c, and of x.
SUMS = {
    "y[I_X] = c[] + x[I_X]": lambda c, x: c + x,
    "y[I_X] = maximum(c[], x[I_X])": lambda c, x: jnp.maximum(c, x),
    "y[I_X] = where(c[] < x[I_X], x, c)": lambda c, x: jnp.where(c < x, x, c),
    "s = c[] + c; t = s + s; y[I_X] = t - x[I_X]": lambda c, x: (c + c) + (c + c) - x,
}
PRODUCTS = {
    "c[] ⊙ x[I_X] → y[I_X]": lambda c, x: c * x,
    "c[] · x[I_X] → y[]": lambda c, x: jnp.einsum(",i->", c, x),
    "y[I_X] = exp(c[]) ⊙ x[I_X]": lambda c, x: jnp.exp(c) * x,
    "y[I_X] = where(c[] < 0, 1.0, 0.5) ⊙ c ⊙ x[I_X]": lambda c, x: jnp.where(c < 0, 1.0, 0.5) * c * x,
    "y[I_X] = f32(c[]) ⊙ x[I_X]": lambda c, x: jnp.float32(c) * x,
    "s = c[] ⊙ c; y[I_X] = s ⊙ x[I_X] + s": lambda c, x: c * c * x + c * c,
}
FLOATS = ["bfloat16", "float16", "float32"]
CASES = [(text, dtype) for text in SUMS for dtype in (*FLOATS, "int8", "int32", "uint8")]
CASES += [(text, dtype) for text in PRODUCTS for dtype in FLOATS]
NUMBERS = {
    "int": lambda: 2,
    "float": lambda: 0.5,
    "weak float": lambda: jnp.asarray(0.5),
    "weak int": lambda: jnp.asarray(2),
    "strong": lambda: jnp.float32(0.5),
    "numpy": lambda: np.float32(0.5),
}


@pytest.fixture(autouse=True)
def mesh():
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        yield


def put(whole, *spec):
    return jax.device_put(whole, jax.P(*spec))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("text", "dtype"), CASES)
def test_a_result_is_of_the_type_that_jax_gives_it(text, dtype, number):
    """Eagerly, traced, as an argument of a jitted function, and of the plan that is shown."""
    x, c = put(np.arange(1, 9).astype(jnp.dtype(dtype)), "X"), NUMBERS[number]()
    if "exp" in text and "int" in number:
        pytest.skip("of integers exp has no type in a text")
    wanted = (SUMS | PRODUCTS)[text](c, x)
    for found in (
        shardc.einsum(text, c, x),
        jax.jit(lambda x: shardc.einsum(text, c, x))(x),
        jax.jit(lambda c, x: shardc.einsum(text, c, x))(c, x),
    ):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(np.asarray(found, "f"), np.asarray(wanted, "f"), rtol=0.02)
    assert shardc.einsum.plan(text, c, x).outputs[0].dtype == wanted.dtype.name


def test_of_integers_and_what_is_weakly_a_float_the_float_stays_weak():
    n, x = put(np.arange(8, dtype="int32"), "X"), put(np.ones(8, jnp.bfloat16), "X")
    text = "y[I_X] = n[I_X] / c[] + x[I_X]"
    assert shardc.einsum(text, n, 2.0, x).dtype == (n / 2.0 + x).dtype == jnp.bfloat16
    assert shardc.einsum("y[I_X] = n[I_X] / c[]", n, 2.0).dtype == jnp.float32


def test_a_weakly_typed_array_is_sharded_as_any_other():
    weak = jnp.broadcast_to(jnp.asarray(0.5), (8, 16))
    assert jax.typeof(weak).weak_type
    w = put(np.ones((16, 8), jnp.bfloat16), "X")
    found = shardc.einsum("A[I_X, J] · B[J_X, K] → C[I_X, K]", put(weak, "X"), w)
    assert (found.dtype, found.sharding.spec) == (jnp.bfloat16, jax.P("X", None))
    assert (found == 8).all()


def test_the_gradient_of_what_is_weakly_typed_is_of_its_own_type():
    x = put(np.ones(8, jnp.bfloat16), "X")

    def loss(c, x, product=shardc.einsum):
        return product("c[] ⊙ x[I_X] → y[I_X]", c, x).astype("float32").sum()

    for c in (0.5, jnp.asarray(0.5)):
        found = jax.grad(loss, (0, 1))(c, x)
        assert [each.dtype for each in found] == [jnp.float32, jnp.bfloat16]
        assert float(found[0]) == 8
        assert (found[1] == 0.5).all()


def test_what_is_carried_and_scanned_is_met_by_its_name():
    rows = put(np.full((3, 8), 2, jnp.bfloat16), None, "X")
    weak = jnp.broadcast_to(jnp.asarray(0.5), (8,))
    found = shardc.einsum("for L { c = c[I_X] ⊙ R[L, I_X] }", put(weak, "X"), rows)
    assert found.dtype == jnp.bfloat16
    assert (found == 4).all()


def test_where_several_types_are_met_it_keeps_its_own():
    """As a bf16 it would be rounded where an f32 meets it too."""
    x, y = put(np.ones(8, jnp.bfloat16), "X"), put(np.ones(8, "float32"), "X")
    one, other = shardc.einsum("p[I_X] = c[] ⊙ x[I_X]; q[I_X] = c ⊙ y[I_X]", 0.3, x, y)
    assert (one.dtype, other.dtype) == (jnp.float32, jnp.float32)
    assert (other == np.float32(0.3)).all()


def test_a_result_may_be_declared_wider():
    x = put(np.ones(8, jnp.bfloat16), "X")
    assert shardc.einsum("y: f32[I_X] = c[] + x[I_X]", 0.5, x).dtype == jnp.float32
    assert shardc.einsum("c: f32[] ⊙ x[I_X] → y[I_X]", 0.5, x).dtype == jnp.float32


def test_a_number_that_has_no_room_in_the_type_that_it_meets_is_refused():
    with pytest.raises(ShardcError, match="int8, the type that it meets, has no room") as error:
        shardc.einsum("y[I_X] = c[] + x[I_X]", 300, put(np.ones(8, "int8"), "X"))
    assert error.value.code == "SHC214"
