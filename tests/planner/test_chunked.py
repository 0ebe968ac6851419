"""Steps in chunks of a dim: legal, the same on every device, proved, and priced as the parts of what they were."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import shardc
from shardc.emit.text.source import source
from shardc.errors import ShardcError
from shardc.ir.plan import Loop
from shardc.planner.program.chunkable import groups
from shardc.planner.program.chunked import _blocks, _counts, _put, in_chunks
from shardc.proving import prove
from shardc.testing import mixed_programs

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program

SHARDED = "s[B_X, T, H, S] = q[B_X, T, H, E] · k[B_X, S, H, E]; p = softmax_S(s); o[B_X, T, H, E] = p · v[B_X, S, H, E]"
ROWS = SHARDED.replace("B_X, T,", "B, T_X,").replace("B_X", "B")
HEADS = SHARDED.replace("B_X", "B").replace("H", "H_X")
OF_ONE = "s[B, T, S] = x[B, T, D] ·_D x[B, S, D]; p = softmax_S(s); o[B_X, T, D] = p ·_S x[B, S, D]"
MASKED = (
    "s[B_X, T, H, S] = q[B_X, T, H, E] · k[B_X, S, H, E]; m[T, S] = index_T >= index_S; "
    "p = softmax_S(where(m, s / 4, -inf)); o[B_X, T, H, E] = p · v[B_X, S, H, E]"
)
IN_LOOP = "for L { h = relu(x[B_X, D] · W[L, D, F]); x[B_X, D] = h · V[L, F, D] }\nreturn x"
TEXTS = {
    "sharded": SHARDED,
    "rows": ROWS,
    "heads": HEADS,
    "of one array": OF_ONE,
    "masked": MASKED,
    "in a loop": IN_LOOP,
}
SIZES = {"B": 8, "T": 16, "S": 16, "H": 4, "E": 8, "D": 16, "F": 64, "L": 3}


def every_cut(plan):
    """Each group of a plan in each number of chunks, as a schedule."""
    schedule, model = plan.schedule, plan._model
    for path, block in _blocks(schedule.block):
        for group in groups(block, schedule.mesh):
            for trips in _counts(group.size):
                made = in_chunks(group, trips, model, schedule.program.dims)
                yield group, trips, replace(schedule, block=_put(schedule.block, path, made))


def loops(schedule):
    return [
        step.op
        for _, block in _blocks(schedule.block)
        for step in block.steps
        if isinstance(step.op, Loop) and step.op.is_of_chunks
    ]


@pytest.mark.parametrize("name", TEXTS)
def test_every_cut_is_the_program(name):
    dims = {dim: size for dim, size in SIZES.items() if dim in TEXTS[name]}
    plan = shardc.plan(TEXTS[name], mesh={"X": 2}, dims=dims, dtype="f32")
    found = list(every_cut(plan))
    for _, trips, schedule in found:
        (loop,) = loops(schedule)
        assert loop.trips == trips
        assert_means_the_program(schedule)
        assert prove(schedule, source(schedule, "v5e")).holds
    assert {group.dim for group, *_ in found} >= {"sharded": {*"BTH"}, "in a loop": {"B"}}.get(name, set())


@pytest.mark.parametrize("how", ["forward", pytest.param("whole", marks=pytest.mark.exhaustive)])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([{"X": 2}, {"X": 2, "Y": 2}]), st.data())
def test_every_cut_of_what_is_drawn_is_the_program(how, mesh, data):
    case = data.draw(mixed_programs(mesh=mesh))
    program = shardc.parse(case.text, mesh=mesh, dims=case.dims, dtype="f32")
    if how == "whole":
        try:
            program = shardc.grad(program, whole=True)
        except ShardcError as error:
            assert error.code == "SHC225", error  # nothing has a gradient
            return
    found = list(every_cut(shardc.plan(program)))
    assume(found)
    for _, _, schedule in found[:: max(1, len(found) // 4)]:
        assert_means_the_program(schedule)
        assert prove(schedule, source(schedule, "v5e")).holds is not False
