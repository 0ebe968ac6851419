"""Plans of drawn programs: legal, equal to the reference on every device, and as cheap as brute force."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given, settings

import shardc
from shardc.ir.collectives import UnevenExchange
from shardc.simulate import reference, run, sample_inputs
from shardc.testing import (
    assert_equal_on_every_device,
    assert_schedule_legal,
    matmul_oracle,
    matmuls,
    programs,
    reshards,
    shortest_path_oracle,
)

SETTINGS = settings(max_examples=20, deadline=None)


def planned(case):
    """The schedule of a drawn case, once it has been seen to do what the program means."""
    schedule = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, chip="v5p", objective="bytes").schedule
    assert_schedule_legal(schedule)
    wholes = sample_inputs(schedule.program)
    expected = reference(schedule.program, wholes)
    found = run(schedule, wholes)
    for value, blocks, whole in zip(schedule.outputs, found, expected, strict=True):
        # Both are in f64: what is wrong is off by far more than a trillionth.
        bound = 1e-12 * max(1.0, float(np.abs(whole[np.isfinite(whole)]).max(initial=0)))
        assert_equal_on_every_device(blocks, whole, schedule.values[value], schedule.mesh, bound)
    return schedule


def wire_bytes(schedule):
    return sum(step.cost.wire_bytes for step in schedule.steps)


def is_finer(schedule):
    """Where dims are seen as digits, or axes cut, a plan may be cheaper than any over whole axes."""
    return schedule.by is not None or any(step.name == "Reshape" for step in schedule.steps)


def assert_as_cheap(schedule, found):
    """As brute force with exchanges in pieces of one size, or cheaper; no cheaper than with those of unequal sizes."""
    expected, least = (found(uneven=uneven) for uneven in (False, True))
    assert wire_bytes(schedule) <= expected
    if any(isinstance(step.op, UnevenExchange) for step in schedule.steps):
        assert (is_finer(schedule) or least <= wire_bytes(schedule)) and wire_bytes(schedule) < expected
    elif not is_finer(schedule):
        assert wire_bytes(schedule) == expected


@SETTINGS
@given(matmuls(max_axes=2))
def test_matmuls(case):
    schedule = planned(case)
    arrays = [schedule.given(number) for number in (*schedule.inputs, *schedule.outputs)]
    shardings, dims = [array.sharding for array in arrays], tuple(array.dims for array in arrays)
    itemsize = schedule.program.dtype.bytes
    assert_as_cheap(schedule, partial(matmul_oracle, case.mesh, case.dims, *shardings, itemsize, dims))


@SETTINGS
@given(reshards(max_rank=2))
def test_reshards(case):
    schedule = planned(case)
    itemsize = schedule.program.dtype.bytes
    assert_as_cheap(schedule, partial(shortest_path_oracle, case.mesh, case.shape, case.source, case.target, itemsize))


@SETTINGS
@given(programs())
def test_programs(case):
    planned(case)
