"""What lies and moves as bf16 of a program in f32, by hand, and as the compiler has it."""

import pytest

import shardc
from shardc.lowering.rounded import as_kept, rounded

MESH, SIZES = {"X": 2, "Y": 4}, {"I": 65536, "J": 512, "K": 1024}


def block_of(text, topology="v5p:2x2x2"):
    plan = shardc.plan(text, mesh=MESH, dims=SIZES, topology=topology, dtype="f32", objective="bytes", overlap="off")
    return plan.schedule.block


def names(block, numbers):
    return {str(block.values[number]) for number in numbers}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("C[I_XY, K] = A[I_XY, J] · B[J_XY, K]", {"B[J, K]"}),  # gathered for a product
        (
            "D[J_XY, K] = relu(B[J_XY, K]); E = D[J, K]; C[I_XY, K] = A[I_XY, J] · E",
            {"D[J_XY, K]", "E[J, K]"},
        ),  # computed, then gathered
        ("E[K, J_XY] = B[J_XY, K]; C[I_XY, K] = A[I_XY, J] · E", {"E[K, J_XY]", "E[K, J]"}),  # turned, then gathered
        ("D[J, K] = B[J_XY, K]; C[I_XY, K] = A[I_XY, J] · D; E[J, K] = D + D", set()),  # read by others as well
        ("D[J, K] = B[J_XY, K]; C[I_XY, K] = A[I_XY, J] · D; return C, D", set()),  # an output
    ],
)
def test_what_products_alone_read_is_rounded(text, expected):
    block = block_of(text)
    assert names(block, rounded(block)) == expected
    kept = as_kept(block).values
    assert {str(one) for one, other in zip(block.values, kept, strict=True) if one.dtype != other.dtype} == expected


def test_sums_that_products_read_are_added_up_as_they_are():
    block = block_of("D[J, K] = B[J, K]{U_XY}; C[I_XY, K] = A[I_XY, J] · D")
    assert names(block, rounded(block)) == {"D[J, K]"} and as_kept(block) == block


@pytest.mark.tpu
@pytest.mark.exhaustive
def test_experts_and_their_gradients_move_what_is_planned():
    """Four gathers, each sliced before products read it, took half the bytes, and were no match."""
    text = """Dispatched = Dispatch[G_X, S, E, C] ·_S x[G_X, S, M]
In[E_X, G, C, M] = Dispatched
Hidden = relu(In ·_M Wi[E_X, M, H_Y])
Out[E_X, G, C, M] = Hidden ·_H Wo[E_X, H_Y, M]
y[G_X, S, M] = Combine[G_X, S, E, C] ·_{E,C} Out"""
    dims = {"G": 8, "S": 128, "M": 256, "E": 8, "C": 4, "H": 512}
    program = shardc.parse(text, mesh=MESH, dims=dims, topology="v5p:2x2x2", dtype="f32")
    found = shardc.plan(shardc.grad(program, whole=True)).verify()
    assert found.agrees and sum("bf16" in match.remark for match in found.steps) >= 4
