"""What a product and its collectives cost as one, worked by hand; and that an axis of one device adds to no price."""

from dataclasses import replace

import pytest

import shardc
from shardc.cost import CHIPS, LinkModel
from shardc.cost.together import beside, blocking_s, group_s, time_together
from shardc.ir.collectives import AllGather, AllReduce, ReduceScatter
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Einsum, How, StepCost, Together
from shardc.lowering.together import candidates

HOP = 0.25
MODEL = LinkModel.of(Mesh.of({"X": 2}), replace(CHIPS["v5p"], hop_latency=HOP))
GATHER, SCATTER, SUM, PRODUCT = AllGather(("X",), 0), ReduceScatter(("X",), 0), AllReduce(("X",)), Einsum()


def timed(*steps):
    """A schedule of these operations, each of so many seconds. A product whose sums go round reaches 0.97 of its speed
    alone, and one that XLA windows 0.76."""
    plan = shardc.plan("A[I, J_X] · B[J_X, K] → C[I_X, K]", mesh={"X": 2})
    first = plan.schedule.steps[0]
    made = tuple(replace(first, op=op, cost=StepCost(time_s=seconds)) for op, seconds in steps)
    return replace(plan.schedule, block=replace(plan.schedule.block, steps=made))


@pytest.mark.instant
@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        ([(PRODUCT, 9.7), (SCATTER, 4.0)], 10 + HOP),  # the collective is hidden by 10 s of products
        ([(PRODUCT, 0.97), (SCATTER, 4.0)], 4 + 0.5 + HOP),  # of the products half by the collective
        ([(PRODUCT, 9.7), (SUM, 4.0)], 2 + 10 + HOP),  # of a sum the half that scatters; what gathers comes after
        ([(PRODUCT, 0.97), (SUM, 4.0)], 2 + 0.5 + 2 + HOP),
        ([(GATHER, 3.0), (GATHER, 4.0), (PRODUCT, 7.6)], 3 + 10 + HOP),  # of several the last
        ([(GATHER, 3.0), (GATHER, 4.0), (PRODUCT, 0.76)], 3 + 4 + HOP),
    ],
)
def test_a_group_takes_the_longer_of_what_is_done_at_once(steps, seconds):
    schedule = timed(*steps)
    group = Together(0, len(steps) - 1, How.RING if len(steps) == 2 else How.PARTITIONER)  # no ring has two gathers
    assert group_s(schedule, group, MODEL) == pytest.approx(seconds)
    assert blocking_s(schedule.steps) == pytest.approx(sum(each for _, each in steps))


def test_a_ring_over_two_axes_takes_its_turns_or_its_products():
    """Of 2·2 a turn both ways, for which each device has two links, and one to a neighbour alone: on v5e, of 45 GB/s
    each, blocks of 9 MB take 0.2 ms. Products reach 0.76 of their speed; the first is done beside the first turn."""
    text, dims = "A[I_XY, J] · B[J, K_XY] → C[I, K_XY]", {"I": 12000, "J": 1500, "K": 12000}
    plan = shardc.plan(text, mesh={"X": 2, "Y": 2}, dims=dims, dtype="bf16", chip="v5e", idle="keep", overlap="off")
    for product, seconds in ((1.9e-4, 4e-4 + 2.5e-4 / 4), (3.8e-4, 5e-4 + 2e-4 - 5e-4 / 4), (7.6e-4, 10e-4)):
        steps = tuple(
            replace(step, cost=StepCost(time_s=product)) if isinstance(step.op, Einsum) else step
            for step in plan.schedule.steps
        )
        schedule = replace(plan.schedule, block=replace(plan.schedule.block, steps=steps))
        assert group_s(schedule, Together(0, 1, How.RING), plan._model) == pytest.approx(seconds)


def test_two_rings_turn_their_blocks_and_hide_the_rest():
    """Of 2·2 on v5e one turn before the products and one between, each of both operands at once, over links of their
    own: blocks of 9 MB take 0.2 ms. Two sums of 144 MB are read and written, nine tenths of it beside nothing."""
    text, dims = "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]", {"I": 12000, "J": 1500, "K": 12000}
    plan = shardc.plan(text, mesh={"X": 2, "Y": 2}, dims=dims, dtype="bf16", chip="v5e", idle="keep", overlap="off")
    sums = 2 * 2 * 144e6 / CHIPS["v5e"].hbm_bandwidth
    for product in (1e-5, 1e-3):
        steps = tuple(
            replace(step, cost=StepCost(time_s=product)) if isinstance(step.op, Einsum) else step
            for step in plan.schedule.steps
        )
        schedule = replace(plan.schedule, block=replace(plan.schedule.block, steps=steps))
        seconds = 2e-4 + product + 0.9 * sums
        assert group_s(schedule, Together(0, 2, How.RINGS), plan._model) == pytest.approx(seconds)


def test_steps_outside_of_groups_come_one_after_another():
    schedule = timed((GATHER, 5.0), (PRODUCT, 9.7), (SCATTER, 4.0), (PRODUCT, 2.0))
    grouped = replace(schedule, together=(Together(1, 2, How.RING),))
    assert time_together(grouped, MODEL) == pytest.approx(5 + 10 + HOP + 2)
    assert time_together(schedule, MODEL) == pytest.approx(5 + 9.7 + 4 + 2)


@pytest.mark.instant
@pytest.mark.parametrize("topology", ["v5e:2x2", "v5p:2x2x1", None])
def test_an_axis_of_one_device_adds_to_no_price(topology):
    with_one, without = (
        shardc.plan("A[I, J_X] · B[J_X, K] → C[I_X, K]", mesh=mesh, dims={"I": 64, "J": 64, "K": 64}, topology=topology)
        for mesh in ({"X": 4, "Y": 1}, {"X": 4})
    )
    assert with_one.cost.time_s == without.cost.time_s and with_one.cost.wire_bytes == without.cost.wire_bytes
    assert {name for name in with_one.symbols if name != "Y"} == set(without.symbols)
    assert [step.formula for step in with_one.steps] == [step.formula for step in without.steps]


def test_a_sum_that_a_ring_gathers_is_copied_to_an_output():
    """And where the program goes on with it, it is not: 8192 × 2048 in bf16 on each device."""
    text, dims = "A[I, J_X] · B[J_X, K_Y] → C[I, K_Y]", dict.fromkeys("IJK", 8192)
    plan = shardc.plan(text, mesh="X=4,Y=4", dims=dims, topology="v5e:4x4", dtype="bf16", idle="keep", overlap="off")
    inside = replace(plan.schedule, block=replace(plan.schedule.block, outputs=()))
    assert [step.op for step in plan.steps] == ["Einsum", "AllReduce"]
    left, goes_on = (group_s(each, Together(0, 1, How.RING), plan._model) for each in (plan.schedule, inside))
    assert left - goes_on == pytest.approx(2 * 8192 * 2048 / plan._model.chip.hbm_bandwidth)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("mesh", "topology", "is_hidden"), [("X=4,Y=4", "v5e:4x4", True), ("X=4,Y=8", "v5e:4x8", False)]
)
def test_chunks_hide_their_gather_where_rings_hide_nothing(mesh, topology, is_hidden):
    """On v5e of 32 chips permutes hold up products, and gathers do not."""
    dims, options = dict.fromkeys("IJK", 8192), {"dtype": "bf16", "idle": "keep", "overlap": "off"}
    text = "A[I_X, J] · B[J_X, K] → C[I_X, K]"
    plan = shardc.plan(text, mesh=mesh, dims=dims, topology=topology, **options)
    for ordered, group in candidates(plan.schedule):
        before, computing, hidden, left = beside(ordered, group, plan._model)
        at_once = is_hidden or group.how is How.CHUNKS
        seconds = max(computing, hidden) if at_once else computing + hidden
        assert min(computing, hidden) > 0
        assert group_s(ordered, group, plan._model) == pytest.approx(before + seconds + left)
    assert {How.RING, How.CHUNKS} <= {group.how for _, group in candidates(plan.schedule)}
