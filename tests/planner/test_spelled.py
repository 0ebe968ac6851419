"""What a program costs does not depend on which of its functions have a statement of their own."""

import pytest
from hypothesis import example, given, settings
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


# In as few statements as can be, and each operation in a statement of its own; {} is where an array lies.
LONGER = {
    "three products": (
        "IJ JK KL LM IM",
        "Y[{4}] = relu(relu(A[{0}] ·_J B[{1}]) ·_K C[{2}]) ·_L D[{3}]",
        "p = A[{0}] ·_J B[{1}]; r = relu(p); q = r ·_K C[{2}]; s = relu(q); Y[{4}] = s ·_L D[{3}]",
    ),
    "a gate": (
        "IJ JK JK KM IM",
        "Y[{4}] = (silu(A[{0}] ·_J B[{1}]) ⊙ (A ·_J C[{2}])) ·_K D[{3}]",
        "p = A[{0}] ·_J B[{1}]; q = A ·_J C[{2}]; s = silu(p); h = s ⊙ q; Y[{4}] = h ·_K D[{3}]",
    ),
    "a norm": (
        "IJ JK IK",
        "Y[{2}] = (A[{0}] ⊙ rsqrt(mean_J(A ⊙ A) + 1e-6)) ·_J B[{1}]",
        "s = A[{0}] ⊙ A; m = mean_J(s); e = m + 1e-6; r = rsqrt(e); n = A ⊙ r; Y[{2}] = n ·_J B[{1}]",
    ),
    "two uses": (
        "IJ JK IK KM IM",
        "h = A[{0}] ·_J B[{1}] + C[{2}]; Y[{4}] = max_K(h) ⊙ (h ·_K D[{3}])",
        "w = A[{0}] ·_J B[{1}]; h = w + C[{2}]; m = max_K(h); o = h ·_K D[{3}]; Y[{4}] = m ⊙ o",
    ),
    "a loop": (
        "IJ JK KJ",
        "A[{0}] = X[{0}]; for N {{ A = A + relu((A ⊙ rsqrt(mean_J(A ⊙ A) + 1e-6)) ·_J B[{1}]) ·_K D[{2}] }}; return A",
        "A[{0}] = X[{0}]; for N {{ s = A ⊙ A; m = mean_J(s); n = A ⊙ rsqrt(m + 1e-6); h = n ·_J B[{1}]; r = relu(h); "
        "o = r ·_K D[{2}]; A = A + o }}; return A",
    ),
}


@st.composite
def longer(draw):
    kind = draw(st.sampled_from(sorted(LONGER)))
    dims, *texts = LONGER[kind]
    lie = [draw(arrays(each)) for each in dims.split()]
    return [text.format(*lie) for text in texts]


@pytest.mark.exhaustive
@settings(max_examples=25)
@given(
    longer(), st.sampled_from([{"X": 4}, {"X": 4, "Y": 2}, {"X": 4, "Y": 4}, {"X": 8, "Y": 2}]),
    st.tuples(*[SIZES] * 5), st.sampled_from(["v5e", "v5p"]),
)  # fmt: skip
def test_by_bytes_statements_of_their_own_cost_no_more(texts, mesh, sizes, chip):
    """No finer mesh was tried for as many statements as these: of 58 such programs 7 brought up to 16 % more. As one
    statement they may end the budget, and of an order of products a mesh may be found better: 2 % more in one of 70."""
    if "Y" not in mesh:
        texts = [text.replace("_XY", "_X").replace("_YX", "_X").replace("_Y", "") for text in texts]
    dims = dict(zip("IJKLMN", (*sizes, 3), strict=True))
    few, many = (
        shardc.plan(text, mesh=mesh, dims=dims, objective="bytes", chip=chip).cost.wire_bytes for text in texts
    )
    assert many <= 1.02 * few, texts


GATED = (  # what lies free between a norm and a gate; {} is where an array lies
    "n[{n}] = x[{x}] ⊙ rsqrt(mean_D(square(x)) + 1e-6); g[{g}] = n ·_D Wg[{w}]; u[{u}] = n ·_D Wu[{v}]; "
    "h[{h}] = silu(g) ⊙ u; y[{y}] = x + h ·_F Wd[{d}]"
)
GATES = ("x BD", "w DF", "v DF", "d FD", "y BD")
ON_THE_SECOND = {"x": "B_X, D", "w": "D, F_Y", "v": "D, F_XY", "d": "F, D", "y": "B, D_X"}  # mesh that is tried
FREE = {"n": "B_?, D_?", "g": "B_?, F_?", "u": "B_?, F_?", "h": "B_?, F_?"}


def gated(lie, sizes, mesh, chip="v5e", **written_out):
    text = GATED.format(**(FREE | lie | written_out))
    return shardc.plan(text, mesh=mesh, dims=sizes, objective="bytes", chip=chip).cost.wire_bytes


@pytest.mark.exhaustive
@settings(max_examples=25)
@given(
    st.fixed_dictionaries({name: arrays(dims) for name, dims in (each.split() for each in GATES)}),
    st.sampled_from("nguh"), arrays("B@"), st.sampled_from([{"X": 4, "Y": 2}, {"X": 4, "Y": 4}]),
    st.tuples(SIZES, SIZES, st.sampled_from([4096, 16384])),
)  # fmt: skip
@example(ON_THE_SECOND, "n", "B, @_XY", {"X": 4, "Y": 4}, (4096, 4096, 16384))
def test_by_bytes_what_lies_free_costs_no_more_than_written_out(lie, name, out, mesh, sizes):
    """Together on the first finer mesh alone, one brought 19 % more. Written out, what a product takes and leaves is
    looked at in digits, which may save some more: 3 % in the worst."""
    dims, written_out = dict(zip("BDF", sizes, strict=True)), {name: out.replace("@", "D" if name == "n" else "F")}
    assert gated(lie, dims, mesh) <= 1.03 * gated(lie, dims, mesh, **written_out), (lie, written_out)


@pytest.mark.instant
def test_what_lies_free_is_looked_at_together_on_each_finer_mesh():
    """On the first alone it brought 46,661,632."""
    assert gated(ON_THE_SECOND, {"B": 4096, "D": 4096, "F": 16384}, {"X": 4, "Y": 4}) <= 40370176


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "mesh", "sizes", "once", "now"),
    [
        (
            "p = Z[I, L_XY] ·_L V[L_X, J_Y]; r = relu(p); q = r ·_J B[J, K_X]; s = relu(q); "
            "Y[I_YX, L] = s ·_K C[K_YX, L]",
            "X=8,Y=2", {"I": 2048, "J": 8192, "K": 2048, "L": 2048}, 19660800, 18087936,
        ),
        (
            "w = A[I_Y, J_X] ·_J B[J_X, K]; h = w + C[I, K]; m = max_K(h); o = h ·_K D[K_Y, M_X]; Y[I_XY, M] = m ⊙ o",
            "X=4,Y=2", {"I": 1024, "J": 2048, "K": 8192, "M": 2048}, 13635072, 11798016,
        ),
        (
            "for N { n = A[I_Y, J_X] ⊙ rsqrt(mean_J(A ⊙ A) + 1e-6); h = relu(n ·_J B[N, J_XY, K]); "
            "A = A + h ·_K D[N, K_Y, J] }; return A",
            "X=4,Y=2", {"I": 4096, "J": 4096, "K": 16384, "N": 4}, 255893504, 226512896,
        ),
    ],
)  # fmt: skip
def test_a_finer_mesh_is_tried_wherever_statements_end(text, mesh, sizes, once, now):
    """In fewer statements it was: so each brought what it once did, up to 16 % more."""
    found = shardc.plan(text, mesh=mesh, dims=sizes, objective="bytes", chip="v5p")
    assert found.cost.wire_bytes <= now < once


@pytest.mark.instant
def test_a_function_between_products_leaves_room_for_a_finer_mesh():
    every = spellings("B_Y, D", "D, F_X", "F_X, E", "B_XY, E")
    dims = {"B": 2048, "D": 1024, "F": 1024, "E": 1024}
    found = [shardc.plan(each, mesh="X=4,Y=2", dims=dims, objective="bytes", chip="v5p").cost for each in every]
    assert {cost.wire_bytes for cost in found} == {1441792}
