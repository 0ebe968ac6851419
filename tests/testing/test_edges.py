"""Wrong rewrites that only 0, ties, signs or large numbers tell from right ones; and right ones that these must leave.

Distinct whole numbers, none of them 0 and few of them large, passed every wrong one of these.
"""

import jax
import jax.numpy as jnp
import pytest

import shardc
from shardc.ir.dtypes import DTYPES
from shardc.testing import assert_equivalent, assert_matches_reference, assert_rewrite, conditions, holds_on
from shardc.testing.edges import EDGES

WRONG = {  # two expressions that are not the same, of int32
    "one for none": ("where(A[I_X] == 0, 1, A[I_X])", "A[I_X]"),
    "a number other than 0": ("where(A[I_X] == 0, 0, 1)", "where(A[I_X] == A[I_X], 1, 0)"),
    "the least of a bound": ("minimum(A[I_X], 100000)", "A[I_X]"),
    "the most of a bound": ("maximum(A[I_X], 0 - 100000)", "A[I_X]"),
    "a bound and a larger one": ("minimum(A[I_X], 5000)", "minimum(A[I_X], 6000)"),
    "the floor of a part": ("floor(A[I_X] / 10000)", "floor(A[I_X] / 20000)"),
    "as much, and more": ("where(A[I_X] >= B[I_X], 1, 0)", "where(A[I_X] > B[I_X], 1, 0)"),
    "equal, and never": ("A[I_X] == B[I_X]", "A[I_X] < A[I_X] + 0 * B[I_X]"),
    "which of two equals": ("where(A[I_X] > B[I_X], 1, 2)", "where(A[I_X] < B[I_X], 2, 1)"),
    "0 as positive": ("where(A[I_X] >= 0, 1, 0)", "where(A[I_X] > 0, 1, 0)"),
    "the sign of 0": ("sign(A[I_X])", "where(A[I_X] < 0, 0 - 1, 1)"),
    "relu up to 6": ("minimum(relu(A[I_X]), 30000)", "relu(A[I_X])"),
    "the size up to a bound": ("abs(A[I_X])", "minimum(abs(A[I_X]), 20000)"),
    "1 and its square": ("where(A[I_X] == 1, 0, A[I_X])", "A[I_X]"),
    "a square of two": ("where(A[I_X] * B[I_X] == 0, 7, A[I_X])", "A[I_X] + 0 * B[I_X]"),
    "a far threshold": ("where(A[I_X] > 1000000, 1, A[I_X])", "A[I_X]"),
}
ALREADY = ("1 and its square",)  # 1 was drawn
RIGHT = {  # two expressions that are the same, but for what rounds, overflows or is no number
    "a bound of itself": ("minimum(A[I_X], A[I_X])", "A[I_X]"),
    "more, the other way": ("A[I_X] > B[I_X]", "B[I_X] < A[I_X]"),
    "a log of 0 and less": ("log(A[I_X]) * 2", "log(A[I_X]) + log(A[I_X])"),
    "nothing by nothing": ("A[I_X] / B[I_X]", "0 - (0 - A[I_X]) / B[I_X]"),
    "exp that overflows": ("exp(A[I_X]) / exp(A[I_X])", "exp(A[I_X]) * exp(0 - A[I_X])"),
    "a sigmoid": ("sigmoid(A[I_X])", "1 / (1 + exp(0 - A[I_X]))"),
    "a cube": ("A[I_X] * A[I_X] * A[I_X]", "A[I_X] * square(A[I_X])"),
    "cubes of which a type has few": ("relu(A[I_X] * A[I_X] * A[I_X])", "A[I_X] * A[I_X] * relu(A[I_X])"),
    "relu": ("relu(A[I_X])", "maximum(A[I_X], 0)"),
    "which is more": ("where(A[I_X] >= B[I_X], A[I_X], B[I_X])", "maximum(A[I_X], B[I_X])"),
    "its size": ("abs(A[I_X])", "maximum(A[I_X], 0 - A[I_X])"),
}


# Of distinct numbers `assert_rewrite` compares exactly, so that what rounds there is not for it.
ROUND = ("a log of 0 and less", "exp that overflows", "a sigmoid")


def both(texts, kind="int32"):
    return [f"dtype {kind}; C[I_X] = {text}" for text in texts]


@pytest.mark.instant
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rewrite_is_found_at_an_edge_and_said_where(name):
    with pytest.raises(AssertionError) as caught:
        assert_rewrite(*both(WRONG[name]))
    said = str(caught.value).splitlines()[0]
    assert said.startswith("on mesh X=1; I=")
    assert name in ALREADY or ", of inputs among -" in said


@pytest.mark.parametrize("kind", ["f32", "bf16", "int32"])
@pytest.mark.parametrize("name", WRONG)
def test_it_is_found_in_floats_by_each_way_to_ask(name, kind):
    one, other = both(WRONG[name], kind)
    assert conditions(one, other, max_size=2) == "never"
    assert not holds_on(one, other, {"X": 2})
    with pytest.raises(AssertionError):
        assert_equivalent(one, other)
    with pytest.raises(AssertionError):
        assert_equivalent(shardc.plan(one, mesh={"X": 2}, dims="I=64"), other)


@pytest.mark.parametrize("kind", ["f32", "bf16", "int32"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_rewrite_is_left_alone(name, kind):
    if kind == "int32" and any(word in RIGHT[name][0] for word in ("log", "exp", "sigmoid")):
        kind = "f16"  # which overflows soonest
    one, other = both(RIGHT[name], kind)
    assert_equivalent(one, other)
    if name not in ROUND:
        assert_rewrite(one, other)
        assert conditions(one, other, max_size=2) == "always"


SCORES = "S[I_X, J] = Q[I_X, D] · K[J, D]"
SOFTMAX = f"{SCORES}; C[I_X, D] = softmax_J(S[I_X, J]) · V[J, D]"
BY_HAND = f"{SCORES}; P[I_X, J] = exp(S[I_X, J]); W[I_X] = sum_J(P[I_X, J]); C[I_X, D] = P[I_X, J] · V[J, D] / W[I_X]"


def test_a_softmax_that_overflows_is_the_same_as_one_that_does_not():
    assert_equivalent(SOFTMAX, BY_HAND)


WRONG_FUNCTIONS = {  # of one array, and what it is not
    "0 as positive": (lambda a: jnp.where(a >= 0, 1, 0).astype(a.dtype), "where(A[I_X] > 0, 1, 0)"),
    "an upper bound": (lambda a: jnp.minimum(a, 300), "A[I_X]"),
    "a slope at 0": (lambda a: jnp.where(a == 0, 1, a), "A[I_X]"),
    "relu of no more than 6": (jax.nn.relu6, "relu(A[I_X])"),
    "a root that is safe": (lambda a: jnp.sqrt(jnp.abs(a) + 1).astype(a.dtype), "sqrt(abs(A[I_X]))"),
}
RIGHT_FUNCTIONS = {
    "softmax": (lambda a: jax.nn.softmax(a), "softmax_I(A[I])"),
    "softmax as it is written": (lambda a: jnp.exp(a) / jnp.exp(a).sum(), "softmax_I(A[I])"),
    "a log": (lambda a: jnp.log(jnp.abs(a)), "log(abs(A[I_X]))"),
    "an exponential": (jnp.exp, "exp(A[I_X])"),
    "a share": (lambda a: a / a.sum(), "A[I] / sum_I(A[I])"),
    "relu": (jax.nn.relu, "relu(A[I_X])"),
    "a sigmoid": (jax.nn.sigmoid, "sigmoid(A[I_X])"),
    "the mean of squares": (lambda a: (a * a).mean(), "mean_I(square(A[I]))"),
}


@pytest.mark.devices
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("name", WRONG_FUNCTIONS)
def test_a_wrong_function_is_found_at_an_edge(name, kind):
    function, text = WRONG_FUNCTIONS[name]
    with pytest.raises(AssertionError, match=r"on mesh X=1; I="):
        assert_matches_reference(function, f"B[I_X] = {text}", dtype=kind)


@pytest.mark.devices
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("name", RIGHT_FUNCTIONS)
def test_a_right_function_is_left_alone(name, kind):
    function, text = RIGHT_FUNCTIONS[name]
    result = "B[]" if name.startswith("the mean") else "B[I_X]" if "I_X" in text else "B[I]"
    assert_matches_reference(function, f"{result} = {text}", dtype=kind, mesh={"X": 1})


@pytest.mark.devices
def test_a_program_that_overflows_is_no_measure_of_a_function():
    one, other = RIGHT["cubes of which a type has few"]
    assert_matches_reference(lambda a: a * a * jax.nn.relu(a), f"C[I_X] = {one}", dtype="int32")
    assert_matches_reference(lambda a: jax.nn.relu(a * a * a), f"C[I_X] = {other}", dtype="int32")


@pytest.mark.devices
@pytest.mark.parametrize("kind", ["int32", "int8", "bf16"])
def test_large_numbers_that_overflow_in_both_types_alike_are_not_judged(kind):
    """Of int8 96 · 3 is no number; in a wider type the two are the same."""
    halves = (lambda a: a + a - a, lambda a: jnp.maximum(a * 4 - a * 3, -a * 2 + a * 3))
    assert_rewrite(*halves, inputs=[f"A: {kind}[I_X]"], max_size=2)
    with pytest.raises(AssertionError, match="of inputs among"):
        assert_rewrite(lambda a: a, lambda a: jnp.minimum(a, 50), inputs=[f"A: {kind}[I_X]"], max_size=2)


@pytest.mark.instant
@pytest.mark.parametrize("kind", DTYPES)
def test_what_is_drawn_at_edges_is_in_its_type_and_meets_in_every_way(kind):
    dtype = DTYPES[kind]
    for edge in EDGES:
        for values in edge.inputs([((12,), dtype)] * 2) or []:
            with jax.enable_x64(True):
                kept = jnp.asarray(values, jnp.dtype(dtype.jax))
                assert (kept.astype(values.dtype) == values).all()
    if not dtype.moves and not kind.startswith("u"):
        first, second = EDGES[0].inputs([((12,), dtype)] * 2)
        assert len({*zip(first.tolist(), second.tolist(), strict=True)}) == 9


# --- what rounds on the way, where the program does not

BF16, F32 = jnp.bfloat16, jnp.float32
NARROW = "C: f32[I, K] = A: bf16[I, J_X] · B: bf16[J_X, K]"
WIDE = "C: f32[I, K] = A: f32[I, J_X] · B: f32[J_X, K]"


def summed(text, local, reduced=F32, given=lambda array: array):
    """A function of a text: the local product in one type, its sum over X in another."""

    def function(a, b):
        found = jnp.einsum("ij,jk->ik", given(a), given(b), preferred_element_type=local)
        return jax.lax.psum(found.astype(reduced), "X").astype(F32)

    def whole(a, b):
        return jax.shard_map(function, in_specs=(jax.P(None, "X"), jax.P("X")), out_specs=jax.P())(a, b)

    return text, whole


ROUNDED = {
    "a product and its sum in bf16": summed(NARROW, BF16, BF16),
    "a sum over devices in bf16": summed(NARROW, F32, BF16),
    "a product of f32 in bf16": summed(WIDE, F32, F32, lambda array: array.astype(BF16)),
    "a sum of f32 in bf16": summed(WIDE, F32, BF16),
    "a sum of f32 in f16": summed(WIDE, F32, jnp.float16),
}
EXACT = {
    "a product of bf16 in f32": summed(NARROW, F32),
    "a product of f32 in f32": summed(WIDE, F32),
    "bf16 cast first": summed(NARROW, F32, F32, lambda array: array.astype(F32)),
}


@pytest.mark.devices
@pytest.mark.parametrize(("text", "function"), ROUNDED.values(), ids=ROUNDED)
def test_what_rounds_where_the_program_does_not_is_found_with_no_sizes_given(text, function):
    with pytest.raises(AssertionError, match="is wanted"):
        assert_matches_reference(function, text)


@pytest.mark.devices
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("text", "function"), EXACT.values(), ids=EXACT)
def test_what_rounds_as_the_program_does_is_left(text, function, seed):
    assert_matches_reference(function, text, seed=seed)
