"""What a schedule means on virtual devices, every device's block, against NumPy on whole arrays."""

from shardc import simulate
from shardc.testing import assert_equal_on_every_device, assert_schedule_legal

CLOSE = 2.0**-12  # in f64 of samples in steps of 2^-8: far above the rounding, far below one unit


def assert_means_the_program(schedule, seed=0):
    assert_schedule_legal(schedule)
    wholes = simulate.sample_inputs(schedule.program, seed)
    blocks = simulate.run(schedule, wholes)
    expected = simulate.reference(schedule.program, wholes)
    for block, number, whole in zip(blocks, schedule.outputs, expected, strict=True):
        assert_equal_on_every_device(block, whole, schedule.values[number], schedule.mesh, CLOSE * abs(whole).max())
