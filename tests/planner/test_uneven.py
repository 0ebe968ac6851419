"""Reshards where sizes of axes share some factors, or none: what the busiest device needs, and not a byte more."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost.formulas import evaluate
from shardc.ir.collectives import UnevenExchange
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.ir.uneven import timetable
from shardc.planner import Objective
from shardc.rules.placements import placements
from shardc.testing import needed_bytes

sys.path.insert(0, str(Path(__file__).parent))
from reshards import INT, assert_means_the_array, planned

SIZES = [(2, 3), (2, 3, 4), (4, 6), (6, 4), (3, 4, 2), (12, 18), (4, 4, 6), (4, 6, 5), (10, 6)]


@st.composite
def reshards(draw):
    """A reshard of rank 1 to 3 whose dims are as small as the shardings allow, or multiples of that."""
    mesh, rank = Mesh.of(zip("WXYZ", draw(st.sampled_from(SIZES)), strict=False)), draw(st.integers(1, 3))
    every = list(placements(mesh.names, rank))
    source, target = (Sharding(draw(st.sampled_from(every))) for _ in range(2))
    times = draw(st.sampled_from([1, 1, 2, 3]))
    shape = tuple(times * math.lcm(*pair) for pair in zip(source.blocks(mesh), target.blocks(mesh), strict=True))
    return mesh, shape, source, target


@settings(max_examples=60, deadline=None)
@given(reshards())
def test_a_reshard_brings_what_the_busiest_device_needs(case):
    """Wire bytes are those of `needed_bytes`, counted device by device, unless the exchange is too long to write."""
    mesh, shape, source, target = case
    found = planned(*case)
    least = needed_bytes(mesh, shape, source, target, INT.bytes)
    assert found.cost.wire_bytes >= found.bound_bytes == least
    if timetable(source.dims, target.dims, mesh) is not None:
        assert found.cost.wire_bytes == least
    assert_means_the_array(found)


@pytest.mark.instant
@settings(max_examples=40, deadline=None)
@given(reshards())
def test_by_time_it_is_taken_where_it_is_faster(case):
    found = planned(*case, Objective.TIME)
    assert found.cost.wire_bytes >= found.bound_bytes
    assert_means_the_array(found)
    exchanged = [step for step in found.schedule.steps if isinstance(step.op, UnevenExchange)]
    if exchanged:  # the strategies without follow it
        own, *others = found.statements[0].alternatives
        assert own.time_s == pytest.approx(found.cost.time_s)
        assert all(other.time_s > own.time_s for other in others)


@pytest.mark.instant
@pytest.mark.parametrize("dims", ["I=6, J=6", "I=6000, J=6000"])
def test_in_the_table_it_is_a_permute_in_rounds(dims):
    """2×3: half of the rows, a third of the columns, become a third of the rows, half of the columns."""
    plan = shardc.plan("A[I_X, J_Y] → A[I_Y, J_X]", mesh="X=2, Y=3", dims=dims, chip="v5p", objective="bytes")
    (only,) = plan.steps
    assert (only.op, only.axes, only.dim, only.rule) == ("CollectivePermute", ("X", "Y"), None, "reshard, 4 rounds")
    assert only.wire_bytes == plan.cost.wire_bytes == plan.bound.wire_bytes == only.bytes
    assert evaluate(only.formula, plan.symbols) == pytest.approx(only.time_s)
    assert json.loads(plan.to_json())["statements"][0]["alternatives"][0]["wire_bytes"] == only.wire_bytes


def test_a_part_of_what_is_moved_is_so_in_the_formula():
    """`A[I_X] → A[I_Y]`, X=4, Y=6, I=12: a block has 3 cells, two of which are brought."""
    plan = shardc.plan("A[I_X] → A[I_Y]", mesh="X=4, Y=6", dims="I=12", chip="v5p", objective="bytes")
    (only,) = plan.steps
    assert only.wire_bytes == 2 * 2 == plan.bound.wire_bytes
    large = shardc.plan("A[I_X] → A[I_Y]", mesh="X=4, Y=6", dims="I=12000012", chip="v5p", objective="bytes")
    (only,) = large.steps
    assert "·2/3" in only.formula and evaluate(only.formula, large.symbols) == pytest.approx(only.time_s)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "micros"),
    [  # replayed 1,013 and 440 µs, as XLA's own; 1,522 and 486 by moves one after another
        ("A[I_Z, J_X] → A[I_Z, J_Y]", {"I": 16384, "J": 16384, "µs": 1013}),
        ("A[I_X, J_Y] → A[I_Y, J_Z]", {"I": 8192, "J": 8192, "µs": 440}),
    ],
)
def test_whole_blocks_go_to_where_copies_are_to_be_at_the_price_of_a_permute(text, micros):
    """Each device sends its own block, a copy too: nothing is cut, or laid from pieces, but the output is laid anew."""
    wanted = micros.pop("µs")
    plan = shardc.plan(text, mesh="X=2,Y=2,Z=2", dims=micros, dtype="bf16", topology="v5p:2x2x2")
    (only,) = plan.steps
    assert only.op == "CollectivePermute" and only.wire_bytes == only.bytes
    assert only.time_s * 1e6 == pytest.approx(wanted, rel=0.01)
    assert evaluate(only.formula, plan.symbols) == pytest.approx(only.time_s)


def test_moves_on_the_way_from_a_product_are_one_exchange():
    """And what leads to it stays: the moves of one array between two of its shardings are replaced, nothing else."""
    text, sizes = "A[I_X, J] · B[J, K_Y] → C[I_Y, K_X]", {"I": 96, "J": 960, "K": 96}
    plan = shardc.plan(text, mesh="X=2, Y=3", dims=sizes, chip="v5p", objective="bytes")
    assert [step.op for step in plan.steps] == ["Einsum", "CollectivePermute"]
    assert plan.cost.wire_bytes == 96 * 96 * 2 // 6


def test_what_the_text_names_is_done():
    """Collectives named one after another are no run of moves."""
    text = "B[I, J_Y] = AllGather_X(A[I_X, J_Y]); C[I, J] = AllGather_Y(B); D[I_Y, J] = Slice_Y(C)"
    plan = shardc.plan(text, mesh="X=2, Y=3", dims="I=6, J=6", chip="v5p", objective="bytes")
    assert [step.op for step in plan.steps] == ["AllGather", "AllGather", "Slice"]


def test_a_memory_limit_is_kept():
    case = Mesh.of({"X": 2, "Y": 3}), (60, 60), Sharding.of(["X", "Y"]), Sharding.of(["Y", "X"])
    free = planned(*case)
    assert planned(*case, memory=free.cost.peak_bytes).cost.wire_bytes == free.bound_bytes


@pytest.mark.instant
@pytest.mark.parametrize("objective", ["time", "bytes"])
@pytest.mark.parametrize(
    "text, op",
    [
        ("A[I_X, J] → A[I, J]", "AllGather"),
        ("A[I_X, J] → A[I, J_X]", "AllToAll"),
        ("A[I_XY, J] → A[I_YX, J]", "CollectivePermute"),
    ],
)
def test_one_move_that_brings_no_more_stays(text, op, objective):
    """Of two devices, a block that is sent may take less time than one that is gathered; they are one collective."""
    for chip_name in ("v5p", "v5e", "H100"):
        plan = shardc.plan(text, mesh="X=2, Y=2", dims="I=8192, J=8192", chip=chip_name, objective=objective)
        assert [(step.op, "rounds" in step.rule) for step in plan.steps] == [(op, False)]


def test_an_exchange_among_120_devices_brings_what_is_needed():
    """In 110 rounds: 64 were not enough, and two AllToAlls brought 1.76 times as much."""
    options = {"mesh": "W=4,X=6,Y=5", "dims": "I=5,J=120,K=24", "dtype": "f32", "chip": "v5p", "objective": "bytes"}
    plan = shardc.plan("A[I_Y, J_WX, K] → A[I, J_Y, K_WX]", **options)
    assert plan.cost.wire_bytes == plan.bound.wire_bytes == 120 * 4
    array = np.arange(5 * 120 * 24, dtype=np.float32).reshape(5, 120, 24)
    assert (plan.simulate(array) == array).all()


def test_an_exchange_too_long_to_be_written_is_told_with_its_gap():
    options = {"mesh": "W=12,X=18,Y=5", "dims": "I=1080,J=1080,K=1080", "chip": "v5p", "objective": "bytes"}
    plan = shardc.plan("A[I_Y, J_WX, K] → A[I, J_Y, K_WX]", **options)
    (note,) = plan.notes
    gap = plan.cost.wire_bytes / plan.bound.wire_bytes
    assert gap > 1.5 and note.startswith("an exchange in unequal pieces is too long") and note.endswith(f"{gap:.2f}")
