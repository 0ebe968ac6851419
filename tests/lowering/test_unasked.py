"""Products of bf16 that exchanges alone read name no type to add up in, where a slice of TPUs is named."""

import numpy as np
import pytest

import shardc
from shardc.lowering.lower import lower
from shardc.lowering.spell import words
from shardc.proving import prove

CASES = {
    "T[I_X, J, L, M] = A[I_X, K] · B[K, J, L, M]; D[I, J_X, L, M] = T": ["T"],
    "T[I_X, J, L, M] = A[I_X, K] · B[K, J, L, M]; D[I, J_X, L, M] = T; E[I_X, J, L, M] = -T": [],  # read again
    "T[I_X, J, L, M] = A[I_X, K] · B[K, J, L, M]; D[I, J_X, L, M] = T; return T, D": [],
    "T[I_X, J, L, M] = relu(A[I_X, K] · B[K, J, L, M]); D[I, J_X, L, M] = T": [],
    "T[I, J_X, L, M] = A[I, K] · B[K, J_X, L, M]; D[I, J, L, M] = T": [],  # a gather
    "D[I, J_X, L, M] = A[I_X, J, L, M]": [],
    "T[I_X, J] = A[I_X, K] · B[K, J]; D[I, J_X] = T": [],  # of two dims
}
DIMS = {"I": 16, "J": 16, "K": 64, "L": 4, "M": 4}
TEXT = next(iter(CASES))


def planned(text, **more):
    return shardc.plan(text, **{"mesh": "X=4", "dims": DIMS, "topology": "v5p:2x2x1", "objective": "bytes"} | more)


def unasked(plan):
    forms = zip(plan.schedule.steps, lower(plan.schedule).forms, strict=True)
    found = [step.result for step, form in forms if "summed as the chip does" in words(form)]
    return [plan.schedule.values[number].name for number in found]


@pytest.mark.instant
@pytest.mark.parametrize("text", CASES)
def test_a_product_that_exchanges_alone_read_names_no_type(text):
    assert unasked(planned(text, idle="keep", overlap="off")) == CASES[text]


@pytest.mark.instant
@pytest.mark.parametrize("more", [{"dtype": "f32"}, {"topology": None}])
def test_one_of_another_type_or_for_no_slice_does(more):
    assert unasked(planned(TEXT, **more)) == []


def test_it_is_proved_for_tpus_alone():
    """Elsewhere nobody says that sums of bf16 are added up in more."""
    plan = planned(TEXT, overlap="off")
    assert "preferred_element_type" not in plan.source() and plan.prove().verdict.name == "PROVED"
    shorter = planned(TEXT, topology=None, overlap="off")
    assert prove(shorter.schedule, plan.source()).verdict.name == "WRONG"


def test_on_devices_that_are_simulated_it_adds_up_in_f32():
    """4,096 ones: were they added up in bf16, the sum would end at 256."""
    plan = planned(TEXT, dims={**DIMS, "K": 4096}, idle="keep", overlap="off")
    assert unasked(plan) == ["T"]
    left = plan.compile()(*(np.ones(shape, "bfloat16") for shape in ((16, 4096), (4096, 16, 4, 4))))
    assert (np.asarray(left, "float32") == 4096).all()


@pytest.mark.tpu
@pytest.mark.exhaustive
def test_what_it_leaves_is_not_copied_before_it_is_sent():
    text = "T[B, S_X, N, H] = A[B, S_X, J] · W[J, N, H]; D[B, S, N_X, H] = T"
    plan = shardc.plan(
        text, mesh="X=8", topology="v5p:2x2x2", overlap="off", dims={"B": 4, "S": 4096, "J": 2048, "N": 16, "H": 128}
    )
    kinds = [event.kind for event in plan.verify().replayed.events]
    assert "copy" not in kinds[: kinds.index("AllToAll")]
