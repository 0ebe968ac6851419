"""Which vectors are read twice, that it means the same, and that it is priced, and compiled, as what it is."""

import pytest

import shardc
from shardc.emit import source
from shardc.ir.plan import Einsum
from shardc.lowering.lower import lower
from shardc.proving import Verdict, prove

V5E, V5P = "v5e:2x4", "v5p:2x2x2"
LARGE = {"N": 2048, "M": 4096, "P": 8, "B": 8, "H": 16, "T": 2048, "E": 128, "R": 4}


def planned(text, mesh="X=8", dims=LARGE, **options):
    return shardc.plan(text, **{"mesh": mesh, "dims": dims, "dtype": "bf16", "topology": V5E, "idle": "keep"} | options)


def twice(plan):
    """Of each product the operand that it reads twice."""
    forms = lower(plan.schedule).forms
    return [form.twice for form in forms if isinstance(getattr(form, "op", None), Einsum)]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "vector"),
    [
        ("w[N_X] = A[N_X, M] · v[M]", 1),
        ("w[N] = v[M] · A[M, N]", 0),
        ("w[N, P] = A[N, M] · v[P, M]", None),  # eight rows are a matrix
        ("w[N, R] = A[N, M] · v[R, M]", None),
        ("s[] = v[M] · u[M]", None),  # two vectors
        ("s[N] = A[N, M] · B[N, M]", None),
        ("w[N, M] = A[N, M] · v[M]", None),  # nothing is summed
        ("C[N, M] = v[N] · u[M]", None),
        ("w: f32[N] = A: f32[N, M] · v: f32[M]", None),  # which a product would round
        ("w: f32[N] = A[N, M] · v: f32[M]", None),
        ("S[B_X, H, T] = Q[B_X, H, E] · K[B_X, H, T, E]", 0),  # one sequence on each device
        ("S[B, H_X, T] = Q[B, H_X, E] · K[B, H_X, T, E]", None),
        ("S[B_X, H, R, T] = Q[B_X, H, R, E] · K[B_X, H, T, E]", None),
        ("S[H, T] = Q[H, E] · K[H, T, E]", None),
    ],
)
def test_a_vector_is_read_twice_where_a_device_has_one(text, vector):
    assert twice(planned(text)) == [vector]


def test_a_matrix_that_is_computed_as_it_is_read_is_part_of_the_loop():
    plan = planned("w[N] = (A[N, M] ⊙ B[N, M]) · v[M]")
    assert twice(plan) == [None, None] and "W_pass" in plan.steps[-1].formula
    assert "W_pass" not in planned("w[N] = A[N, M] · v[M]").steps[-1].formula


@pytest.mark.instant
@pytest.mark.parametrize(
    ("options", "vector"),
    [
        ({}, 1),
        ({"dims": LARGE | {"N": 8, "M": 128}}, None),  # a matrix of 2 kB
        ({"dims": LARGE | {"N": 2**22, "M": 2}}, 1),
        ({"dims": LARGE | {"N": 2**22, "M": 1}}, None),  # nothing is summed
        ({"dims": LARGE | {"N": 128}}, 1),  # of 1 MiB
        ({"dims": LARGE | {"N": 127}}, None),
        ({"topology": V5P}, 1),
        ({"topology": None}, None),  # no compiler is named
        ({"topology": None, "chip": "h100"}, None),
        ({"dtype": "f32"}, None),
        ({"dtype": "int8"}, None),
    ],
)
def test_only_of_large_matrices_of_bf16_for_a_tpu(options, vector):
    text = "w: int32[N] = A[N, M] · v[M]" if options.get("dtype") == "int8" else "w[N] = A[N, M] · v[M]"
    assert twice(planned(text, **options)) == [vector]


TEXTS = {
    "a matrix and a vector": "w[N_X] = A[N_X, M] · v[M]",
    "one sequence on each device": "S[B_X, H, T] = Q[B_X, H, E] · K[B_X, H, T, E]; O[B_X, H, E] = S · V[B_X, H, T, E]",
    "in a loop": "w[M] = v[M]; for L { w[M] = tanh(A[L, M, N] · w[N]) }; return w",
}


@pytest.mark.instant
@pytest.mark.parametrize("name", TEXTS)
def test_what_is_read_twice_is_proved_and_a_bug_in_it_is_seen(name):
    plan = planned(TEXTS[name], dims=LARGE | {"L": 3, "N": 2048, "M": 2048})
    text = source(plan.schedule, "v5e")
    assert "jnp.broadcast_to(" in text and prove(plan.schedule, text).holds
    wrong = [text.replace("[0]", "", 1), text.replace("->a", "->", 1), text.replace("2,) + ", "2, 2) + ", 1)]
    assert all(prove(plan.schedule, each).verdict is not Verdict.PROVED for each in wrong)


def test_the_letter_of_the_rows_is_one_that_the_product_has_not():
    text = planned("c[B_X, A, D] = a[B_X, A, E, F] · b[D, B_X, A, E, F]", dims=dict.fromkeys("ABDEF", 32)).source()
    assert "jnp.broadcast_to(" not in text
    text = planned("c[D] = a[A, B] · b[D, A, B]", dims=dict.fromkeys("ABD", 128)).source()
    assert '"cab,dab->cd"' in text


@pytest.mark.tpu
@pytest.mark.parametrize("topology", [V5E, V5P])
@pytest.mark.parametrize(
    ("text", "types"),
    [("w[N] = A[N, M] · v[M]", "bf16"), ("w[N] = A[N, M] · v[M]", "f32"), ("s[N] = A[N, M] · B[N, M]", "bf16")],
)
def test_what_a_matrix_and_a_vector_take_is_as_priced(text, types, topology):
    """As a product of bf16, else as the loop that it is: of 64 MiB a third of a price off is as much as either way."""
    plan = planned(text, dims={"N": 2048, "M": 16384}, dtype=types, topology=topology)
    replayed = plan.verify().replayed.step_s
    assert replayed == pytest.approx(plan.cost.time_s, rel=0.2)
