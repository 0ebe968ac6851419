"""What the text names is done, there and as often as it is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings

import shardc
from shardc.ir.legal import faults_of
from shardc.ir.mesh import Mesh
from shardc.ir.plan import How, Together
from shardc.lowering.chunks import chunks_of
from shardc.lowering.lower import lower
from shardc.lowering.meeting import meeting_of
from shardc.lowering.repeats import any_repeats, repeats
from shardc.lowering.rings import ring_of
from shardc.simulate import reference, sample_inputs
from shardc.testing import Case, programs

ZERO_3 = """Win[D, F] = AllGather(Win[D_X, F])
Tmp[B_X, F] = In[B_X, D] ·_D Win[D, F]
Wout[F, D] = AllGather(Wout[F, D_X])
Out[B_X, D] = Tmp[B_X, F] ·_F Wout[F, D]
dWout[F, D]{U_X} = Tmp[B_X, F] ·_B dOut[B_X, D]
dWout[F, D_X] = ReduceScatter(dWout[F, D]{U_X})
AGAIN_WOUT
dTmp[B_X, F] = dOut[B_X, D] ·_D Wout[F, D]
dWin[D, F]{U_X} = dTmp[B_X, F] ·_B In[B_X, D]
dWin[D_X, F] = ReduceScatter(dWin[D, F]{U_X})
AGAIN_WIN
dIn[B_X, D] = dTmp[B_X, F] ·_F Win[D, F]
return Out, dWout, dWin, dIn
"""
AGAIN = ZERO_3.replace("AGAIN_WOUT", "Wout[F, D] = AllGather(Wout[F, D_X])")
AGAIN = AGAIN.replace("AGAIN_WIN", "Win[D, F] = AllGather(Win[D_X, F])")
KEPT = ZERO_3.replace("AGAIN_WOUT", "").replace("AGAIN_WIN", "")
SMALL = {"B": 8, "D": 16, "F": 32}


def gathered(plan: shardc.Plan) -> list[str]:
    return [f"{step.op} {step.result.split('[')[0]}" for step in plan.steps if step.axes]


def test_zero_3_as_the_book_lists_it() -> None:
    """Forward and backward as `strategies.json` has them, in order: four gathers, and the two sums."""
    golden = json.loads((Path(__file__).parents[1] / "data" / "strategies.json").read_text(encoding="utf-8"))
    fsdp = next(one for one in golden["strategies"] if one["strategy"] == "FSDP")
    wanted = [line.replace("_X", "") for line in (*fsdp["forward"], *fsdp["backward"])]
    again = shardc.plan(AGAIN, mesh={"X": 4}, dims=SMALL, dtype="int32")
    assert gathered(again) == wanted
    kept = shardc.plan(KEPT, mesh={"X": 4}, dims=SMALL, dtype="int32")
    assert gathered(kept) == [step for n, step in enumerate(wanted) if n not in (3, 5)]
    assert again.cost.wire_bytes == kept.cost.wire_bytes + 2 * 3 * 16 * 32 * 4 // 4
    assert again.cost.peak_bytes < kept.cost.peak_bytes


def test_what_waits_for_what() -> None:
    """The second gather of Wout reads it through a barrier with a value that the first was used for, or a later one."""
    plan = shardc.plan(AGAIN, mesh={"X": 4}, dims=SMALL, dtype="int32")
    schedule = plan.schedule
    assert [*faults_of(schedule)] == []
    found = dict(lower(schedule).again)
    assert [schedule.values[schedule.steps[place].result].name for place in found] == ["Wout", "Win"]
    written = {value: place for place, step in enumerate(schedule.steps) for value in step.results}
    for place, wait in found.items():
        step = schedule.steps[place]
        first = next(s for s in schedule.steps if (s.op, s.operands) == (step.op, step.operands))
        used = max(n for n, s in enumerate(schedule.steps[:place]) if first.result in s.operands)
        assert wait is not None and used <= written[wait] < place
    assert plan.source().count("optimization_barrier") == 2
    kept = shardc.plan(KEPT, mesh={"X": 4}, dims=SMALL, dtype="int32")
    assert not repeats(kept.schedule.block) and "barrier" not in kept.source()


@pytest.mark.instant
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_price_is_of_each(times: int) -> None:
    """Each gather is of the whole again: as many as are written, whether the text writes a name or an operand."""
    lines = [f"W[D, F] = AllGather(W[D_X, F]); Y{n}[B, F] = A{n}[B, D] · W[D, F]" for n in range(times)]
    inside = [f"Y{n}[B, F] = A{n}[B, D] · AllGather_X(W[D_X, F])" for n in range(times)]
    for text in (lines, inside):
        plan = shardc.plan("; ".join(text), mesh={"X": 4}, dims=SMALL, dtype="f32")
        assert [step.op for step in plan.steps if step.axes] == ["AllGather"] * times
        assert plan.cost.wire_bytes == times * 3 * 16 * 32 * 4 // 4
        assert plan.source().count("optimization_barrier") == times - 1


def test_what_nobody_reads_is_not_done() -> None:
    plan = shardc.plan("A[I] = AllGather(A[I_X]); A[I] = AllGather(A[I_X]); relu(A) → B[I]; return B", mesh={"X": 2})
    assert gathered(plan) == ["AllGather A"] and "barrier" not in plan.source()


GATHERED = "W[D, F] = AllGather_X(W[D_X, F]); {0}[B_X, F] = {1}[B_X, D] · W[D, F]"
TWO_GATHERED = "A[I_X, J] = AllGather_Y(A[I_X, J_Y]); B[J, K_Y] = AllGather_X(B[J_X, K_Y])"
BOTH_GATHERED = f"{TWO_GATHERED}; C[I_X, K_Y] = A · B; {TWO_GATHERED}; D[I_X, K_Y] = relu(A · B)"


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "form", "how"),
    [
        (GATHERED.format("Y", "A") + "; " + GATHERED.format("Z", "C"), ring_of, How.RING),
        (GATHERED.format("Y", "A") + "; " + GATHERED.format("Z", "C"), chunks_of, How.CHUNKS),
        (BOTH_GATHERED, meeting_of, How.RINGS),
    ],
    ids=["a ring", "chunks", "two rings"],
)
def test_what_is_gathered_again_is_in_no_group(text: str, form: Callable[..., object], how: How) -> None:
    """The first time it may be, and so it may where it is not the same gather."""
    sizes = dict.fromkeys("BDFIJK", 64)
    schedule = shardc.plan(text, mesh={"X": 2, "Y": 2}, dims=sizes, idle="keep").schedule
    products = [place for place, step in enumerate(schedule.steps) if step.name == "Einsum"]
    span = 2 if how is How.RINGS else 1
    groups = [Together(place - span, place, how) for place in products]
    assert [form(schedule, group) is not None for group in groups] == [True, False]


def twice(move: str, after: str) -> str:
    """The move, its result used, the move again, both used."""
    return f"{after} = {move}; B{after[1:]} = -{after}; {after} = {move}; C{after[1:]} = B{after[1:]} + {after}"


COLLECTIVES = [
    twice("AllGather_X(A[I_X, J])", "A[I, J]"),
    twice("AllReduce_X(A[I, J]{U_X})", "A[I, J]"),
    twice("ReduceScatter_X(A[I, J]{U_X})", "A[I_X, J]"),
    twice("AllToAll_X(A[I_X, J])", "A[I, J_X]"),
    twice("AllGather_Z(A[I_XYZ, J])", "A[I_XY, J]"),
    twice("CollectivePermute(A[I_XY, J])", "A[I_YX, J]"),
    twice("AllGather_XY(A[I_X, J_Y])", "A[I, J]"),
]


@pytest.mark.devices
@pytest.mark.parametrize("text", COLLECTIVES)
def test_each_collective_twice_runs_and_is_compiled_twice(text: str) -> None:
    """Lowered both are there; compiled too, where the pass that drops barriers is off. Every result is NumPy's."""
    plan = shardc.plan(text, mesh={"X": 2, "Y": 2, "Z": 2}, dims={"I": 8, "J": 8, "K": 8}, dtype="int32")
    assert len(repeats(plan.schedule.block)) == 1
    wholes = [whole.astype(np.int32) for whole in sample_inputs(plan.schedule.program)]
    program = plan.compile()
    results = program(*wholes)
    found = results if isinstance(results, tuple) else (results,)
    for one, other in zip(found, reference(plan.schedule.program, wholes), strict=True):
        assert np.array_equal(np.asarray(one), other)
    lowered = program.lower(*wholes)
    kind = {"AllGather": "all_gather", "AllReduce": "all_reduce", "ReduceScatter": "reduce_scatter"}
    kind |= {"AllToAll": "all_to_all", "CollectivePermute": "collective_permute"}
    name = next(step.op for step in plan.steps if step.axes)
    assert lowered.as_text().count(f'"stablehlo.{kind[name]}"') >= 2
    kept = lowered.compile(compiler_options={"xla_disable_hlo_passes": "cse_barrier_expander"})
    assert kept.as_text().count(f" {kind[name].replace('_', '-')}(") >= 2


# Summed twice; between the two something is made that the second waits for, or that it must not wait for.
FIRST, SECOND = "B[I, J] = AllReduce_X(A[I, J]{U_X})", "C[I, J] = AllReduce_X(A[I, J]{U_X})"
WAITING = [
    # R varies along Y, and C may not: what is behind one barrier with R would.
    ([FIRST, "R[I, J_Y] = relu(B)", SECOND, "return B, C, R"], None),
    ([FIRST, "R[I, J_Y] = relu(B)", SECOND, "O[I_Y, J] = -C", "return O, R"], "R"),
    # G is gathered: nothing else asks that it be of a type that is equal along Y.
    (
        [FIRST, "R[I_Y, J] = relu(B)", "G[I, J] = AllGather(R)", SECOND, "O[I, K_Y] = G · H[J, K_Y]", "return C, O, R"],
        "G",
    ),
    # R is not as C has to be; S is.
    ([FIRST, "R[I, J_Y] = relu(B)", "S[I, J] = abs(B)", SECOND, "return C, R, S"], "S"),
]


@pytest.mark.instant
@pytest.mark.parametrize("lines, wait", WAITING)
def test_it_waits_for_the_first_value_that_may_be_equal_where_its_own_has_to_be(
    lines: list[str], wait: str | None
) -> None:
    schedule = shardc.plan("; ".join(lines), mesh={"X": 2, "Y": 4}, dims={"I": 8, "J": 8, "K": 8}).schedule
    ((_, value),) = lower(schedule).again
    assert (None if value is None else schedule.values[value].name) == wait


REPEATING = [
    AGAIN,
    *COLLECTIVES,
    *("; ".join(lines) for lines, _ in WAITING),
    twice("AllGather_X(A[I_X, J])", "A[I, J]") + "; A = AllGather_X(A[I_X, J]); D = C + A",
    "T[I_X, J] = relu(A[I_X, J]); S = T + A; U = again(T); R = U ⊙ S; return R, T",
    "T[I_X, J] = A[I_X, K] · B[K, J]; S = relu(T); V[I_X] = sum_J(S); U = again(A); W[I_X, K] = U ⊙ V + U; return W, S",
]


@pytest.mark.instant
@pytest.mark.parametrize("text", REPEATING, ids=range(len(REPEATING)))
def test_a_repeat_may_wait_for_what_is_made_after_the_first_was_used_and_is_held_till_then(text: str) -> None:
    """By the definition, of each step that does once more what an earlier one did, and of each `again`."""
    sizes = dict.fromkeys("BDFIJK", 16)
    block = shardc.plan(text, mesh={"X": 2, "Y": 2, "Z": 2}, dims=sizes, idle="keep").schedule.block
    found, done = repeats(block), dict[object, int]()
    assert [place for place in range(len(block.steps)) if any_repeats(block, [place])] == [*found]
    for place, step in enumerate(block.steps):
        made, later = block.values[step.results[0]], block.steps[place:]
        held = {value for each in later for value in each.operands}
        key = step.op, step.operands, made.dims, made.sharding
        if step.name == "again":
            made_last = [value for each in reversed(block.steps[:place]) for value in each.results]
            assert [*found.pop(place)] == [value for value in made_last if value in held - {*block.outputs}]
        elif key in done:
            first = block.steps[done[key]].result
            used = [n for n in range(done[key] + 1, place) if first in block.steps[n].operands]
            since = [value for n in range(max(used, default=place), place) for value in block.steps[n].results]
            assert [*found.pop(place)] == [value for value in since if value in held | {*block.outputs}]
        done[key] = place
    assert not found


@pytest.mark.devices
@pytest.mark.parametrize("lines, wait", WAITING)
def test_what_is_waited_for_leaves_a_result_equal_where_it_has_to_be(lines: list[str], wait: str | None) -> None:
    plan = shardc.plan("; ".join(lines), mesh={"X": 2, "Y": 4}, dims={"I": 8, "J": 8, "K": 8}, dtype="int32")
    schedule = plan.schedule
    ((_, value),) = lower(schedule).again
    assert (None if value is None else schedule.values[value].name) == wait
    wholes = [whole.astype(np.int32) for whole in sample_inputs(schedule.program)]
    found = plan.compile()(*wholes)
    for one, other in zip(found, reference(schedule.program, wholes), strict=True):
        for shard in one.addressable_shards:
            assert np.array_equal(np.asarray(shard.data), other[shard.index])


@pytest.mark.exhaustive
@pytest.mark.tpu
@pytest.mark.parametrize("scale", [1, pytest.param(8, marks=pytest.mark.long)])
def test_a_slices_program_gathers_twice_and_holds_less(scale: int) -> None:
    """The TPU's compiler: as planned with the repeats and without; where it matters, less memory with them."""
    pytest.importorskip("libtpu")
    sizes = {"B": 512 * scale, "D": 512 * scale, "F": 2048 * scale}
    again = shardc.plan(AGAIN, mesh={"X": 4}, dims=sizes, topology="v5e:2x2")
    one = again.verify()
    assert one.agrees and [match.kind for match in one.steps].count("AllGather") == 4
    if scale > 1:
        kept = shardc.plan(KEPT, mesh={"X": 4}, dims=sizes, topology="v5e:2x2")
        other = kept.verify()
        assert other.agrees and [match.kind for match in other.steps].count("AllGather") == 2
        assert one.compiled_memory.total_bytes < 0.8 * other.compiled_memory.total_bytes
        assert again.cost.peak_bytes < 0.8 * kept.cost.peak_bytes


def test_positions_counted_twice_are_no_repeats():
    """They have no operand to be read through a barrier, and may be of two dims."""
    text = "P[V] = A[V] + index_V\nQ[V_X] = B[V_X] + index_V\nR[U] = C[U] + index_U"
    plan = shardc.plan(text, mesh={"X": 4}, dims={"V": 8, "U": 6}, dtype="f32", chip="v5e")
    assert sum(step.name == "index" for step in plan.schedule.steps) > 1
    assert repeats(plan.schedule.block) == {}


SUMS = [
    "r[I_X] = sum_J(A[I_X, J_Y]); c[J_Y] = sum_I(A)",
    "L[I, I2] = A[I_X, J] · A[I2, J]; R[J, J2] = A[I_X, J] · A[I_X, J2]",
]
SIZES = {"I": 8, "I2": 8, "J": 8, "J2": 8}


@settings(max_examples=20, deadline=None)
@given(programs())
@example(Case(SUMS[0], Mesh.of({"X": 2, "Y": 2}), SIZES))
@example(Case(SUMS[1], Mesh.of({"X": 2, "Y": 2}), SIZES))
def test_no_plan_repeats_what_no_text_names_twice(case: Case) -> None:
    """Two sums of one array over different dims are none: behind a barrier, what the array is made of would be written
    out for the second."""
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims)
    assert repeats(plan.schedule.block) == {}
