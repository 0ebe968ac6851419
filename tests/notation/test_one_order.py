"""What a text writes several times is computed once, in whatever order its dims, or a product's operands, come."""

import numpy as np
import pytest

import shardc
from shardc.simulate import reference

PRODUCTS = ("V[F, K_X] ·_F W[E, F]", "W[E, F] ·_F V[F, K_X]", "(V[F, K_X] ⊙ c[F]) ·_F W[E, F]")
AROUND = ("{}", "gelu({})", "exp({} + b[K])", "tanh(square({}) / 2)")
READERS = (
    "y[E, K] = sum_K({0}) ⊙ {1}",
    "y[E, K] = {0} / (1 + sum_K({1}))",
    "y[K, E] = {0} ⊙ max_E({1})",
    "y[E] = sum_K({0}) ⊙ sum_K(square({1}))",
    "a[K, E] = {0}; y[E, K] = {1}",
    "a[K] = max_E({0}); y[E, K] = {1}",
)


def plan_of(text):
    return shardc.plan(text, mesh={"X": 2}, dims={"E": 6, "F": 2048, "K": 2048}, dtype="f32", chip="v5e")


PAIRS = [(reader, around) for reader in READERS for around in AROUND if around != "{}" or "sum_K({" not in reader]


@pytest.mark.parametrize(("reader", "around"), PAIRS)  # a sum of a product is a product by itself, with fewer dims
@pytest.mark.parametrize(("first", "second"), [(one, other) for one in PRODUCTS[:2] for other in PRODUCTS[:2]])
def test_a_product_is_done_once(reader, around, first, second):
    one, other = around.format(first), around.format(second)
    twice, once = plan_of(reader.format(one, other)), plan_of(f"p = {one}; {reader.format('p', 'p')}; return y")
    assert sum(step.flops > 2048 * 2048 for step in twice.steps) == 1
    assert twice.cost.time_s <= 1.02 * once.cost.time_s + 2e-6  # a transposition, where the text asks for both orders


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("product", PRODUCTS)
def test_the_meaning_is_that_of_two(reader, product):
    sizes = {"E": 3, "F": 4, "K": 6}
    text = reader.format(f"exp({product})", f"exp({PRODUCTS[0]})")
    program = shardc.parse(text, mesh={"X": 2}, dims=sizes, dtype="f32")
    rng = np.random.default_rng(0)
    given = {array.name: rng.standard_normal([sizes[dim] for dim in array.dims]) for array in program.inputs}
    c = given.get("c", np.ones(4))
    one = np.exp(np.einsum("fk,f,ef->ek", given["V"], c if "c" in product else np.ones(4), given["W"]))
    other = np.exp(np.einsum("fk,ef->ek", given["V"], given["W"]))
    wanted = {
        READERS[0]: one.sum(1, keepdims=True) * other,
        READERS[1]: one / (1 + other.sum(1, keepdims=True)),
        READERS[2]: (one * other.max(0)).T,
        READERS[3]: one.sum(1) * (other**2).sum(1),
        READERS[4]: other,
        READERS[5]: other,
    }
    np.testing.assert_allclose(reference(program, list(given.values()))[-1], wanted[reader], rtol=1e-9)


@pytest.mark.instant
def test_what_the_text_fixes_is_left_as_it_is():
    """A collective keeps the order in which its operand is written, and is done as often as it is named."""
    twice = "a[K, E] = V[F, K] ·_F W[E, F]; b[E, K] = AllReduce_X(W[E, F_X] ·_F V[F_X, K])"
    assert [step.op for step in plan_of(f"{twice}; c[E, K] = AllReduce_X(W ·_F V)").steps].count("AllReduce") == 2
