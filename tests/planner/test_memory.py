"""Plans that keep a memory limit: what is alive before the last statement is lowered step by step; and refusals."""

import re
from dataclasses import replace

import pytest

import shardc
from shardc.cost import LinkModel, chip
from shardc.errors import ShardcError
from shardc.ir.refine import refinement
from shardc.planner import Objective, plan_program, plan_with_subaxes
from shardc.planner.budget import Budget
from shardc.planner.idle import Idle
from shardc.planner.options import Options
from shardc.planner.planned import Planning
from shardc.planner.program import progress
from shardc.planner.program.finer import Finer, _Best
from shardc.planner.program.loops import planned_at_once
from shardc.planner.program.memory import Limited
from shardc.planner.program.plan import AsGiven

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


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize(
    "text",
    [
        "T = A[I_?, J_?] · B[J, K_Y]; S[I_Y, L_X] = relu(T) · C[K_?, L_?]",
        "T = A[I_?, J_?] · B[J_?, K_?]; S[I_X, L] = T · C[K_?, L_?]",
    ],
)
def test_a_refusal_names_the_leanest_plan_that_is_known(text, objective):
    program = shardc.parse(text, mesh={"X": 2, "Y": 2}, dims=dict.fromkeys("IJKL", 64), dtype="bf16")
    model = LinkModel.of(program.mesh, chip("v5p"))
    with pytest.raises(ShardcError, match="SHC410") as refusal:
        plan_with_subaxes(program, model, objective, 1)
    named = int(re.search(r"the smallest peak found is (\d+)", str(refusal.value))[1])
    as_given = AsGiven.of(program, model, Planning(objective, Idle.USE, planned_at_once))
    peaks = [planned.cost.peak_bytes for planned in (*as_given.plans, *as_given._leaner)]
    assert named <= min(peaks) < max(peaks)
    assert plan_with_subaxes(program, model, objective, named).cost.peak_bytes <= named


@pytest.mark.parametrize("objective", Objective)
def test_of_one_statement_every_strategy_is_tried_under_a_limit(monkeypatch, objective):
    """Of several statements only the first few: of those no plan is leaner that is not among these."""
    text = "A[I_Y, J_X] · B[J, K_YX] → C[I, K_Y]"
    program = shardc.parse(text, mesh={"X": 4, "Y": 2}, dims=dict.fromkeys("IJK", 4096), dtype="bf16")
    model = LinkModel.of(program.mesh, chip("v5p"))
    limit = plan_program(program, model, objective).cost.peak_bytes - 1
    found = plan_program(program, model, objective, limit)
    monkeypatch.setattr(progress, "LEANER", 1)
    assert plan_program(program, model, objective, limit).schedule == found.schedule


def test_a_plan_on_a_finer_mesh_or_in_pieces_keeps_a_limit_that_is_its_peak():
    program = shardc.parse("A[I_X, J] → A[I, J_X]", mesh={"X": 4}, dims={"I": 64, "J": 64})
    model, planning = LinkModel.of(program.mesh, chip("v5p")), Planning(Objective.BYTES, Idle.USE, planned_at_once)
    whole = plan_program(program, model, Objective.BYTES)
    peak, by = whole.cost.peak_bytes, refinement(program.mesh, {"X": (2, 2)}, ["I", "J"])
    for memory, keeps in ((peak - 1, False), (peak, True), (None, True)):
        finer, best = Finer(whole, model, planning, memory), _Best(None, whole.cost.wire_bytes + 1, Budget(0))
        for found in (finer._bettered(best, [whole], by), finer._in_pieces(best, whole)):
            assert (found.planned is not None) == keeps
            assert found.peaks == (() if keeps else (peak,))
            assert finer._bettered(replace(best, limit=whole.cost.wire_bytes), [whole], by).planned is None
