"""What a loop takes to get at rows and to lay them is priced where a slice is named, as it is replayed."""

import pytest

import shardc
from shardc.cost.formulas import evaluate
from shardc.ir.plan import every_step

MESH, SIZES = {"X": 2, "Y": 4}, {"M": 4, "I": 8192, "J": 2048, "K": 4096}
DOWN = "for -M { C[M, I_X, K] = A[M, I_X, J] · B[J, K] }"
CUT = "for M { C[M, I_X, J] = A[M, I_X, J_Y] }"
SUMMED = "for M { S[I_X, K] = AllReduce_Y(A[M, I_X, J_Y] ·_LOCAL B[J_Y, K]); C[M, I_X, K] = S }"
KEPT = "for M { C[M, I_X, J] = x[I_X, J]; x[I_X, J] = relu(x) }; return C, x"
BESIDE = "for M { C[M, I_X, J] = A[I_X, J]; D[M, I_X] = relu(B[M, I_X]) }"
OTHERS = [
    "for -M { C[M, I_X, J] = A[M, I_X, J_Y] }",
    "for M { C[M, I_X, K_Y] = ReduceScatter_Y(A[M, I_X, J_Y] ·_LOCAL B[J_Y, K]) }",
    "for M { C[M, I_X, K] = A[M, I_X, J_Y] · B[J_Y, K] }",
    "for -M { C[M, I_X, K] = A[M, I_X, J] · B[J, K]; D[M, I_X, K] = relu(A · E[J, K]) }",
]


def planned(text, topology="v5e:2x4", **options):
    given = {"mesh": MESH, "dims": SIZES, "topology": topology, "dtype": "bf16", "overlap": "off", "idle": "keep"}
    return shardc.plan(text, **(given | options))


def inside(plan):
    """The formulas of the steps of a loop."""
    return [done.step.cost.formula for done in every_step(plan.schedule.block) if len(done.path) > 1]


@pytest.mark.tpu
@pytest.mark.parametrize(
    "text", [DOWN, SUMMED, KEPT, *(pytest.param(text, marks=pytest.mark.exhaustive) for text in (BESIDE, CUT, *OTHERS))]
)
@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2"])
def test_what_a_loop_does_to_rows_is_replayed_as_it_is_priced(text, topology):
    """Without what is filled, cut out and copied they took up to 1.8 times their price; of what is kept in each trip as
    it was found, half of all, or nothing, was priced."""
    plan = planned(text, topology)
    assert plan.verify().replayed.step_s == pytest.approx(plan.cost.time_s, rel=0.12)


def test_what_is_stacked_going_down_is_filled_before_and_going_up_is_not():
    (down,), (up,) = inside(planned(DOWN)), inside(planned(DOWN.replace("-", "")))
    assert down == f"{up} + 2·I·K/X / W_write + 2·I·K/X / W_alone"


def test_a_row_is_cut_out_for_a_gather_and_a_sum_copied_to_its_place():
    (gathered,), (_, summed) = inside(planned(CUT)), inside(planned(SUMMED))
    laid = " + 2·I·J/X / W_hbm + 2·I·J/X/Y / W_write + 2·I·J/X·(1 / W_copy - 1 / W_hbm)"  # the chip would hold one row
    assert gathered.endswith(laid) and summed.endswith(" + 2·I·K/X / W_copy")


def test_what_no_step_leaves_is_read_and_written_beside_what_reads_it_or_the_first():
    (relu,), (other,) = inside(planned(KEPT)), inside(planned(BESIDE))
    kept = " + (2·I·J/X) / W_read + 2·I·J/X / W_write"
    assert relu.endswith(kept) and other.endswith(kept)


@pytest.mark.instant
@pytest.mark.parametrize("text", [DOWN, CUT, SUMMED, KEPT])
def test_where_no_slice_is_named_nothing_is_known_of_rows(text):
    for plan in (planned(text, None, chip="v5e"), planned(text, formula="book")):
        assert not any(rate in formula for formula in inside(plan) for rate in ("W_alone", "W_write", "W_copy"))


@pytest.mark.instant
@pytest.mark.parametrize("text", [DOWN, CUT, SUMMED, KEPT, BESIDE])
@pytest.mark.parametrize("topology", ["v5e:2x4", "v5p:2x2x2"])
def test_what_rows_take_is_what_the_formulas_say(text, topology):
    plan = planned(text, topology)
    for done in every_step(plan.schedule.block):
        cost = done.step.cost
        assert evaluate(cost.formula, plan.symbols) == pytest.approx(cost.time_s, rel=1e-9), cost.formula
