"""What is done with a product's tiles, in the choice of a plan: a collective between tells it apart, and takes more."""

import pytest

import shardc

DIMS = "B=32768,D=4096,K=4096"


def planned(text, topology="v5p:2x2x2"):
    return shardc.plan(text, mesh="X=2,Y=4", dims=DIMS, dtype="bf16", topology=topology, idle="keep")


def ops(plan):
    return [step.op for step in plan.steps]


@pytest.mark.parametrize(
    "text",
    [
        "y = o[B_Y, K_X] · W[K_X, D]; z[B_Y, D] = x[B_Y, D] + y",
        "z[B_Y, D] = x[B_Y, D] + o[B_Y, K_X] · W[K_X, D]",
    ],
)
def test_a_residual_stream_is_added_to_partial_sums_by_one_of_the_devices(text):
    """Added to the tiles, and then reduced: 1,233 µs of a plan that reduced first, and read and wrote both arrays."""
    assert ops(planned(text)) == ["Einsum", "Mask", "add", "AllReduce"]


def test_of_elements_it_is_their_product_that_is_gathered():
    """y ⊙ x of y as it is made, and then z: not of all of y, read and written again."""
    text = "y = o[B_Y, K] · W[K, D_X]; z[B_Y, D] = x[B_Y, D] ⊙ y"
    assert [op for op in ops(planned(text)) if op != "Slice"] == ["Einsum", "Einsum", "AllGather"]


@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2"])
@pytest.mark.parametrize(
    "function",
    [
        "relu({})",
        "x[B_Y, D] ⊙ gelu({})",
        "x[B_Y, D] - {}",
        "2 ⊙ {}",
        "relu(x[B_Y, D] + {})",
    ],
)
@pytest.mark.parametrize("product", ["(o[B_Y, K] · W[K, D_X])", "(o[B_Y, K_X] · W[K_X, D])"])
def test_where_statements_end_changes_no_price(product, function, topology):
    one = planned(f"z[B_Y, D] = {function.format(product)}", topology)
    two = planned(f"y = {product[1:-1]}; z[B_Y, D] = {function.format('y')}", topology)
    assert two.cost.time_s == pytest.approx(one.cost.time_s, rel=1e-9)
