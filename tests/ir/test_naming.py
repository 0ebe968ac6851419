"""Programs by place: two that differ in names alone are one, and what is planned of it is the plan of each."""

import re

import pytest

import shardc
from shardc.ir.naming import by_place, named

ASKED = {"mesh": "X=2,Y=2", "dims": dict.fromkeys("IJKL", 64)}
TEXTS = [
    "A[I_X, J] · B[J, K_Y] → C[I, K_Y]",
    "T = relu(A[I_X, J] · B[J, K]); C[I, L] = T · D[K, L] + A · E[J, L]",
    "T[I, K] = A[I_X, J] · B[J, K]; C[I_Y, K] = AllGather_X(T[I_X, K]) ⊙ T; return C, T",
    "A[I_X, J_Y] → A[I_Y, J_X]",
    "A[I, J] = A[I_X, J]; C[I, J_Y] = -A + B[I, J]; return C",
]


def under(text, stem):
    """With other names for the arrays."""
    return re.sub(r"\b[A-HT]\b", lambda found: f"{stem}{found[0]}", text)


@pytest.mark.instant
@pytest.mark.parametrize("text", TEXTS)
def test_programs_that_differ_in_names_alone_are_one_and_others_are_not(text):
    one, other = (by_place(shardc.parse(under(text, stem), **ASKED)) for stem in ("x", "y_"))
    assert one[0] == other[0] and list(one[1]) == list(other[1])
    assert [*one[1].values()] == [name.replace("y_", "x") for name in other[1].values()]
    assert all(by_place(shardc.parse(each, **ASKED))[0] != one[0] for each in TEXTS if each != text)


@pytest.mark.instant
@pytest.mark.parametrize("text", TEXTS)
def test_under_its_names_the_plan_of_a_program_by_place_is_its_own(text):
    program = shardc.parse(text, **ASKED)
    placed, names = by_place(program)
    found = named(shardc.plan(placed).schedule, program, names)
    wanted = shardc.plan(program).schedule
    assert found.program == wanted.program and found == wanted


def test_a_program_with_a_loop_keeps_its_names():
    program = shardc.parse("for L { x = relu(x[I]) }", dims={"L": 2, "I": 4})
    assert by_place(program) == (program, {})
    schedule = shardc.plan(program).schedule
    assert named(schedule, program, {}) is schedule
