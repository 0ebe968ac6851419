"""What all devices receive together, against elements that are counted one by one."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost.received import received, received_by_all
from shardc.ir.plan import single_steps
from shardc.testing import shardings

MESHES = ({"X": 2, "Y": 2}, {"X": 2, "Y": 3}, {"X": 4, "Y": 2}, {"X": 2, "Y": 2, "Z": 3})
SIZES = {"I": 24, "J": 48}


def elements(array, mesh, place):
    """The indices that a device holds."""
    block, shape = array.sharding.block_of(place, mesh), array.local_shape(mesh)
    return set(product(*(range(n * size, (n + 1) * size) for n, size in zip(block, shape, strict=True))))


def counted(step, block, mesh):
    """Of each device what it gets that it did not have, in elements of the array: where nothing is summed."""
    before, after = block.values[step.operands[0]], block.values[step.result]
    return [len(elements(after, mesh, place) - elements(before, mesh, place)) for place in mesh.coordinates()]


@pytest.mark.instant
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@settings(max_examples=15)
@given(data=st.data())
def test_all_devices_together_receive_what_each_does(mesh, data):
    """Tells apart the sum from devices times the busiest, which a permute is not."""
    given_mesh = shardc.ir.mesh.Mesh.of(mesh)
    before, after = (data.draw(shardings(given_mesh, 2, unreduced=False)) for _ in range(2))
    spelled = [shardc.ir.sharding.spell(("I", "J"), each) for each in (before, after)]
    plan = shardc.plan(f"A{spelled[0]} → A{spelled[1]}", mesh=mesh, dims=SIZES, objective="bytes", dtype="int8")
    schedule, total = plan.schedule, 0
    for done in single_steps(schedule.block):
        if not done.step.cost.wire_bytes:
            continue
        each = counted(done.step, done.block, schedule.mesh)
        array = done.block.values[done.step.operands[0]]
        found = received_by_all(done.step, array, schedule.mesh)
        assert (found, done.step.cost.wire_bytes) == (sum(each), max(each)), done.step
        total += found
    assert received(schedule) == total


def test_some_devices_of_a_permute_keep_their_own():
    plan = shardc.plan("A[I_XY, J] → A[I_YX, J]", mesh={"X": 2, "Y": 2}, dims=SIZES, dtype="int8")
    assert plan.steps[0].op == "CollectivePermute"
    assert plan._view.totals.wire_bytes == 2 * plan.cost.wire_bytes
    assert "288 B per device, 576 B on all 4" in str(plan)


def test_of_too_many_devices_the_table_says_what_one_receives():
    plan = shardc.plan("A[I_XY, J] → A[I_YX, J]", mesh={"X": 512, "Y": 256}, dims={"I": 2**18, "J": 8})
    assert plan._view.totals.wire_bytes is None and "per device\n" in str(plan).replace("  (1.00× the lower bound)", "")
