"""The orders that the compiler may take: each a legal one, of the same steps."""

import pytest

import shardc
from shardc.cost.scheduled import orders

FEED_FORWARD = "Tmp[B_X, F] = In[B_X, D] · Win[D_X, F]; Out[B_X, D] = relu(Tmp) · Wout[F, D_X]"
SIZES = {"B": 16384, "D": 8192, "F": 32768}


@pytest.fixture(scope="module")
def block():
    program = shardc.parse(FEED_FORWARD, mesh={"X": 8}, dims=SIZES, topology="v5e:2x4", dtype="bf16")
    return shardc.plan(shardc.grad(program, whole=True)).schedule.block


@pytest.mark.parametrize(("early", "count"), [(False, 2), (True, 3)])
def test_every_order_makes_what_it_reads_before(block, early, count):
    found = list(orders(block, early, {}))
    assert len(found) == count
    for steps in found:
        there = set(block.inputs)
        for step in steps:
            assert there.issuperset(step.operands)
            there.update(step.results)
        assert there.issuperset(block.outputs) and len({step.results for step in steps}) == len(steps)


def test_weights_are_gathered_first_and_outputs_come_last(block):
    *_, steps = orders(block, True, {})
    assert [step.name for step in steps[:2]] == ["AllGather", "AllGather"]
    assert all(set(step.results) <= set(block.outputs) for step in steps[-2:])
    assert all(plain[-1].name == "ReduceScatter" for plain in orders(block, False, {}))


def test_what_waits_for_a_value_comes_after_it(block):
    """Without, the second gather is taken first; so it is where it reads through a barrier."""
    gathers = [step for step in block.steps if step.name == "AllGather"]
    product = next(step for step in block.steps if gathers[0].result in step.operands)
    *_, steps = orders(block, True, {gathers[1].result: product.result})
    assert steps.index(product) < steps.index(gathers[1])
