"""Both programs as the TPU's compiler leaves them, replayed and compared."""

import json
import os
import subprocess
import sys

import jax
import pytest

import shardc
from shardc.compiled import compilers
from shardc.compiled.compare import comparison_of, side_of
from shardc.compiled.replay.gantt import gantt, trace
from shardc.machines import tpu
from shardc.machines.baseline import compile_baseline

pytestmark = [pytest.mark.tpu, pytest.mark.skipif(not tpu.is_installed(), reason="no libtpu")]

REDUCE = ("A[I, J_X] · B[J_X, K_Y] → C[I_X, K_Y]", "X=4,Y=4,Z=4", "I=4096,J=4096,K=4096", "v5p:4x4x4")
MLP = (
    "T[B_X, F_Y] = In[B_X, D] · W[D, F_Y]; Out[B_X, D_Y] = relu(T) ·_F V[F_Y, D]",
    "X=4,Y=16",
    "B=8192,D=8192,F=16384",
    "v5p:4x4x4",
)
EXCHANGE = ("A[I_X, J_YZ, K] → A[I_YZ, J, K_X]", "X=4,Y=4,Z=4", "I=512,J=512,K=512", "v5p:4x4x4")
SMALL = ("A[I, J_X] · B[J_X, K] → C[I_X, K]", "X=4", "I=1024,J=1024,K=1024", "v5e:2x2")


def slice_mesh(plan):
    return compilers.slice_mesh(plan.schedule.mesh, plan._model)


def compared(text, mesh, dims, slice_name):
    plan = shardc.plan(text, mesh=mesh, dims=dims, topology=slice_name, dtype="bf16")
    devices = slice_mesh(plan)
    ours, theirs = tpu.compile_schedule(plan.schedule, devices), compile_baseline(plan.schedule, devices)
    return plan, comparison_of(ours, theirs, plan._model, bound_wire_bytes=plan.bound.wire_bytes)


@pytest.mark.parametrize("case", [REDUCE, MLP, EXCHANGE, SMALL], ids=["reduce", "mlp", "exchange", "small"])
def test_both_programs_are_replayed_by_the_compilers_cycles(case):
    plan, found = compared(*case)
    for side in (found.ours, found.theirs):
        timeline = side.timeline
        assert any(event.basis == "cycles" for event in timeline.events)
        assert timeline.step_s <= sum(event.duration_s for event in timeline.events) + 1e-12
        assert all(timeline.busy_s(track) <= timeline.step_s + 1e-12 for track in timeline.tracks)
        assert side.memory is not None and side.memory.argument_bytes > 0
        assert side.wire_bytes >= plan.bound.wire_bytes > 0 or not plan.bound.wire_bytes
        assert len(gantt(timeline).splitlines()) == len(timeline.tracks) + 1
        assert json.loads(trace(timeline))["traceEvents"]
    assert found.ours.memory.output_bytes == found.theirs.memory.output_bytes
    assert "replayed time" in str(found) and json.dumps(found.to_json())


@pytest.mark.exhaustive
def test_the_windowed_einsum_is_seen_to_hide_what_it_sends():
    _, found = compared(*MLP)
    assert {tally.kind for tally in found.theirs.collectives} == {"CollectivePermute"}
    assert found.theirs.timeline.overlapped_s > 0.2 * found.theirs.timeline.communication_s
    assert {"Y+", "Y-"} <= set(found.theirs.timeline.tracks)  # a ring that turns both ways


@pytest.mark.exhaustive
def test_a_loop_counts_as_often_as_it_runs():
    _, found = compared(*MLP)
    (permutes,) = found.theirs.collectives
    assert permutes.count == sum(e.count for e in found.theirs.timeline.events if e.is_communication)
    assert permutes.count >= 8


def test_jit_alone_gets_the_plans_shardings():
    plan = shardc.plan(REDUCE[0], mesh=REDUCE[1], dims=REDUCE[2], topology=REDUCE[3], dtype="bf16")
    compiled = compile_baseline(plan.schedule, slice_mesh(plan))
    outputs = compiled.made.output_shardings
    assert outputs.spec == jax.P("X", "Y")
    assert [sharding.spec for sharding in compiled.made.input_shardings[0]] == [jax.P(None, "X"), jax.P("X", "Y")]


def test_the_time_of_a_plan_and_of_its_replay_are_of_one_size():
    """Predicted by a roofline, replayed by the compiler's cycles: the same links, the products a little slower."""
    plan, found = compared(*REDUCE)
    assert plan.cost.time_s * 0.9 < found.ours.timeline.step_s < plan.cost.time_s * 2
    assert found.ours.timeline.communication_s == pytest.approx(plan.cost.communication_s, rel=0.2)


def test_a_program_of_local_steps_alone_communicates_nothing():
    plan = shardc.plan(
        "A[I_X, J] · B[J, K] → C[I_X, K]", mesh="X=4", dims="I=1024,J=1024,K=1024", topology="v5e:2x2", dtype="bf16"
    )
    side = side_of("ours", tpu.compile_schedule(plan.schedule, slice_mesh(plan)), plan._model)
    assert side.wire_bytes == 0 and side.timeline.communication_s == 0 < side.timeline.compute_s


WARNED = """
import shardc
from shardc.machines.stderr import caught_stderr
import importlib.util, sys
spec = importlib.util.spec_from_file_location("cases", sys.argv[1])
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)
plan = shardc.plan("A[I, J_X, K] → B[I_ZX, J, K]", mesh="X=2,Y=2,Z=2", dims="I=64,J=64,K=64", topology="v5p:2x2x2")
with caught_stderr() as caught:
    cases.compile_baseline(plan.schedule, cases.slice_mesh(plan))
print("Involuntary full rematerialization" in caught.text)
"""


@pytest.mark.exhaustive
def test_the_compilers_warnings_are_caught_if_it_may_write_them():
    """It reads its log level when it is loaded, so in a process of its own."""
    loud = {"TPU_MIN_LOG_LEVEL": "1", "TPU_STDERR_LOG_LEVEL": "1"}
    found = subprocess.run(
        [sys.executable, "-c", WARNED, __file__], env=os.environ | loud, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "True" and "rematerialization" not in found.stderr
