"""Plans that keep a memory limit: what is alive before the last statement is lowered step by step."""

import pytest

import shardc
from shardc.cost import LinkModel, chip
from shardc.planner import Objective
from shardc.planner.idle import Idle
from shardc.planner.options import Options
from shardc.planner.planned import Planning
from shardc.planner.program.loops import planned_at_once
from shardc.planner.program.memory import Limited

ANY = 10**9
SIZES = {"I": 2, "J": 2, "K": 2, "L": 4, "M": 4}


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize(
    ("text", "mesh"),
    [
        ("T = A[I, J_X] · B[J, K]; S[I_Y, L] = T · C[K, L]", {"X": 2, "Y": 2}),
        ("T = A[I_Y, J_X] · B[J, K]; S[I_Y, L] = T · C[K, L_Y]", {"X": 2, "Y": 2}),
        ("T = A[I_X, J] · B[J, K_X]; S[I_X, L_Y] = T · C[K_Y, L_X]", {"X": 2, "Y": 2}),
        ("T = A[I, J] · B[J, K]; S[I, L_X] = T · C[K, L_X]", {"X": 2}),
    ],
)
def test_no_peak_before_the_last_statement_is_passed_over(text, mesh, objective):
    """Of arrays of a few bytes, where peaks are one byte apart: what any limit leads to is come by."""
    dims = {dim: size for dim, size in SIZES.items() if dim in text}
    program = shardc.parse(text, mesh=mesh, dims=dims, dtype="f8_e4m3fn")
    planning = Planning(objective, Idle.USE, planned_at_once)
    limited = Limited(program, LinkModel.of(program.mesh, chip("v5e")), ANY, planning)
    found = [planned.peaks for planned in limited.keeping(Options())]
    under = (limited._attempt(Options(memory=ANY, memory_before=most)) for most in range(max(found[0]) + 1))
    every = {planned.peaks for planned in under}
    assert every <= {*found}
    assert found[:-1] == sorted({*found}, reverse=True)
