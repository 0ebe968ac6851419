"""In which order an expression's dims stand: that of an array, so that nothing is transposed to be met."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.ir.expressions import Call, Product, operands

MESH, DIMS = {"X": 2}, {"B": 8, "T": 4, "V": 6}


def order_of(text):
    program = shardc.parse(text, mesh=MESH, dims=DIMS)
    return program.statements[-1].expr


def all_of(expr):
    yield expr
    for each in operands(expr):
        yield from all_of(each)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("m = where(index_V == Token: int32[B_X, T], Score[B_X, T, V], 0)", "BTV"),
        ("m = where(Token: int32[B_X, T] == index_V, Score[V, B_X, T], 0)", "VBT"),
        ("m = index_V == Token: int32[B_X, T]", "VBT"),  # by itself in order of first use
        ("m = g[V] ⊙ x[B_X, V] + b[B_X, V]", "BV"),
        ("m = relu(g[V] ⊙ x[B_X, V]) - b[B_X, V]", "BV"),
        ("m = b[B_X, V] + g[V] ⊙ x[B_X, V]", "BV"),
        ("m = g[V] ⊙ x[B_X, V]", "VB"),
        ("m = W[V, T] · x[B_X, T] + b[B_X, V]", "BV"),
    ],
)
def test_the_order_is_that_of_an_array(text, dims):
    assert "".join(order_of(text).dims) == dims


@pytest.mark.instant
@settings(max_examples=20)
@given(st.permutations("BTV"), st.permutations("BTV"), st.sampled_from(["+", "⊙", "maximum"]))
def test_what_has_all_dims_has_them_in_one_order_below_an_array_of_them(order, other, function):
    """Each function of elements within one of an array has the array's order: no transpose is emitted but of arrays."""
    array = f"A[{', '.join(order)}]"
    mask = f"index_{other[0]} >= Token: int32[{other[1]}, {other[2]}]"
    met = (
        f"maximum({array}, where({mask}, 1, 0))" if function == "maximum" else f"{array} {function} where({mask}, 1, 0)"
    )
    for expr in all_of(order_of(f"C = where({mask}, {met}, 0)")):
        if isinstance(expr, Call | Product) and len(expr.dims) == 3:
            assert "".join(expr.dims) == "".join(order)


PRODUCT = "(x[B_X, T, E] ·_E W[V, E])"
MADE = [
    "relu({0})",
    "softmax_V({0})",
    "where(M: bool[B, T], {0}, 0)",
    "{0} / 2 + {0} ⊙ sqrt({0})",
    "f32({0})",
    "-{0} - 1",
]


@pytest.mark.instant
@settings(max_examples=30, deadline=None)
@given(st.permutations("BTV"), st.sampled_from(MADE))
def test_what_a_statement_makes_of_a_product_is_made_in_its_own_order(order, made):
    """So that the product leaves it, and nothing is transposed after."""
    for expr in all_of(order_of(f"y[{', '.join(order)}] = {made.format(PRODUCT)}")):
        if isinstance(expr, Call | Product) and len(expr.dims) == 3:
            assert "".join(expr.dims) == "".join(order)
            assert isinstance(expr, Call) or len(expr.operands) == 2
