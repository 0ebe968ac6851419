"""The front of time against memory: no plan on it is as good as another in both, and each means the program."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc import simulate
from shardc.cost import LinkModel, chip
from shardc.errors import ShardcError
from shardc.planner import Objective, plan_program
from shardc.planner.pareto import MAX_POINTS, pareto
from shardc.testing import assert_equal_on_every_device, assert_schedule_legal, matmuls, programs

OBJECTIVES = st.sampled_from(list(Objective))


def model_of(program):
    return LinkModel.of(program.mesh, chip("v5p"))


def parsed(case):
    return shardc.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="f32")


def measure(planned, objective):
    return round(planned.cost.time_s, 14) if objective is Objective.TIME else planned.cost.wire_bytes


def assert_simulates(schedule):
    wholes = simulate.sample_inputs(schedule.program)
    blocks, expected = simulate.run(schedule, wholes), simulate.reference(schedule.program, wholes)
    for block, number, whole in zip(blocks, schedule.outputs, expected, strict=True):
        assert_equal_on_every_device(block, whole, schedule.values[number], schedule.mesh, 1e-9)


@settings(max_examples=25, deadline=None)
@given(st.one_of(matmuls(max_axes=2), programs()), OBJECTIVES)
def test_each_plan_of_the_front_needs_less_memory_and_costs_more(case, objective):
    program = parsed(case)
    front = pareto(program, model_of(program), objective)
    assert 1 <= len(front) <= MAX_POINTS
    for before, after in pairwise(front):
        assert after.cost.peak_bytes < before.cost.peak_bytes
        assert measure(after, objective) > measure(before, objective)
    for point in front:
        assert_schedule_legal(point.schedule)
        assert_simulates(point.schedule)


@settings(max_examples=25, deadline=None)
@given(st.one_of(matmuls(max_axes=2), programs()), OBJECTIVES)
def test_the_front_begins_as_good_as_the_plan_without_a_limit_and_ends_where_nothing_fits(case, objective):
    program = parsed(case)
    free = plan_program(program, model_of(program), objective)
    front = pareto(program, model_of(program), objective)
    assert measure(front[0], objective) <= measure(free, objective)
    assert front[0].schedule == free.schedule or front[0].cost.peak_bytes < free.cost.peak_bytes
    with pytest.raises(ShardcError, match="SHC410"):
        plan_program(program, model_of(program), objective, front[-1].cost.peak_bytes - 1)


LONG = "A[I_Y, J_X] · B[J, K_YX] → C[I, K_Y]"


def example(text, mesh):
    program = shardc.parse(text, mesh=mesh, dims=dict.fromkeys("IJK", 4096), dtype="bf16")
    return program, model_of(program)


def test_a_front_has_the_fast_plan_and_the_lean_ones():
    front = pareto(*example(LONG, {"X": 4, "Y": 2}))
    free = plan_program(*example(LONG, {"X": 4, "Y": 2}))
    assert len(front) == 4
    assert front[0].schedule == free.schedule
    assert front[-1].cost.peak_bytes < 0.75 * free.cost.peak_bytes
    assert front[-1].cost.time_s > 1.3 * free.cost.time_s


def test_the_front_is_the_same_each_time():
    first, again = (pareto(*example(LONG, {"X": 4, "Y": 2})) for _ in range(2))
    assert [point.schedule for point in first] == [point.schedule for point in again]


def test_the_front_is_no_longer_than_asked_for():
    whole = pareto(*example(LONG, {"X": 4, "Y": 2}))
    short = pareto(*example(LONG, {"X": 4, "Y": 2}), most=2)
    assert [point.schedule for point in short] == [point.schedule for point in whole[:2]]


def test_what_cannot_be_planned_at_all_is_refused():
    with pytest.raises(ShardcError, match="SHC220"):
        pareto(*example("A[I_X, J] → A[I_X, J]{U_Y}", {"X": 2, "Y": 2}))
