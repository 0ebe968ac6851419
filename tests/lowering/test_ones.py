"""Which sums are products with ones, that they are proved, and that they take what is priced."""

import pytest

import shardc
from shardc.emit import source
from shardc.ir.plan import Einsum, Loop
from shardc.lowering.lower import lower
from shardc.proving import prove

ONES = "jnp.broadcast_to(jnp.bfloat16(1), "
SIZES = {"I": 4096, "J": 2048, "K": 1024, "B": 8, "T": 512, "D": 2048, "L": 2}
A, B, W = "A[I, J]", "B[I, J]", "W[J, K]"
# Of each sum of a program whether it is one.
TEXTS = {
    f"C[I] = sum_J({A})": [True],
    f"C[J] = sum_I({A})": [True],
    f"C[J] = mean_I({A})": [True],
    "C[D] = sum_{B,T}(A[B, T, D])": [True],
    "C[B, D] = sum_T(A[B, T, D])": [True],
    "C[T] = sum_{B,D}(A[B, T, D])": [False],  # which stand apart
    "C[T, D] = sum_B(A[B, T, D])": [False],  # of few numbers each
    "C: f32[I] = sum_J(A[I, J])": [True],
    "C[I] = sum_J(A: f32[I, J])": [False],
    f"C[I] = sum_J(f32({A}))": [False],
    # of what is computed, as it is read
    f"C[I] = sum_J(square({A}))": [True],
    f"C[I] = sum_J({A} ⊙ {B})": [True],
    f"C[I, J] = {A} ⊙ rsqrt(mean_J(square(A)) + 1e-6)": [True],
    f"n = {A} ⊙ rsqrt(mean_J(square(A)) + 1e-6); C[I, K] = n · {W}": [True],
    # with others of the same, each by itself
    f"C[I] = sum_J({A}); D[J] = sum_I(square(A))": [True, True],
    # beside a loop that reads as much and writes
    f"C[I, J] = relu({A}); D[I] = sum_J(A)": [False],
    f"C[I, J] = {A} + {B}; D[I] = sum_J(C); return C, D": [False],
    f"C[I, J] = relu({A}); D[I] = sum_J({B})": [True],
    # with a product's tiles; where these met another array it is by itself
    f"h = {A} · {W}; C[I] = sum_K(relu(h)); return C, h": [False],
    f"y = X[I, K] + {A} · {W}; C[I, K] = y ⊙ rsqrt(mean_K(square(y)) + 1e-6)": [False],  # it is told how to lie
    f"y = X[I, K] + {A} · {W}; n = y ⊙ rsqrt(mean_K(square(y)) + 1e-6); C[I, J] = n · W; return C": [True],
    # what a softmax leaves is at hand
    f"P = softmax_J({A}); C[J] = sum_I(P); return P, C": [False],
    # nor exponentials: of given scores the loop takes less
    "S[I, J_X] = softmax_J(A[I, J_X])": [False],
    "for L { C[L, I] = sum_J(A[L, I, J]) }\nreturn C": [True],
}


def planned(text, times=1, **options):
    dims = {dim: size * times for dim, size in SIZES.items() if dim in text}
    asked = {"mesh": "X=2,Y=2", "topology": "v5e:2x2", "dtype": "bf16", "idle": "keep"} | options
    return shardc.plan(text, dims=dims, **asked)


def lowered(plan):
    """Of each sum whether it is a product with ones."""

    def of(block, lowering):
        for step, form in zip(block.steps, lowering.forms, strict=True):
            if isinstance(step.op, Loop):
                yield from of(step.op.body, form.body)
            elif isinstance(step.op, Einsum) and len(step.operands) == 1:
                yield form.by_product

    return [*of(plan.schedule.block, lower(plan.schedule))]


@pytest.mark.instant
@pytest.mark.parametrize("text", TEXTS)
def test_sums_of_what_lies_in_memory_are_products_with_ones(text):
    assert lowered(planned(text)) == TEXTS[text]


def test_of_a_slice_of_tpus_alone():
    assert lowered(planned(f"C[I] = sum_J({A})", topology=None, chip="v5e")) == [False]


@pytest.mark.instant
@pytest.mark.parametrize("text", [text for text, found in TEXTS.items() if any(found) and "for" not in text])
def test_they_are_priced_as_what_they_read(text):
    """As its loop the sum alone takes more than twice as long."""
    plan = planned(text)
    sums = [step for step, so in zip(_sums(plan), TEXTS[text], strict=True) if so]
    assert all("W_read" in step.cost.formula and "W_pass" not in step.cost.formula for step in sums)
    assert sum(step.cost.time_s for step in sums) <= 2.4 * len(sums) * 2 * 4096 * 2048 / 6e11


def _sums(plan):
    return [step for step in plan.schedule.steps if isinstance(step.op, Einsum) and len(step.operands) == 1]


@pytest.mark.instant
@pytest.mark.parametrize("text", [text for text, found in TEXTS.items() if any(found)])
def test_they_are_proved_and_a_bug_in_one_is_seen(text):
    plan = planned(text)
    emitted = source(plan.schedule, "v5e")
    assert ONES in emitted and prove(plan.schedule, emitted).holds
    assert not prove(plan.schedule, emitted.replace("jnp.bfloat16(1)", "jnp.bfloat16(2)")).holds


@pytest.mark.tpu
@pytest.mark.parametrize(
    "text, topology",
    [
        ("C[D_Y] = sum_{B,T}(A[B_X, T, D_Y])", "v5e:2x2"),
        pytest.param("C[I_X] = sum_J(square(A[I_X, J]))", "v5p:2x2x1", marks=pytest.mark.exhaustive),
        pytest.param("C[B_X, D] = mean_T(A[B_X, T, D])", "v5e:2x2", marks=pytest.mark.exhaustive),
    ],
)
def test_they_take_what_is_priced(text, topology):
    pytest.importorskip("libtpu")
    plan = planned(text, times=4, topology=topology)
    assert any(lowered(plan)) and plan.verify().replayed.step_s == pytest.approx(plan.cost.time_s, rel=0.25)
