"""What links carry is what a move is priced by: the busiest link takes as long as the price says, but for latency."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost.carried import carried
from shardc.cost.chips import CHIPS
from shardc.cost.layout import LINE
from shardc.cost.model import LinkModel
from shardc.ir.collectives import AllReduce, uneven_exchange
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Local, single_steps
from shardc.ir.sharding import Sharding
from shardc.lowering.forms import at_once
from shardc.testing import strategies
from shardc.testing.strategies import Reshard


def carried_by(move, levels, local_bytes, mesh):
    """As one collective, or as many as its turns."""
    call = at_once(move)
    return carried(call.kind, levels, call.times * call.above * local_bytes / call.below, mesh.product(move.axes))


def seconds(found):
    return max(each.busiest * each.line.stride / each.line.link for each in found)


def assert_as_priced(plan):
    """And how many moves were held against their price."""
    model, count = plan._model, 0
    for done in single_steps(plan.schedule.block):
        op = done.step.op
        if isinstance(op, Local) or not done.step.cost.wire_bytes:
            continue
        levels, local = model.network.levels(op.axes), done.block.values[done.step.operands[0]].local_bytes(model.mesh)
        found = carried_by(op, levels, local, model.mesh)
        if not found:
            continue
        count += 1
        slowest, priced = seconds(found), model.rate(op).s_per_byte * local
        if isinstance(op, AllReduce) and any(each.line.shape is LINE for each in found):
            assert priced / 2 * (1 - 1e-9) <= slowest <= priced * (1 + 1e-9)  # busy at one end, then at the other
        else:
            assert slowest == pytest.approx(priced, rel=1e-9), op
    return count


@pytest.mark.instant
@settings(max_examples=60)
@given(
    strategies.reshards(max_axes=3, max_size=5),
    st.sampled_from(({"chip": "v5e"}, {"wraparound": {"X": "ring"}}, {"wraparound": {"X": "one-way"}})),
    st.sampled_from(("time", "bytes")),
)
def test_the_busiest_link_takes_as_long_as_the_move_is_priced(case, hardware, objective):
    try:
        plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, objective=objective, **hardware)
    except shardc.ShardcError:
        return
    assert_as_priced(plan)


@pytest.mark.instant
@pytest.mark.parametrize("topology", ["v5p:4x4x4", "v5e:8x8", "v5e:16x4"])
def test_so_it_does_where_axes_share_links(topology):
    counts = [
        assert_as_priced(shardc.plan(text, mesh={"X": 8, "Y": 8}, dims={"I": 2**10, "J": 2**10}, topology=topology))
        for text in ("A[I_X, J_Y] → A[I, J]", "A[I_XY, J] → A[I, J_XY]", "A[I_Y, J]{U_X} → A[I_Y, J]")
    ]
    assert all(counts)


@pytest.mark.instant
@given(strategies.reshards(max_axes=3, max_size=4, unreduced=False))
@example(Reshard(Mesh.of({"X": 2, "Y": 4}), (16, 16), Sharding.of([("X",), ()]), Sharding.of([("Y",), ()])))
def test_an_exchange_in_uneven_pieces_carries_what_it_brings(case):
    """From halves to quarters a device receives some cells of those that a block has, and not a block."""
    move = uneven_exchange(case.source, case.target.dims, case.mesh)
    if move is None:
        return
    model = LinkModel.of(case.mesh, CHIPS["v5e"])
    levels = model.network.levels(move.axes)
    if levels:
        found = carried_by(move, levels, 2**20, case.mesh)
        assert seconds(found) == pytest.approx(model.rate(move).s_per_byte * 2**20, rel=1e-9)


def test_the_examples_of_uneven_pieces_are_uneven():
    mesh = Mesh.of({"X": 2, "Y": 4})
    move = uneven_exchange(Sharding.of([("X",), ()]), (("Y",), ()), mesh)
    assert 0 < move.brings < move.cells
