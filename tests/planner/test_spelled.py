"""What a program costs does not depend on which of its functions have a statement of their own."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import shardc

AXES = st.sampled_from(["", "X", "Y", "XY"])
SIZES = st.sampled_from([1024, 2048, 4096])


@st.composite
def arrays(draw, dims):
    """Its dims with the axes that each lies over, no axis at both."""
    first = draw(AXES)
    second = draw(AXES.filter(lambda axes: not {*axes} & {*first}))
    return ", ".join(dim + (f"_{axes}" if axes else "") for dim, axes in zip(dims, (first, second), strict=True))


def spellings(x, w, v, o):
    """An MLP's two products, and a function between them: in the first's statement, in the second's, in its own."""
    yield f"O[{o}] = relu(x[{x}] ·_D W[{w}]) ·_F V[{v}]"
    yield f"h[B_?, F_?] = relu(x[{x}] ·_D W[{w}]); O[{o}] = h · V[{v}]"
    yield f"h[B_?, F_?] = x[{x}] · W[{w}]; O[{o}] = relu(h) · V[{v}]"
    yield f"h[B_?, F_?] = x[{x}] · W[{w}]; r = relu(h); O[{o}] = r · V[{v}]"
    yield f"h[B_?, F_?] = x[{x}] · W[{w}]; r = relu(h); s = 2 ⊙ r; t = s / 2; O[{o}] = t · V[{v}]"


@pytest.mark.exhaustive
@given(
    arrays("BD"), arrays("DF"), arrays("FE"), arrays("BE"),
    st.sampled_from([{"X": 4, "Y": 2}, {"X": 2, "Y": 4}, {"X": 4, "Y": 4}]), st.tuples(*[SIZES] * 4),
)  # fmt: skip
@example("B_Y, D", "D, F_X", "F_X, E", "B_XY, E", {"X": 4, "Y": 2}, (2048, 1024, 1024, 1024))
@example("B_XY, D", "D, F_X", "F, E_XY", "B_Y, E_X", {"X": 4, "Y": 4}, (4096, 4096, 1024, 1024))
def test_by_bytes_a_function_costs_the_same_in_a_statement_of_its_own(x, w, v, o, mesh, sizes):
    """With one more statement a finer mesh was not tried, and 19 of 45 such programs brought up to 28 % more. With
    three more of them the budget may end before the best of finer meshes is found: 7 % more in one of 60."""
    dims = dict(zip("BDFE", sizes, strict=True))
    found = [
        shardc.plan(text, mesh=mesh, dims=dims, objective="bytes", chip="v5p").cost.wire_bytes
        for text in spellings(x, w, v, o)
    ]
    assert len({*found[:-1]}) == 1 and found[0] <= found[-1] <= 1.08 * found[0], found


@pytest.mark.instant
def test_a_function_between_products_leaves_room_for_a_finer_mesh():
    every = spellings("B_Y, D", "D, F_X", "F_X, E", "B_XY, E")
    dims = {"B": 2048, "D": 1024, "F": 1024, "E": 1024}
    found = [shardc.plan(each, mesh="X=4,Y=2", dims=dims, objective="bytes", chip="v5p").cost for each in every]
    assert {cost.wire_bytes for cost in found} == {1441792}
