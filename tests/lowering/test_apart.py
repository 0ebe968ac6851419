"""What is told apart from its readers: sums read along the dims that they are taken over, and keys."""

from pathlib import Path

import pytest

import shardc
from shardc.lowering.lower import lower
from shardc.lowering.spell import words

CASES = {
    "s[I] = sum_J(A[I, J] ⊙ B[I, J]); C[I, J] = A - s": ["s"],
    "s[J] = sum_I(A[I, J]); C[I, J] = A ⊙ s": ["s"],
    "s[I] = sum_J(A[I, J]); t = s + 1; C[I, J] = A - t": [],  # something is between
    "s[I] = sum_J(A[I, J]); C[I] = s + D[I]": [],  # not read along J
    "s[I] = A[I, J] · D[J]; C[I, K] = s ⊙ B[I, K]": [],
    "s[I] = A[I, J] · B[J, I]; C[I, J] = A ⊙ s": ["s"],
    "s[I] = max_J(A[I, J]); C[I, J] = A - s": [],
    "y[I, J] = X[I, J] + A[I, K] · B[K, J]; s = sum_J(y ⊙ y) + 1; C[I, J] = y ⊙ s": ["y"],  # a product's tiles meet X
    "y[I, J] = X[I, J] + A[I, K] · B[K, J]; s = sum_J(y) + 1; C[I, J] = y ⊙ s": ["y"],  # read twice
    "y[I, J] = X[I, J] + A[I, K] · B[K, J]; s[I] = sum_J(y)": [],  # which nothing else reads
    "y[I, J] = X[I, J] + A[I, K] · B[K, J]; z = relu(y); C[I, J] = y ⊙ z": [],  # nor sums
    "s[I] = sum_J(A[I, J]); C[I, J] = s · B[I, J]": ["s"],
    "s[I] = sum_J(A[I, J]); C[I, K] = s · B[I, K]": [],
    "y[I, J] = D[J] + A[I, K] · B[K, J]; s = sum_J(y) + 1; C[I, J] = y ⊙ s": [],  # D is no larger than a row
    "y[I, J] = A[I, K] · B[K, J]; s = sum_J(y) + 1; C[I, J] = y ⊙ s": [],
    "y[I, J] = X[I, J] + A[I, J]; s = sum_J(y) + 1; C[I, J] = y ⊙ s": [],
}


def apart(plan):
    forms = zip(plan.schedule.steps, lower(plan.schedule).forms, strict=True)
    return [plan.schedule.values[step.result].name for step, form in forms if "behind a barrier" in words(form)]


@pytest.mark.instant
@pytest.mark.parametrize("text", CASES)
def test_a_sum_that_is_read_along_its_dims_is_told_apart(text):
    dims = {"I": 8, "J": 8, "K": 8}
    assert apart(shardc.plan(text, mesh="X=2", dims=dims, idle="keep")) == CASES[text]
    on_gpus = shardc.plan(text, mesh="X=2", dims=dims, idle="keep", chip="h100")
    assert apart(on_gpus) == []


def test_one_that_an_allreduce_ends_is_read_from_that():
    text = "s[I] = sum_J(A[I, J_X] ⊙ B[I, J_X]); C[I, J_X] = A - s"
    plan = shardc.plan(text, mesh="X=2", dims={"I": 1024, "J": 8192}, idle="keep")
    assert [step.op for step in plan.steps].count("AllReduce") == 1 and apart(plan) == []


def test_tiles_that_an_allreduce_ends_meet_nothing():
    text = "y[I, J] = X[I, J] + A[I, K_X] · B[K_X, J]; s = sum_J(y) + 1; C[I, J] = y ⊙ s"
    assert apart(shardc.plan(text, mesh="X=2", dims={"I": 1024, "J": 8192, "K": 512}, idle="keep")) == []


ATTENTION = """K[B, S, H_X, E] = x[B, S, D] · W[D, H_X, E]
Score[B, T, H_X, S] = q[B, T, H_X, E] · K / sqrt(|E|)
y[B, T, H_X, E] = softmax_S(where(index_T >= index_S, Score, -inf)) · v[B, S, H_X, E]"""


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ATTENTION, ["K"]),
        (ATTENTION + "; return y, K", []),  # an output
        (ATTENTION + "; z[B, S, D] = K · U[H_X, E, D]", []),  # another reads it too
        ("T[I, K] = A[I, J] · B[J, K]; C[I, L] = T · D[K, L]", []),  # no batches
        ("T[B, I, K] = A[B, I, J] · C[J, K]; O[B, I, L] = relu(T) · D[B, K, L]", []),  # of a function of it
    ],
)
def test_keys_are_told_apart_from_scores(text, told):
    dims = {"B": 2, "T": 8, "S": 8, "H": 4, "E": 8, "D": 8, "I": 8, "J": 8, "K": 8, "L": 8}
    used = {dim: size for dim, size in dims.items() if dim in text}
    asked = {"mesh": "X=4", "dims": used, "idle": "keep"}
    assert apart(shardc.plan(text, topology="v5p:2x2x1", **asked)) == told
    assert apart(shardc.plan(text, topology="v5e:2x2", **asked)) == apart(shardc.plan(text, **asked)) == []


@pytest.mark.tpu
@pytest.mark.long
def test_scores_take_no_longer_than_their_own_product():
    """What devices compute takes 1.17 times its price; with keys made in the loop of scores 1.52."""
    text = (Path(__file__).parents[2] / "examples/causal_attention.shard").read_text()
    dims = {"B": 8, "T": 4096, "S": 4096, "H": 32, "E": 128, "D": 4096}
    plan = shardc.plan(text, dims=dims, topology="v5p:2x2x2", dtype="bf16")
    assert plan.verify().replayed.compute_s < 1.3 * plan.cost.compute_s


@pytest.mark.tpu
@pytest.mark.exhaustive
@pytest.mark.parametrize("topology", ["v5p:2x2x1", "v5e:2x2"])
def test_a_residual_stream_and_its_norm_take_no_longer_than_their_loops(topology):
    """Without a barrier 1.14 to 1.27 times this."""
    text = """y[I, J] = X[I, J] + A[I, K] · B[K, J]
n = y ⊙ rsqrt(mean_J(square(y)))
C[I, K] = n · D[J, K]
E[I, J] = y + C · F[K, J]"""
    plan = shardc.plan(text, mesh="X=2,Y=2", dims={"I": 4096, "J": 4096, "K": 2048}, topology=topology, idle="keep")
    assert plan.verify().replayed.compute_s < 1.05 * plan.cost.compute_s


def test_it_is_written_with_a_barrier():
    plan = shardc.plan(next(iter(CASES)), mesh="X=2", dims={"I": 8, "J": 8}, idle="keep")
    (line,) = (line for line in plan.source().splitlines() if "optimization_barrier" in line)
    assert line.strip().startswith("s = jax.lax.optimization_barrier(s)")


@pytest.mark.tpu
@pytest.mark.long
def test_the_gradient_of_scaled_and_masked_scores_is_no_reduce_window():
    """Without a barrier it took 1.23 times this, and a third more of temporaries."""
    text = """S1[B, G, R, T, S] = Q[B, G, R, T, E] · K[B, G, S, E] / 3
P = softmax_S(where(index_T >= index_S, S1, -inf))
O[B, G, R, T, E] = P · V[B, G, S, E]"""
    dims = {"B": 2, "G": 2, "R": 4, "T": 2048, "S": 2048, "E": 128}
    scores = 2 * 2 * 2 * 4 * 2048 * 2048
    program = shardc.grad(shardc.parse(text, mesh="X=2,Y=2", dims=dims, topology="v5p:2x2x1"), whole=True)
    found = shardc.plan(program, idle="keep").verify()
    assert found.compiled_memory.temporary_bytes < 3.2 * scores
