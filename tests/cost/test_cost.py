"""Prices worked by hand, so that a wrong formula cannot agree with itself."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import CHIPS, Layout, LinkModel, chip, chips, topology
from shardc.cost.formulas import evaluate
from shardc.cost.layout import LINE, RING
from shardc.cost.memory import peak_bytes
from shardc.errors import ShardcError
from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    ReduceScatter,
    Slice,
    uneven_exchange,
)
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Block, Einsum, Step, StepCost
from shardc.ir.sharding import Array, Sharding
from shardc.lowering.scatters import block_of

MESH = Mesh.of({"X": 4, "Y": 2})
BEFORE = Sharding.of([["X", "Y"], []])


@pytest.mark.instant
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
    assert move.wire_bytes(before, MESH, 800) == expected


def test_a_permute_along_axes_of_one_moves_nothing():
    mesh = Mesh.of({"X": 4, "Z": 1})
    move = CollectivePermute(("X", "Z"), (("Z", "X"),))
    assert move.wire_bytes(Sharding.of([["X", "Z"]]), mesh, 800) == 0


def microseconds(move, local_bytes, mesh, name, layout=None, **options):
    model = LinkModel.of(Mesh.of(mesh), chip(name), layout, **options)
    return model.rate(move).time_ps(local_bytes) / 1e6


GATHER = AllGather(("X",), 0)


def test_a_line_has_one_link_at_its_ends():
    # v5e closes at 16: on an axis of 4, three blocks of 9e6 B come through one link of 4.5e10 B/s: 600 us.
    assert microseconds(GATHER, 9_000_000, {"X": 4}, "v5e") == 600


def test_a_ring_takes_in_from_both_sides():
    # 15 blocks of 9e6 B over 2 x 4.5e10 B/s: 1500 us.
    assert microseconds(GATHER, 9_000_000, {"X": 16}, "v5e") == 1500


def test_latency_counts_hops():
    assert microseconds(GATHER, 64, {"X": 16}, "v5e") == 8  # half way round a ring of 16
    assert microseconds(GATHER, 64, {"X": 4}, "v5e") == 3  # from end to end of a line of 4
    assert microseconds(AllGather(("X", "Y"), 0), 64, {"X": 4, "Y": 4}, "v4p") == 4  # two rings of 4


def test_axes_of_one_move_use_all_their_links():
    # 15 blocks of 9e6 B over two rings of 2 x 9e10 B/s: 375 us.
    assert microseconds(AllGather(("X", "Y"), 0), 9_000_000, {"X": 4, "Y": 4}, "v5p") == 375


def test_reduce_scatter_mirrors_and_all_reduce_doubles():
    mesh = {"X": 4}
    gather = microseconds(GATHER, 9_000_000, mesh, "v5p")
    assert microseconds(ReduceScatter(("X",), 0), 36_000_000, mesh, "v5p") == gather == 150
    assert microseconds(AllReduce(("X",)), 36_000_000, mesh, "v5p") == 300


def test_all_to_all_on_rings_and_lines_even_and_odd():
    move = AllToAll(("X",), 0, 1)
    # V = 4 x 9e6 B: V/(8w) on an even ring, V/(4w) on an even line, w = 9e10 or 4.5e10 B/s.
    assert microseconds(move, 9_000_000, {"X": 4}, "v5p") == 50
    assert microseconds(move, 9_000_000, {"X": 4}, "v5e") == 200
    # n = 5: V(n²-1)/(8n²w) = 45e6·24/(8·25·9e10) = 60 us.
    rings = Layout(wraparound=(("X", RING),))
    assert microseconds(move, 9_000_000, {"X": 5}, "v5p", rings) == 60
    # Both axes of a 4 x 8 torus: V·nᵢ/(8wN) = 32·9e6·8/(8·9e10·32) = 100 us, the longer axis.
    assert microseconds(AllToAll(("X", "Y"), 0, 1), 9_000_000, {"X": 4, "Y": 8}, "v5p") == 100


def test_a_permute_takes_its_longest_route():
    swap = CollectivePermute(("X", "Y"), (("Y", "X"),))
    # Rings of 4: two hops at most, a block of 9e6 B, both directions of 9e10 B/s: 100 us.
    assert microseconds(swap, 9_000_000, {"X": 4, "Y": 4}, "v5p") == 100
    # Lines of 4: three hops, 4.5e10 B/s: 600 us.
    assert microseconds(swap, 9_000_000, {"X": 4, "Y": 4}, "v5e") == 600


def test_the_books_formula_drops_n_minus_one():
    assert microseconds(GATHER, 9_000_000, {"X": 4}, "v5p", book=True) == 200
    assert microseconds(AllReduce(("X",)), 36_000_000, {"X": 4}, "v5p", book=True) == 400


def test_a_switch_takes_one_hop_and_the_ports_bandwidth():
    assert microseconds(GATHER, 9_000_000, {"X": 8}, "H100") == 140  # 63e6 B over 450e9 B/s
    assert microseconds(GATHER, 8, {"X": 8}, "H100") == 1
    # V(n-1)/(n²W) = 72e6·7/(64·450e9) = 17.5 us.
    assert microseconds(AllToAll(("X",), 0, 1), 9_000_000, {"X": 8}, "H100") == 17.5


def test_beyond_the_domain_the_slower_level_counts():
    # 16 GPUs: V = 144e6 B. Between two nodes half of it, over 8 x 50e9 B/s: 180 us. Inside, 7/8 over 450e9: 280 us.
    assert microseconds(GATHER, 9_000_000, {"X": 16}, "H100") == 280
    # One GPU per node (the minor axis fills the node): half of 18e6 B over 50e9 B/s: 180 us.
    assert microseconds(GATHER, 9_000_000, {"X": 2, "Y": 8}, "H100") == 180


def test_over_dcn_a_chip_has_its_own_egress():
    layout = Layout(dcn=("P",))
    assert microseconds(AllReduce(("P",)), 6_250_000, {"P": 2, "X": 4}, "v5p", layout) == 1000  # 2·1/2·6.25e6/6.25e9
    # Gathered together every chip takes in 7 x 6.25e6 B by its own port.
    assert microseconds(AllGather(("P", "X"), 0), 6_250_000, {"P": 2, "X": 4}, "v5p", layout) == 7000


def test_types_run_at_their_own_peak():
    model = LinkModel.of(MESH, chip("v5p"))
    assert model.alone.seconds(459_000_000_000, 1, 0, DTYPES["bf16"]) == 1e-3  # 4.59e11 FLOP at 4.59e14/s: 1 ms
    assert model.alone.seconds(459_000_000_000, 1, 0, DTYPES["int8"]) == 5e-4
    assert model.alone.seconds(459_000_000_000, 0, 1, DTYPES["f32"]) == 2e-3
    assert model.alone.seconds(1, 800_000_000, 2_000_000_000, DTYPES["bf16"]) == 1e-3  # 2.8e9 B at 2.8e12 B/s: 1 ms


def test_wraparound_follows_the_chips_rule():
    assert chip("v5e").wraps((8, 16)) == (False, True)
    assert chip("v5p").wraps((4, 4, 8)) == (True, True, True)
    assert chip("v5p").wraps((4, 4, 2)) == (False, False, False)


def placed(mesh, slice_name, **layout):
    found = topology(slice_name)
    return LinkModel.of(Mesh.of(mesh), found.chip, Layout(topology=found, **layout)).network.links.lines


def test_mesh_axes_lie_on_one_physical_axis_or_several():
    lines = placed({"X": 4, "Y": 16}, "v5p:4x4x4")
    assert [(line.size, line.shape, line.stride) for line in lines["X"]] == [(4, RING, 1)]
    assert [(line.size, line.shape) for line in lines["Y"]] == [(4, RING)] * 2


def test_whole_rings_come_before_pieces():
    lines = placed({"X": 256, "Y": 16}, "v5p:16x16x16")
    assert [(line.size, line.shape) for line in lines["Y"]] == [(16, RING)]
    assert [(line.size, line.shape) for line in lines["X"]] == [(16, RING)] * 2


def test_a_part_of_a_physical_axis_is_a_line_or_shares_links():
    lines = placed({"X": 2, "Y": 2}, "v5e:4x1")
    assert [(line.shape, line.stride, line.width.value) for line in lines["X"]] == [(LINE, 2, 2.25e10)]
    assert [(line.shape, line.stride, line.width.value) for line in lines["Y"]] == [(LINE, 1, 4.5e10)]


def test_the_user_says_where_axes_lie():
    lines = placed({"X": 4, "Y": 16}, "v5p:4x4x4", map=(("X", (2,)), ("Y", (0, 1))))
    assert len(lines["Y"]) == 2
    with pytest.raises(ShardcError) as caught:
        placed({"X": 4, "Y": 16}, "v5p:4x4x4", map=(("Y", (0,)),))
    assert caught.value.code == "SHC224"


def test_a_mesh_that_is_not_the_slice_is_refused():
    with pytest.raises(ShardcError, match="64 chips") as caught:
        placed({"X": 4, "Y": 4}, "v5p:4x4x4")
    assert caught.value.code == "SHC224"


def test_an_unknown_chip_names_the_nearest():
    with pytest.raises(ShardcError, match="did you mean `v5p`") as caught:
        chip("v5pp")
    assert caught.value.code == "SHC223"
    assert chip("V5P") is CHIPS["v5p"]


def test_every_chip_has_its_sources_and_possible_constants():
    for row in CHIPS.values():
        assert row.source
        assert row.is_torus != bool(row.domain)
        assert min(row.flops, row.narrow_flops, row.hbm_bytes, row.hbm_bandwidth, row.link_bandwidth) > 0


def test_profiles_differ_in_link_speed():
    assert chip("v5e").in_profile("spec").link_bandwidth == 5e10
    assert chip("v3").in_profile("spec") == chip("v3")


OURS = """
name = "ours"
flops = 1e15
narrow_flops = 2e15
hbm_bytes = 64e9
hbm_bandwidth = 3e12
link_bandwidth = 1e11
dcn_bandwidth = 1e10
torus_dims = 3
wraps_multiples = 4
"""


def test_a_chip_from_a_file(tmp_path):
    path = tmp_path / "ours.toml"
    path.write_text(OURS, encoding="utf-8")
    plan = shardc.plan("A[I_X] → A[I]", mesh={"X": 4}, dims={"I": 4 * 10**8}, dtype="int8", chip=str(path))
    assert plan.chip == "ours"
    assert plan.cost.time_s == pytest.approx(3 * 10**8 / 2e11)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("flops = 1e15\n", ""), "`flops` is missing"),
        (("flops = 1e15\n", "flops = -1\n"), "`flops` = -1 is not a positive number"),
        (("hbm_bytes = 64e9", "hbm_bytes = inf"), "not a positive number"),
        (("hbm_bytes = 64e9", "hbm_byte = 64e9"), "did you mean `hbm_bytes`"),
        (("torus_dims = 3", "torus_dims = 2.5"), "not a count"),
        (("torus_dims = 3\n", ""), "`torus_dims`"),
        (("name", "name ="), "not TOML"),
        (('"ours"', '\'a"""\''), "`name` is not"),
        (("flops = 1e15", "flops = 1" + "0" * 400), "many digits"),
        (("link_bandwidth = 1e11", "link_bandwidth = 1e-320"), "not a positive number"),
        (("flops = 1e15", "flops = true"), "`flops` = True is not a positive number"),
        (("flops = 1e15", "flops = 1.1e30"), "not a positive number"),
        (("flops = 1e15", 'flops = "1e15"'), "not a positive number"),
        (("torus_dims = 3", "torus_dims = -1"), "`torus_dims` = -1 is not a count"),
        (("torus_dims = 3", "torus_dims = 1000000"), "not a count"),
        (("torus_dims = 3", "torus_dims = true"), "not a count"),
        (("torus_dims = 3", "torus_dims = 3\ndomain = 8"), "one of the two"),
        (("torus_dims = 3", 'torus_dims = 3\nsource = ""'), "`source` = '' is not a text"),
        (("torus_dims = 3", "torus_dims = 3\nsource = 4"), "`source` = 4 is not a text"),
        (('"ours"', f'"{"o" * 65}"'), "`name` is not"),
        (('"ours"', "7"), "`name` is not"),
    ],
)
def test_each_fault_of_a_chips_file_is_named(tmp_path, change, reason):
    path = tmp_path / "ours.toml"
    path.write_text(OURS.replace(*change, 1), encoding="utf-8")
    with pytest.raises(ShardcError) as caught:
        chip(str(path))
    assert caught.value.code == "SHC223"
    assert reason in caught.value.message


def test_what_a_chips_file_may_say(tmp_path):
    """Each field as it stands, at the limits too; and no more than 16 kB."""
    path = tmp_path / "ours.toml"
    text = OURS.replace('"ours"', f'"{"o" * 64}"').replace("flops = 1e15", "flops = 1e-12").replace("64e9", "1e30")
    text = text.replace("torus_dims = 3", 'torus_dims = 999999\nwraps_at = 0\nsource = "us"\nlargest = "4×4"')
    path.write_text(text + "#" * (16 * 1024 - len(text)), encoding="utf-8")
    found = chip(str(path))
    assert (found.name, found.flops, found.hbm_bytes, found.torus_dims) == ("o" * 64, 1e-12, 1e30, 999999)
    assert (found.source, found.most_chips, type(found.flops)) == ("us", 16, float)
    path.write_text(text + "#" * (16 * 1024 - len(text) + 1), encoding="utf-8")
    with pytest.raises(ShardcError, match="longer than 16384 characters"):
        chip(str(path))


def test_a_chips_file_that_is_not_there():
    with pytest.raises(ShardcError) as caught:
        chip("no-such.toml")
    assert caught.value.code == "SHC501"


def test_peak_memory_counts_operands_and_result_together():
    # A (64 B) and B (32 B) live throughout; C (16 B) is added; the peak is all three.
    f32 = DTYPES["f32"]
    values = (
        Array("A", ("I",), (16,), Sharding.of([[]]), f32),
        Array("B", ("I",), (32,), Sharding.of([["X"]]), f32),
        Array("C", ("I",), (16,), Sharding.of([["X"]]), f32),
        Array("D", ("I",), (16,), Sharding.of([["X", "Y"]]), f32),
    )
    steps = (
        Step(Einsum(), (0, 1), (2,), 0, StepCost()),
        Step(Slice(("Y",), 0), (2,), (3,), 0, StepCost()),
    )
    assert peak_bytes(Block(values, (0, 1), (3,), steps[:1]), MESH) == 64 + 32 + 16
    assert peak_bytes(Block(values, (0, 1), (3,), steps), MESH) == 64 + 32 + 16 + 8


TEXTS = [
    "A[I_X, J_Y] · B[J_Y, K_Z] → C[I_Z, K_X]",
    "A[I, J_XY] · B[J_XY, K] → C[I_Y, K]",
    "A[I_XYZ, J] → A[I, J_ZX]",
    "A[I, J]{U_XYZ} → A[I, J_Y]",
    "V[I]{U_XY} → V[I_Y]",
    "V[I_ZX] → V[I]",
    "In[B_X, D_Y] ·_D Win[D_X, F_Y] ·_F Wout[F_Y, D_X] → Out[B_X, D_Y]",
]
SETTINGS = [
    {"mesh": {"X": 4, "Y": 4, "Z": 4}, "chip": "v5p"},
    {"mesh": {"X": 2, "Y": 3, "Z": 5}, "chip": "v4p", "wraparound": "X=ring,Z=one-way"},
    {"mesh": {"X": 2, "Y": 4, "Z": 16}, "chip": "v5e", "topology": "v5e:8x16"},
    {"mesh": {"X": 2, "Y": 4, "Z": 2}, "chip": "H100"},
    {"mesh": {"X": 4, "Y": 4, "Z": 2}, "chip": "v6e", "dcn": "Z=2", "formula": "book"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1920, 19200])
def test_the_number_of_a_step_is_its_formula_evaluated(text, settings, size):
    dtype = ("bf16", "f32", "f64")[(TEXTS.index(text) + (size > 1920)) % 3]
    plan = shardc.plan(text, dims=dict.fromkeys("IJKBDF", size), dtype=dtype, **settings)
    for statement in plan.statements:
        for alternative in statement.cheapest(20):
            for step in alternative.steps:
                assert evaluate(step.formula, plan.symbols) == pytest.approx(step.time_s, rel=1e-6, abs=1e-12), step


def test_rows_that_lie_along_another_dim_are_turned_at_the_price_of_reading_and_writing_them():
    """Of A[I_X, J, L] the rows along L: A[L, I_X, J], all of it, before the trips."""
    text = "for L { y[L, I_X, J] = neg(A[I_X, J, L]) }"
    plan = shardc.plan(text, mesh={"X": 4}, dims={"I": 256, "J": 128, "L": 8}, dtype="f32", topology="v5e:2x2")
    (turned,) = [step for step in plan.steps if "rows along L" in str(step.rule)]
    assert evaluate(turned.formula, plan.symbols) == pytest.approx(turned.time_s, rel=1e-6) != 0


@pytest.mark.instant
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(
        [GATHER, AllReduce(("X",)), ReduceScatter(("X",), 0), AllToAll(("X",), 0, 1), AllReduce(("X", "Y"))]
    ),
    st.sampled_from(list(CHIPS.values())),
    st.integers(1, 2**40),
    st.integers(1, 2**40),
    st.integers(1, 17),
    st.integers(1, 17),
)
def test_time_is_monotone_in_bytes_and_not_increasing_in_bandwidth(move, row, one, other, x, y):
    from dataclasses import replace

    mesh = Mesh.of({"X": x, "Y": y})
    rate = LinkModel.of(mesh, row).rate(move)
    assert 0 <= rate.time_ps(min(one, other)) <= rate.time_ps(max(one, other))
    faster = replace(row, link_bandwidth=2 * row.link_bandwidth, dcn_bandwidth=2 * row.dcn_bandwidth)
    assert LinkModel.of(mesh, faster).rate(move).time_ps(one) <= rate.time_ps(one)


@pytest.mark.instant
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(CHIPS.values())), st.integers(1, 2**30), st.integers(1, 17), st.integers(1, 17))
def test_an_all_reduce_is_at_most_a_scatter_and_a_gather(row, blocks, x, y):
    mesh = Mesh.of({"X": x, "Y": y})
    model = LinkModel.of(mesh, row)
    for axes in (("X",), ("Y",), ("X", "Y")):
        size = blocks * math.prod(mesh.size(axis) for axis in axes)
        reduce = model.rate(AllReduce(axes)).time_ps(size)
        scatter = model.rate(ReduceScatter(axes, 0)).time_ps(size)
        gather = model.rate(AllGather(axes, 0)).time_ps(size // mesh.product(axes))
        assert reduce <= scatter + gather + 2  # picoseconds of rounding


def test_the_hierarchy_of_a_gradient_falls_out():
    """Over DCN and ICI: scatter inside, reduce the piece outside, gather inside, because it is cheapest."""
    plan = shardc.plan(
        "G[D, F]{U_XP} → G[D, F]", mesh={"P": 2, "X": 4}, dims={"D": 8192, "F": 8192}, chip="v5p", dcn="P=2"
    )
    assert [(step.op, step.axes) for step in plan.steps] == [
        ("ReduceScatter", ("X",)),
        ("AllReduce", ("P",)),
        ("AllGather", ("X",)),
    ]


def test_hybrid_sharding_falls_out():
    """Weights sharded inside a node, copied across nodes: gradients scatter inside and reduce across."""
    plan = shardc.plan(
        "G[D, F]{U_PX} → G[D_X, F]", mesh={"P": 4, "X": 8}, dims={"D": 8192, "F": 8192}, chip="H100", dcn="P"
    )
    assert [(step.op, step.axes) for step in plan.steps] == [("ReduceScatter", ("X",)), ("AllReduce", ("P",))]


def test_gpus_fill_a_domain_with_whole_parts_of_an_axis():
    assert microseconds(GATHER, 9_000_000, {"X": 6}, "H100") == 100  # 45e6 B over 450e9 B/s, inside one domain
    assert microseconds(GATHER, 9_000_000, {"X": 8, "Y": 8}, "GB200") == 70  # 63e6 B over 900e9 B/s


def test_a_memory_limit_takes_a_leaner_path():
    """Reduce and scatter before permuting: two small steps where the cheapest path has a larger one."""
    options = {"mesh": {"X": 2, "Y": 2}, "dims": {"I": 144, "J": 144}}
    text = "A[I_X, J]{U_Y} → A[I_Y, J_X]"
    assert shardc.plan(text, memory=41472, **options).cost.peak_bytes <= 41472
    with pytest.raises(ShardcError) as caught:
        shardc.plan(text, memory=41471, **options)
    assert caught.value.code == "SHC410"


def test_a_limit_at_the_plans_peak_is_kept_by_the_plan():
    text = "A[I_X, J] → A[I, J]; C[I_X, J] = relu(A[I_X, J])"
    options = {"mesh": {"X": 2}, "dims": {"I": 4096, "J": 4096}}
    free = shardc.plan(text, **options)
    assert shardc.plan(text, memory=free.cost.peak_bytes, **options).steps == free.steps


def test_a_memory_limit_is_kept_or_refused_with_the_least():
    text = "A[I, J_X] · B[J, K] → C[I, K]"
    options = {"mesh": {"X": 4}, "dims": {"I": 4096, "J": 4096, "K": 64}, "objective": "bytes"}
    free = shardc.plan(text, **options)
    peak = free.cost.peak_bytes
    assert shardc.plan(text, memory=peak, **options).steps == free.steps
    peaks = set()
    limit = peak - 1
    while True:
        try:
            tighter = shardc.plan(text, memory=limit, **options)
        except ShardcError as error:
            assert error.code == "SHC410"
            least = int(error.message.rsplit(" ", 1)[1])
            break
        assert tighter.cost.peak_bytes <= limit
        assert tighter.cost.wire_bytes >= free.cost.wire_bytes
        peaks.add(tighter.cost.peak_bytes)
        limit = tighter.cost.peak_bytes - 1
    assert least == min(peaks | {peak})
    assert shardc.plan(text, memory=f"{least}B", **options).cost.peak_bytes == least


@pytest.mark.instant
@pytest.mark.parametrize(("before", "after", "brings"), [("X ", "Y ", 2 / 3), ("X Y", "Y X", 1)])
def test_so_is_that_of_rounds_of_pieces(before, after, brings):
    """On X=2, Y=3 a device that holds I_X lacks at most two of three cells of I_Y; of I_X, J_Y it may lack all."""
    mesh, shape = Mesh.of({"X": 2, "Y": 3}), (1920, 3840)
    held, wanted = (Sharding.of([axes.strip() for axes in each.split(" ")]) for each in (before, after))
    model, array = LinkModel.of(mesh, chip("v5e")), Array("A", ("I", "J"), shape, held, DTYPES["bf16"])
    step = uneven_exchange(held, wanted.dims, mesh)
    assert step.brings / step.cells == pytest.approx(brings)
    told = evaluate(model.formula(step, array), {"I": 1920, "J": 3840, **dict(mesh.axes), **model.symbols()})
    taken = model.emitted(step, block_of(array, mesh), held).seconds(array.local_bytes(mesh))
    assert told / taken == pytest.approx(1, rel=1e-6)


@pytest.mark.instant
@pytest.mark.parametrize("key", sorted(chips._COUNTS))
def test_a_count_of_a_chip_has_at_most_six_digits(key):
    assert chips._fault(key, 0) is None and chips._fault(key, 10**6 - 1) is None
    for wrong in (10**6, -1, 1.0, True):
        assert chips._fault(key, wrong) == f"`{key}` = {wrong!r} is not a count"
