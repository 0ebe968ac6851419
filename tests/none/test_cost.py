"""Prices worked by hand, so that a wrong formula cannot agree with itself."""

import pytest

from shardc.cost import CHIPS, RingModel, chip
from shardc.cost.memory import peak_bytes
from shardc.errors import ShardcError
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, CollectivePermute, ReduceScatter, Slice, wire_bytes
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Einsum, Step, StepCost
from shardc.ir.sharding import Array, Sharding

MESH = Mesh.of({"X": 4, "Y": 2})
BEFORE = Sharding.of([["X", "Y"], []])


@pytest.mark.parametrize(
    ("move", "before", "expected"),
    [
        (AllGather(("Y",), 0), BEFORE, 800),  # one other block of 800
        (AllGather(("X", "Y"), 0), BEFORE, 5600),  # seven other blocks
        (ReduceScatter(("X",), 0), Sharding.of([[], []], ["X"]), 600),  # three quarters, from the others
        (AllReduce(("X",)), Sharding.of([[], []], ["X"]), 1200),  # the same twice
        (AllReduce(("X", "Y")), Sharding.of([[], []], ["X", "Y"]), 1400),
        (AllToAll(("X",), 0, 1), Sharding.of([["X"], []]), 600),
        (CollectivePermute(("X", "Y"), (("Y", "X"), ())), BEFORE, 800),
        (Slice(("X",), 0), Sharding.of([[], []]), 0),
    ],
)
def test_wire_bytes_of_800_local_bytes(move, before, expected):
    assert wire_bytes(move, before, MESH, 800) == expected


def test_a_permute_along_axes_of_one_moves_nothing():
    mesh = Mesh.of({"X": 4, "Z": 1})
    assert wire_bytes(CollectivePermute(("X", "Z"), (("Z", "X"),)), Sharding.of([["X", "Z"]]), mesh, 800) == 0


def microseconds(move, local_bytes, mesh=MESH, name="v5e"):
    return RingModel(mesh, chip(name)).rate(move).time_ps(local_bytes) / 1e6


def test_all_gather_on_a_ring_of_v5e():
    # 4 x 8.4 MB gathered, three quarters of it received over 9e10 B/s: 280 us.
    assert microseconds(AllGather(("X",), 0), 512 * 8192 * 2) == pytest.approx(279.6, rel=1e-3)


def test_a_small_gather_takes_the_latency_of_its_hops():
    assert microseconds(AllGather(("X",), 0), 64) == 2  # two hops of 1 us reach round a ring of four


def test_two_axes_carry_together():
    alone = microseconds(AllGather(("X",), 0), 10**9)
    both = microseconds(AllGather(("X", "Y"), 0), 10**9)
    assert both / alone == pytest.approx((7 / 2) / 3, rel=1e-6)


def test_all_to_all_is_a_quarter_of_a_gather_on_a_long_even_ring():
    mesh = Mesh.of({"X": 256})
    gather = microseconds(AllGather(("X",), 0), 10**8, mesh)
    exchange = microseconds(AllToAll(("X",), 0, 1), 10**8, mesh)
    assert gather / exchange == pytest.approx(4, rel=0.01)


def test_all_reduce_is_scatter_and_gather():
    reduce = microseconds(AllReduce(("X",)), 10**9)
    parts = microseconds(ReduceScatter(("X",), 0), 10**9) + microseconds(AllGather(("X",), 0), 10**9 // 4)
    assert reduce == pytest.approx(parts, rel=1e-6)


def test_through_a_switch_every_byte_costs_the_port():
    mesh = Mesh.of({"X": 8})
    assert microseconds(AllGather(("X",), 0), 64e6, mesh, "H100") == pytest.approx(7 * 64e6 / 450e9 * 1e6, rel=1e-6)


def test_a_product_takes_the_longer_of_arithmetic_and_memory():
    model = RingModel(MESH, chip("v5p"))
    assert model.local_ps(459_000_000_000, 1, DTYPES["bf16"]) == 10**9  # 4.59e11 FLOP at 4.59e14/s: 1 ms
    assert model.local_ps(1, 2_800_000_000, DTYPES["bf16"]) == 10**9  # 2.8e9 B at 2.8e12 B/s: 1 ms


def test_an_unknown_chip_names_the_nearest():
    with pytest.raises(ShardcError, match="did you mean `v5p`") as caught:
        chip("v5pp")
    assert caught.value.code == "SHC223"
    assert chip("V5P") is CHIPS["v5p"]


def test_peak_memory_counts_operands_and_result_together():
    # A (64 B) and B (32 B) live throughout; C (16 B) is added; the peak is all three.
    f32 = DTYPES["f32"]
    values = [
        Array("A", ("I",), (16,), Sharding.of([[]]), f32),
        Array("B", ("I",), (32,), Sharding.of([["X"]]), f32),
        Array("C", ("I",), (16,), Sharding.of([["X"]]), f32),
        Array("D", ("I",), (16,), Sharding.of([["X", "Y"]]), f32),
    ]
    steps = [
        Step(Einsum(), (0, 1), 2, 0, StepCost()),
        Step(Slice(("Y",), 0), (2,), 3, 0, StepCost()),
    ]
    assert peak_bytes(values, [0, 1], [3], steps[:1], MESH) == 64 + 32 + 16
    assert peak_bytes(values, [0, 1], [3], steps, MESH) == 64 + 32 + 16 + 8
