"""What a schedule means on virtual devices, every device's block, against NumPy on whole arrays."""

from shardc import simulate
from shardc.testing import assert_equal_on_every_device, assert_schedule_legal

CLOSE = 1e-6  # of the largest value: both are computed in float64, where f32 arrays are rounded once


def assert_means_the_program(schedule, seed=0):
    assert_schedule_legal(schedule)
    wholes = simulate.sample_inputs(schedule.program, seed)
    blocks = simulate.run(schedule, wholes)
    expected = simulate.reference(schedule.program, wholes)
    for block, number, whole in zip(blocks, schedule.outputs, expected, strict=True):
        assert_equal_on_every_device(block, whole, schedule.values[number], schedule.mesh, CLOSE * abs(whole).max())
