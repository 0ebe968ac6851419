"""Plans that keep a memory limit: what is alive before the last statement is lowered step by step; and refusals."""

import re
from copy import copy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import LinkModel, chip
from shardc.errors import ShardcError
from shardc.ir.refine import refinement
from shardc.planner import Objective, plan_program, plan_with_subaxes
from shardc.planner.budget import STATEMENT, Budget
from shardc.planner.idle import Idle
from shardc.planner.options import Options
from shardc.planner.planned import Planning, Refused
from shardc.planner.program import progress
from shardc.planner.program.finer import Finer, _Best
from shardc.planner.program.loops import AtOnce, planned_at_once
from shardc.planner.program.memory import Limited
from shardc.planner.program.plan import AsGiven
from shardc.testing import loops, partial_programs, programs

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
    limited = Limited.of(program, LinkModel.of(program.mesh, chip("v5e")), ANY, planning)
    found = [planned.peaks for planned in limited.keeping(Options())]
    under = (limited._attempt(Options(memory=ANY, memory_before=most)) for most in range(max(found[0]) + 1))
    every = {planned.peaks for planned in under}
    assert every <= {*found}
    assert found[:-1] == sorted({*found}, reverse=True)


@settings(max_examples=30, deadline=None)
@given(programs() | loops() | partial_programs(), st.sampled_from(Objective), st.data())
def test_what_was_tried_under_one_limit_changes_nothing_under_the_next(case, objective, data):
    program = shardc.parse(case.text, mesh=case.mesh, dims=case.dims)
    model, at_once = LinkModel.of(program.mesh, chip("v5e")), AtOnce()
    most = planned_at_once(program, model, objective, Options(memory=ANY)).cost.peak_bytes
    for _ in range(4):
        last, before = (data.draw(st.sampled_from([ANY, most, most // 2, 3 * most // 4, 0])) for _ in range(2))
        options = Options(memory=last, memory_before=before, largest_step=data.draw(st.sampled_from([None, most])))
        shared, fresh = (
            Planning(objective, Idle.USE, make).attempt(program, model, options).planned
            for make in (at_once, planned_at_once)
        )
        assert (shared is None) == (fresh is None)
        if shared is not None:
            assert (shared.schedule, shared.cost, shared.peaks) == (fresh.schedule, fresh.cost, fresh.peaks)
            assert str(shared.notes) == str(fresh.notes)


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


PREFERENCES = """
Won[B_X, T, V_Y] = hw[B_X, T, D] · W[D, V_Y]
Lost[B_X, T, V_Y] = hl[B_X, T, D] · W
won = sum_V(where(index_V == yw: int32[B_X, T], Won, 0)) - logsumexp_V(Won)
lost = sum_V(where(index_V == yl: int32[B_X, T], Lost, 0)) - logsumexp_V(Lost)
Loss[] = mean_B(log1p(exp(-0.1 ⊙ (sum_T(won - lost) - ref[B_X]))))
"""
CONTRASTED = """
u = a[B_X, D_Y] ⊙ rsqrt(sum_D(square(a)) + 1e-6)
w = t[B_X, D_Y] ⊙ rsqrt(sum_D(square(t)) + 1e-6)
S = u ·_D w[C_X, D_Y] ⊙ exp(tau[])
Loss[] = mean_B(logsumexp_C(S) - sum_C(where(index_B == index_C, S, 0)))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("text", [PREFERENCES, CONTRASTED])
def test_no_plan_that_is_known_and_keeps_a_limit_is_cheaper_than_its_plan(text, objective):
    """The statements in turn may keep a limit; all together, leaner, they may do so for half the price."""
    dims = {"B": 8, "C": 8, "T": 4, "D": 16, "V": 32}
    program = shardc.parse(text, mesh={"X": 2, "Y": 4}, dims={d: n for d, n in dims.items() if d in text}, dtype="f32")
    model = LinkModel.of(program.mesh, chip("v5e"))
    as_given = AsGiven.of(program, model, Planning(objective, Idle.USE, planned_at_once))
    known = [*as_given.plans, *copy(as_given._leaner)]
    for limit in {planned.cost.peak_bytes for planned in known}:
        keeping = [planned.measure(objective) for planned in known if planned.cost.peak_bytes <= limit]
        assert as_given.within(limit).measure(objective) <= min(keeping), limit


IN_CONTEXT = """
q = x[B, T_X, D] · Wq[D, H, E]
k = x[B, S_X, D] · Wk[D, H, E]
v = x[B, S_X, D] · Wv[D, H, E]
s = where(index_T >= index_S, q ·_E k / sqrt(|E|), -inf)
O[B, T_X, D] = x + softmax_S(s) ·_S v ·_{H,E} Wo[H, E, D]
"""
CHAINED = """
T = P[A_X, B_Y] · Q[B_Z, C]
U = T · R[C_X, D_YZ]
O[A_Z, E_X] = U · S[D_Y, E]
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("text", "mesh", "dims"),
    [
        (IN_CONTEXT, {"X": 8}, {"B": 2, "T": 32, "S": 32, "H": 2, "E": 8, "D": 16}),
        pytest.param(
            CHAINED, {"X": 2, "Y": 3, "Z": 4}, dict(A=24, B=48, C=24, D=72, E=24), marks=pytest.mark.exhaustive
        ),
    ],
)
def test_under_a_smaller_limit_no_plan_is_cheaper(text, mesh, dims):
    program = shardc.parse(text, mesh=mesh, dims=dims, dtype="f32")
    found = [plan_with_subaxes(program, LinkModel.of(program.mesh, chip("v5e")))]
    with pytest.raises(ShardcError, match="SHC410"):
        while len(found) < 8:
            below = found[-1].cost.peak_bytes - 1
            found.append(plan_with_subaxes(program, LinkModel.of(program.mesh, chip("v5e")), memory=below))
    times = [planned.measure(Objective.TIME) for planned in found]
    assert times == sorted(times) and len(times) > 2


@pytest.mark.instant
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


def test_all_that_is_tried_takes_no_more_than_the_plans_of_a_program_may():
    """On a mesh of five axes each attempt took a second, and a refusal twenty-four of them."""
    program = shardc.parse(
        "n[B_X, T, D] = x[B_X, T, D] ⊙ g[D]; q[B_X, T, H_Y, E] = n · Wq[D, H_Y, E]; y[B_X, T, D] = q · Wo[H_Y, E, D]",
        mesh={"X": 2, "Y": 4, "Z": 2},
        dims={"B": 64, "T": 64, "D": 64, "H": 8, "E": 64},
    )
    model, tried = LinkModel.of(program.mesh, chip("v5e")), []

    def make(*given):
        tried.append(given)
        given[-1].pay(STATEMENT)
        return planned_at_once(*given[:-1])

    planning = Planning(Objective.TIME, Idle.USE, make)
    refused = Limited.of(program, model, 1, planning).within(planned_at_once(program, model, Objective.TIME), 1 << 60)
    assert isinstance(refused, Refused) and len(tried) == len(program.statements)
