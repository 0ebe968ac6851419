"""The replay of a compiled program: worked examples by hand, and the laws of any schedule."""

import json
from dataclasses import replace
from itertools import combinations, pairwise
from math import ceil
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardc
from shardc.compiled.compare import comparison_of, tallied
from shardc.compiled.hlo.collectives import Collective, Reader
from shardc.compiled.hlo.text import read_hlo
from shardc.compiled.replay.gantt import gantt, trace
from shardc.compiled.replay.pricing import price
from shardc.compiled.replay.replay import replay
from shardc.compiled.replay.timeline import Timeline, merged
from shardc.cost import CHIPS, Layout, LinkModel, topology
from shardc.cost.links.torus_links import groups_of
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, ReduceScatter
from shardc.ir.mesh import Mesh
from shardc.ir.refine import refinement

V5P = CHIPS["v5p"]
MIB = 2**20
RING = Mesh.of({"X": 4})
GRID = Mesh.of({"X": 4, "Y": 4})
MICRO = 10**6  # picoseconds
HOP = ceil(MIB / 9e10 * 1e12)  # 1 MiB over a link of v5p
GATHER = ceil(3 * MIB / 1.8e11 * 1e12)  # of 1 MiB over a ring of 4, both ways at 9e10 B/s

HEAD = "HloModule m, is_scheduled=true, num_partitions={partitions}\n\n"
FUSED = """%inside (p: f32[512,512]) -> f32[512,512] {
  ROOT %p = f32[512,512]{1,0} parameter(0)
}

"""


def module(lines, mesh=RING, before=FUSED):
    """A module whose entry has one parameter, `%a` of 1 MiB on each device, and these lines."""
    body = "\n".join(f"  {line}" for line in lines)
    entry = f"ENTRY %main (a: f32[512,512]) -> f32[512,512] {{\n  %a = f32[512,512]{{1,0}} parameter(0)\n{body}\n}}\n"
    return read_hlo(HEAD.format(partitions=mesh.devices) + before + entry)


def replayed(lines, mesh=RING, before=FUSED, model=None):
    return replay(module(lines, mesh, before), model or LinkModel.of(mesh, V5P))


def busy(name, micros, operand="a"):
    """A fusion of so many microseconds, by the compiler's cycles."""
    cycles = f'{{"window_config":{{"estimated_cycles":"{1750 * micros}"}}}}'
    return f"%{name} = f32[512,512]{{1,0}} fusion(%{operand}), kind=kLoop, calls=%inside, backend_config={cycles}"


def gather(name, suffix="", groups="{{0,1,2,3}}", operand="a"):
    shape = "(f32[512,512], f32[2048,512])" if suffix else "f32[2048,512]{1,0}"
    return f"%{name} = {shape} all-gather{suffix}(%{operand}), replica_groups={groups}, dimensions={{0}}"


def done(name, start):
    return f"%{name} = f32[2048,512]{{1,0}} all-gather-done(%{start})"


def permute(name, pairs, suffix=""):
    shape = "(f32[512,512], f32[512,512])" if suffix else "f32[512,512]{1,0}"
    spelled = ",".join(f"{{{a},{b}}}" for a, b in pairs)
    return f"%{name} = {shape} collective-permute{suffix}(%a), source_target_pairs={{{spelled}}}"


def shift(n, by):
    return [(i, (i + by) % n) for i in range(n)]


def loop(body, trips, mesh_lines=(), known=True):
    """Lines before the entry, and the loop's own line: its body does `body` `trips` times."""
    count = f', backend_config={{"known_trip_count":{{"n":"{trips}"}}}}' if known else ""
    lines = "\n".join(f"  {line}" for line in body)
    before = (
        FUSED + "%cond (c: (s32[], f32[512,512])) -> pred[] {\n  %c = (s32[], f32[512,512]) parameter(0)\n"
        "  ROOT %go = pred[] get-tuple-element(%c), index=0\n}\n\n"
        "%body (t: (s32[], f32[512,512])) -> (s32[], f32[512,512]) {\n"
        "  %t = (s32[], f32[512,512]) parameter(0)\n  %a = f32[512,512]{1,0} get-tuple-element(%t), index=1\n"
        f"{lines}\n  ROOT %next = (s32[], f32[512,512]) tuple(%t, %a)\n}}\n\n"
    )
    call = f"%w = (s32[], f32[512,512]) while(%init), condition=%cond, body=%body{count}"
    return before, ["%init = (s32[], f32[512,512]) tuple(%a, %a)", call]


def figures(timeline):
    return (
        timeline.step_ps,
        timeline.compute_s,
        timeline.communication_s,
        timeline.exposed_s,
        {track: timeline.busy_s(track) for track in timeline.tracks},
    )


def test_a_synchronous_collective_holds_up_what_follows():
    found = replayed([busy("f", 10), gather("g"), busy("h", 5)])
    assert found.step_ps == 15 * MICRO + GATHER
    assert [event.start_ps for event in found.events] == [0, 10 * MICRO, 10 * MICRO + GATHER]
    assert found.exposed_s == found.communication_s == GATHER / 1e12


def test_an_asynchronous_one_runs_beside_compute_until_its_done():
    found = replayed([gather("s", "-start"), busy("f", 10), done("d", "s"), busy("h", 5)])
    assert found.step_ps == GATHER + 5 * MICRO  # 17.5 µs of links hide 10 µs of compute
    assert found.compute_s == 15e-6
    assert found.exposed_s == pytest.approx((GATHER - 10 * MICRO) / 1e12)
    assert found.overlapped_s == pytest.approx(10e-6)
    assert found.events[0].is_async


def test_a_start_that_nobody_waits_for_still_has_to_end():
    assert replayed([gather("s", "-start"), busy("f", 1)]).step_ps == GATHER


def test_two_collectives_on_the_same_links_queue_and_on_others_do_not():
    rows, columns = "{{0,1,2,3},{4,5,6,7},{8,9,10,11},{12,13,14,15}}", "{{0,4,8,12},{1,5,9,13},{2,6,10,14},{3,7,11,15}}"
    both = [gather("s", "-start", rows), gather("t", "-start", rows), done("d", "s"), done("e", "t")]
    found = replayed(both, GRID)
    assert found.step_ps == 2 * GATHER and found.tracks == ("Y+", "Y-")
    found = replayed([both[0], gather("t", "-start", columns), *both[2:]], GRID)
    assert found.step_ps == GATHER and found.tracks == ("X+", "X-", "Y+", "Y-")


def test_behind_a_switch_and_over_the_network_of_a_site_all_axes_share_a_devices_port():
    rows, columns = "{{0,1,2,3},{4,5,6,7},{8,9,10,11},{12,13,14,15}}", "{{0,4,8,12},{1,5,9,13},{2,6,10,14},{3,7,11,15}}"
    lines = [gather("s", "-start", rows), gather("t", "-start", columns), done("d", "s"), done("e", "t")]
    switched = LinkModel.of(GRID, CHIPS["H100"])
    far = LinkModel.of(GRID, V5P, Layout(dcn=("X", "Y")))
    for model, track in ((switched, "switch"), (far, "DCN")):
        found = replayed(lines, GRID, model=model)
        assert found.tracks == (track,)
        assert found.step_ps == sum(event.duration_ps for event in found.events)


def test_a_collective_over_two_axes_occupies_both():
    everything = "{{" + ",".join(map(str, range(16))) + "}}"
    rows = "{{0,1,2,3},{4,5,6,7},{8,9,10,11},{12,13,14,15}}"
    lines = [gather("s", "-start", rows), gather("t", "-start", everything), done("d", "s"), done("e", "t")]
    found = replayed(lines, GRID)
    assert found.events[1].tracks == ("X+", "X-", "Y+", "Y-") and found.events[1].start_ps == GATHER
    assert found.events[1].duration_ps == ceil(15 * MIB / 3.6e11 * 1e12)  # the links of two rings


KINDS = {
    "all-gather": (AllGather(("X", "Y"), 0), "f32[8192,512]", ", dimensions={0}"),
    "all-reduce": (AllReduce(("X", "Y")), "f32[512,512]", ", to_apply=%add"),
    "reduce-scatter": (ReduceScatter(("X", "Y"), 0), "f32[32,512]", ", dimensions={0}, to_apply=%add"),
    "all-to-all": (AllToAll(("X", "Y"), 0, 1), "f32[512,512]", ", dimensions={0}"),
}


@pytest.mark.parametrize("chip", ["v5p", "v5e", "H100"])
@pytest.mark.parametrize("opcode", KINDS)
def test_collectives_over_whole_axes_cost_what_the_model_says(opcode, chip):
    move, shape, rest = KINDS[opcode]
    model = LinkModel.of(GRID, CHIPS[chip])
    found = replayed([f"%c = {shape}{{1,0}} {opcode}(%a), replica_groups=[1,16]<=[16]{rest}"], GRID, model=model)
    assert found.step_ps == model.rate(move).time_ps(MIB)


def test_a_group_of_one_takes_no_time():
    assert replayed([gather("g", groups="{{0},{1},{2},{3}}")]).events == ()


def test_groups_inside_an_axis_have_the_links_between_their_chips():
    """Neighbours of a ring of four, two and two: one link each way between them, over which a block comes in."""
    found = replayed([gather("g", groups="{{0,1},{2,3}}")])
    assert found.events[0].bytes == MIB and found.tracks == ("X+", "X-")
    assert found.step_ps == HOP
    # Every other chip: 0 and 2 have two links each on both ways round, which 1 and 3 use as well.
    assert replayed([gather("g", groups="{{0,2},{1,3}}")]).step_ps == HOP


def test_the_fused_scatter_is_priced_as_a_scatter_and_not_by_cycles():
    fused = FUSED + (
        "%all-reduce-scatter (input: f32[512,512]) -> f32[128,512] {\n"
        "  %input = f32[512,512]{1,0} parameter(0)\n"
        "  %all-reduce = f32[512,512]{1,0} all-reduce(%input), replica_groups={{0,1,2,3}}, to_apply=%add\n"
        "  ROOT %dynamic-slice = f32[128,512]{1,0} dynamic-slice(%all-reduce), dynamic_slice_sizes={128,512}\n}\n\n"
    )
    line = "%f = f32[128,512]{1,0} fusion(%a), kind=kCustom, calls=%all-reduce-scatter, "
    found = replayed([line + 'backend_config={"window_config":{"estimated_cycles":"999999999"}}'], before=fused)
    assert found.events[0].kind == "ReduceScatter"
    assert found.step_ps == ceil(3 / 4 * MIB / 1.8e11 * 1e12)


def test_a_copy_runs_beside_compute_on_the_memory_track():
    copy = [
        "%c = (f32[512,512]{1,0:S(1)}, f32[512,512]{1,0}, u32[]) copy-start(%a)",
        busy("f", 1),
        "%d = f32[512,512]{1,0:S(1)} copy-done(%c)",
    ]
    found = replayed(copy)
    assert found.tracks == ("compute", "memory") and found.step_ps == MICRO
    assert found.busy_s("memory") == pytest.approx(MIB / 2.8e12, rel=1e-5)  # read from HBM, written on the chip
    assert found.communication_s == 0


def test_without_cycles_a_roofline_prices():
    dot = "%d = f32[512,512]{1,0} dot(%a, %a), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    found = replayed([dot, "%t = f32[512,512]{1,0} transpose(%a), dimensions={1,0}"])
    product, turned = found.events
    assert product.duration_s == pytest.approx(max(2 * 512**3 / (V5P.flops / 2), 3 * MIB / 2.8e12), rel=1e-5)
    assert turned.duration_s == pytest.approx(2 * MIB / 2.8e12, rel=1e-5)
    assert {event.basis for event in found.events} == {"roofline"} and "roofline" in found.notes[0]
    near = "%n = f32[512,512]{1,0:S(1)} transpose(%a), dimensions={1,0}"  # left on the chip
    assert replayed([near]).step_s == pytest.approx(MIB / 2.8e12, rel=1e-5)
    clockless = LinkModel.of(RING, replace(V5P, clock=0.0))
    assert replayed([busy("f", 10)], model=clockless).events[0].basis == "roofline"


def test_a_kernel_takes_as_long_as_what_it_says_that_it_computes():
    """By its bytes alone an attention that the compiler makes one kernel would take a fifth of its products' time."""
    told = '{"custom_call_config":{"cost_estimate":{"flops":"1000000000000"}}}'
    kernel = 'f32[512,512]{1,0} custom-call(%a, %a), custom_call_target="tpu_custom_call"'
    (found,) = replayed([f"%k = {kernel}, backend_config={told}"]).events
    assert found.duration_s == pytest.approx(1e12 / (V5P.flops / 2), rel=1e-5) and found.basis == "roofline"
    (known,) = replayed([f"%online-softmax = {kernel}"]).events
    assert known.duration_s == pytest.approx(max(2 * 512**3 / (V5P.flops / 2), 3 * MIB / 2.8e12), rel=1e-5)
    (unknown,) = replayed([f"%other = {kernel}"]).events
    assert unknown.duration_s == pytest.approx(3 * MIB / 2.8e12, rel=1e-5)


def test_names_and_numbers_take_no_time():
    lines = ["%p = u32[] partition-id()", "%q = u32[] add(%p, %p)", "%b = f32[1024,256]{1,0} bitcast(%a)"]
    assert replayed(lines) == Timeline((), (), 0)


def test_a_conditional_takes_as_long_as_its_longest_branch():
    branches = FUSED + "".join(
        f"%{name} (a: f32[512,512]) -> f32[512,512] {{\n  %a = f32[512,512]{{1,0}} parameter(0)\n"
        f"  {busy('f', micros)}\n}}\n\n"
        for name, micros in (("short", 2), ("long", 7))
    )
    line = "%c = f32[512,512]{1,0} conditional(%a, %a, %a), branch_computations={%short, %long}"
    found = replayed([line, busy("g", 1)], before=branches)
    assert found.step_ps == 8 * MICRO and len(found.events) == 2


def test_a_loop_of_unknown_length_is_counted_once_and_said():
    before, lines = loop([busy("f", 3)], 9, known=False)
    found = replayed(lines, before=before)
    assert found.step_ps == 3 * MICRO
    assert found.notes == ("w runs an unknown number of times, and is counted once",)


def test_a_message_to_the_host_is_not_priced_and_said():
    assert replayed(["%s = (f32[512,512], u32[], token[]) send(%a)"]).notes == ("send is not priced",)


# Permutes on a torus: ring of eight, link 9e10 B/s each way.

EIGHT = Mesh.of({"X": 8})


@pytest.mark.parametrize(
    ("pairs", "tracks", "loads"),
    [
        (shift(8, 1), ("X+",), 1),
        (shift(8, -1), ("X-",), 1),
        (shift(8, 3), ("X+",), 3),
        (shift(8, 4), ("X+", "X-"), 2),  # half of each block either way, four hops
        ([(0, 1), (1, 0)], ("X+", "X-"), 1),
        ([(0, 7), (7, 0)], ("X+", "X-"), 1),
        ([(0, 2), (1, 2)], ("X+",), 2),
    ],
)
def test_a_permute_costs_its_routes(pairs, tracks, loads):
    found = replayed([permute("p", pairs)], EIGHT)
    assert found.events[0].tracks == tracks
    assert found.step_ps == pytest.approx(loads * HOP, abs=2)


def test_two_shifts_the_two_ways_round_run_beside_each_other():
    starts = [permute("s", shift(8, 1), "-start"), permute("t", shift(8, -1), "-start")]
    assert replayed(starts, EIGHT).step_ps == HOP
    assert replayed([starts[0], permute("t", shift(8, 1), "-start")], EIGHT).step_ps == 2 * HOP


def test_on_a_line_the_last_block_goes_all_the_way_back():
    line = LinkModel.of(RING, V5P, Layout(wraparound=(("X", "line"),)))
    found = replayed([permute("p", shift(4, 1))], model=line)
    assert found.events[0].tracks == ("X+", "X-") and found.step_ps == HOP
    tiny = found_latency(line, shift(4, 1))
    assert tiny == 3 * MICRO  # three hops back


def found_latency(model, pairs):
    (collective,) = Reader(module([permute("p", pairs)]), RING).all()
    return price(replace(collective, local_bytes=4), model).time_ps


def test_a_permute_over_two_axes_turns_at_the_corner():
    swap = [(4 * x + y, 4 * y + x) for x in range(4) for y in range(4)]  # I_XY → I_YX
    found = replayed([permute("p", swap)], GRID)
    assert found.events[0].tracks == ("X+", "X-", "Y+", "Y-")
    # Halves go along X first: at (y, y) those of a row meet, a half and the half of a half from each side.
    assert found.step_ps == pytest.approx(0.75 * HOP, abs=2)
    # From the diagonal to (0, 3): (0, 0) is next to it, all of its block over one link; of (1, 1), which is as far
    # along Y either way, a quarter goes over the same link, half of what goes along X first.
    meet = [(5 * x, 3) for x in range(4)]
    assert replayed([permute("p", meet)], GRID).step_ps == pytest.approx(1.25 * HOP, abs=2)


def on_slice(sizes, name, **layout):
    found = topology(name)
    return LinkModel.of(Mesh.of(sizes), found.chip, Layout(found, **layout))


V5E_HOP = ceil(MIB / 4.5e10 * 1e12)


def test_on_a_walk_neighbours_are_neighbours():
    """`jax.make_mesh` walks round 4×4 for an axis of 16: each shift is one hop on 16 of the 48 directed links."""
    model = on_slice({"X": 16}, "v5e:4x4")
    starts = [permute("s", shift(16, 1), "-start"), permute("t", shift(16, -1), "-start")]
    assert replayed(starts[:1], model.mesh, model=model).tracks == ("X+",)
    assert replayed(starts[:1], model.mesh, model=model).step_ps == V5E_HOP
    assert replayed(starts, model.mesh, model=model).step_ps == V5E_HOP  # beside each other
    again = [starts[0], permute("t", shift(16, 1), "-start")]
    assert replayed(again, model.mesh, model=model).step_ps == 2 * V5E_HOP


def test_row_by_row_the_two_shifts_wait_for_each_other():
    """As `--map` lays it: a row's last block goes back over three links of the row, where the other shift goes too."""
    model = on_slice({"X": 16}, "v5e:4x4", map=(("X", (0, 1)),))
    starts = [permute("s", shift(16, 1), "-start"), permute("t", shift(16, -1), "-start")]
    found = replayed(starts[:1], model.mesh, model=model)
    # Columns 0 to 3 of row 3: the last goes to (0, 0), three hops back along either axis, half and half; of every
    # other row the last goes back three and on one, half before and half after. All links back carry one block.
    assert found.step_ps == pytest.approx(V5E_HOP, abs=2)
    assert replayed(starts, model.mesh, model=model).step_ps == pytest.approx(2 * V5E_HOP, abs=4)


def test_a_walk_over_corners():
    """v5e:2x2 walks round: X=2, Y=2 is [[0, 1], [3, 2]], so that X joins corners and Y neighbours.

    2 3      a block goes from 0 to 3 half by 1 and half by 2; all eight links carry two halves
    0 1
    """
    model = on_slice({"X": 2, "Y": 2}, "v5e:2x2")
    both = ["{{0,2},{1,3}}", "{{0,1},{2,3}}"]
    for groups, axis in zip(both, "XY", strict=True):
        found = replayed([gather("g", groups=groups)], model.mesh, model=model)
        assert found.tracks == (axis + "+", axis + "-") and found.step_ps == V5E_HOP
    starts = [gather(name, "-start", groups) for name, groups in zip("st", both, strict=True)]
    assert replayed(starts, model.mesh, model=model).step_ps == 2 * V5E_HOP  # they share links


# Laws of prices: they are of chips, whatever the mesh by which a program is read.

SLICES = [  # meshes, and where they lie: rings, lines, several axes for one, parts of one, walks, a map, switches, DCN
    ({"X": 16}, "v5e:4x4", {}),
    ({"X": 16}, "v5e:4x4", {"map": (("X", (0, 1)),)}),
    ({"X": 4, "Y": 4}, "v5e:4x4", {}),
    ({"X": 8, "Y": 2}, "v5e:4x4", {}),
    ({"X": 4, "Y": 2}, "v5e:2x4", {}),
    ({"X": 2, "Y": 4}, "v6e:4x2", {}),
    ({"X": 2, "Y": 2}, "v5e:2x2", {}),
    ({"X": 2, "Y": 4, "Z": 2}, "v7x:2x2x4", {}),
    ({"X": 2, "Y": 2, "Z": 2}, "v5p:2x2x2", {}),
    ({"X": 16, "Y": 4}, "v5p:4x4x4", {}),
    ({"X": 4, "Y": 4, "Z": 4}, "v4p:4x4x4", {}),
    ({"X": 8, "Y": 8}, "v5p:4x4x4", {}),
    ({"X": 4, "Y": 4}, "v5e:4x4", {"wraparound": (("X", "one-way"), ("Y", "ring"))}),
    ({"X": 4, "Y": 4}, "H100:4x4", {}),
    ({"X": 16}, "H100:16", {}),
]
PLACED = [on_slice(sizes, name, **layout) for sizes, name, layout in SLICES]
PLACED += [LinkModel.of(Mesh.of({"P": 2, "X": 8}), V5P, Layout(dcn=("P",)))]


def cuts(mesh):
    """Each axis in two parts, in every way, and in three."""
    for axis, size in mesh.axes:
        if size % 8 == 0:
            yield refinement(mesh, {axis: (2, size // 4, 2)}, ())
        for part in range(2, size):
            if size % part == 0:
                yield refinement(mesh, {axis: (part, size // part)}, ())


@st.composite
def groupings(draw, devices):
    """Groups of one size, of any devices: strides apart, over axes, in a drawn order."""
    n = draw(st.sampled_from([n for n in (2, 4, 8, devices) if devices % n == 0]))
    stride = draw(st.sampled_from([s for s in (1, 2, 4) if devices % (n * s) == 0]))
    groups = [
        [s + stride * i + block for i in range(n)] for block in range(0, devices, n * stride) for s in range(stride)
    ]
    if draw(st.booleans()):
        mixed = draw(st.permutations(range(devices)))
        groups = [[mixed[device] for device in group] for group in groups]
    return groups


def spelled(groups):
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


@st.composite
def programs(draw, devices):
    """Asynchronous collectives and permutes, some at the same time."""
    lines = []
    for number in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            lines.append(gather(f"s{number}", "-start", spelled(draw(groupings(devices)))))
        else:
            order = draw(st.one_of(st.permutations(range(devices)), st.integers(1, devices - 1)))
            pairs = shift(devices, order) if isinstance(order, int) else list(enumerate(order))
            lines.append(permute(f"s{number}", [pair for pair in pairs if pair[0] != pair[1]] or [(0, 1)], "-start"))
    return lines


@given(st.data())
def test_a_program_takes_as_long_on_a_finer_mesh_of_the_same_devices(data):
    model = data.draw(st.sampled_from(PLACED))
    lines = data.draw(programs(model.mesh.devices))
    given = replayed(lines, model.mesh, model=model)
    finer = [found for by in cuts(model.mesh) if (found := model.refined(by)) is not None]
    assert finer or model.mesh.devices < 16
    if finer:
        other = data.draw(st.sampled_from(finer))
        found = replayed(lines, other.mesh, model=other)
        assert (found.step_ps, found.communication_s) == (given.step_ps, given.communication_s)


def symmetries(shape, kinds):
    """Maps of coordinates that leave a torus as it is: two like axes in each other's place, one turned or mirrored."""
    for axis, (size, kind) in enumerate(zip(shape, kinds, strict=True)):
        if kind != "one-way":
            yield lambda at, axis=axis, size=size: (*at[:axis], size - 1 - at[axis], *at[axis + 1 :])
        if kind == "ring":
            yield lambda at, axis=axis, size=size: (*at[:axis], (at[axis] + 1) % size, *at[axis + 1 :])
        for other in range(axis):
            if (shape[other], kinds[other]) == (size, kind):
                yield lambda at, a=axis, b=other: tuple(at[{a: b, b: a}.get(i, i)] for i in range(len(at)))


TORI = [model for model in PLACED if model.chip.is_torus and not model.network.dcn]


@given(st.data())
def test_a_relabelled_torus_is_the_same(data):
    """Also for permutes and groups that are on no axis."""
    model = data.draw(st.sampled_from(TORI))
    fabric, devices = model.network.links.fabric, model.mesh.devices
    number = {fabric.laid.place(device): device for device in range(devices)}
    assert len(number) == devices
    turned = data.draw(st.sampled_from(list(symmetries(fabric.laid.shape, fabric.kinds))))
    new = [number[turned(fabric.laid.place(device))] for device in range(devices)]
    for kind in ("AllGather", "AllToAll", "CollectivePermute"):
        groups = data.draw(groupings(devices))
        if kind == "CollectivePermute":
            groups = [pair for pair in enumerate(data.draw(st.permutations(range(devices)))) if pair[0] != pair[1]]
        relabelled = [[new[device] for device in group] for group in groups]
        times = [priced(kind, each, model) for each in (groups, relabelled)]
        assert times[0] == pytest.approx(times[1], abs=2), (kind, groups)


def priced(kind, groups, model, count=MIB):
    if not groups:
        return 0
    found = Collective(kind, "c", count, 1, max(map(len, groups)), tuple(map(tuple, groups)), None)
    return price(found, model).time_ps


MOVES = {"AllGather": AllGather, "ReduceScatter": ReduceScatter, "AllReduce": AllReduce, "AllToAll": AllToAll}
REST = {"AllGather": (0,), "ReduceScatter": (0,), "AllReduce": (), "AllToAll": (0, 1)}


@pytest.mark.parametrize("model", PLACED, ids=lambda model: f"{model.chip.name} {model.mesh}")
def test_the_planners_price_over_any_axes_is_that_of_the_replay(model):
    """On the mesh as given and on finer ones; bandwidth and latency."""
    every = [model, *(found for by in cuts(model.mesh) if (found := model.refined(by)) is not None)]
    for one in every:
        wide = [axis for axis, size in one.mesh.axes if size > 1]
        for axes in (axes for count in range(1, len(wide) + 1) for axes in combinations(wide, count)):
            groups = groups_of(one.mesh, axes)
            for kind, move in MOVES.items():
                for count in (MIB, 16):
                    assert priced(kind, groups, one, count) == one.rate(move(axes, *REST[kind])).time_ps(count), axes


@pytest.mark.parametrize("model", TORI, ids=lambda model: f"{model.chip.name} {model.mesh}")
def test_a_gather_is_no_dearer_than_a_ring_of_permutes(model):
    """n-1 steps, each of half a block to the next device and half to the one before, over every set of axes."""
    for axes in (
        axes for count in range(1, len(model.mesh.names) + 1) for axes in combinations(model.mesh.names, count)
    ):
        groups, n = groups_of(model.mesh, axes), model.mesh.product(axes)
        lines = [
            permute(f"s{by}", [(g[i], g[(i + by) % n]) for g in groups for i in range(n)], "-start") for by in (1, -1)
        ]
        halves = replayed(lines, model.mesh, model=model).step_ps
        together = model.network.sent([(g[i], g[(i + by) % n]) for g in groups for i in range(n) for by in (1, -1)])
        assert halves >= together.s_per_byte * MIB * 1e12 - 2  # what waits takes no less than what shares
        gathered = priced("AllGather", groups, model)
        assert gathered <= (n - 1) * together.s_per_byte / 2 * MIB * 1e12 + n


# Laws of any schedule.

ROWS = "{{0,1,2,3},{4,5,6,7},{8,9,10,11},{12,13,14,15}}"
COLUMNS = "{{0,4,8,12},{1,5,9,13},{2,6,10,14},{3,7,11,15}}"


@st.composite
def schedules(draw, least=0):
    """Lines of compute, collectives and copies, where every start comes before its done."""
    lines, waiting = [], []
    for number in range(draw(st.integers(least, 8))):
        kind = draw(st.sampled_from(["compute", "sync", "start", "permute", "done"]))
        groups = draw(st.sampled_from([ROWS, COLUMNS, "{{" + ",".join(map(str, range(16))) + "}}"]))
        match kind:
            case "compute":
                lines.append(busy(f"f{number}", draw(st.integers(1, 40))))
            case "sync":
                lines.append(gather(f"g{number}", groups=groups))
            case "start":
                lines.append(gather(f"s{number}", "-start", groups))
                waiting.append(f"s{number}")
            case "permute":
                by = draw(st.sampled_from([4, -4, 8]))
                lines.append(permute(f"s{number}", shift(16, by), "-start"))
                waiting.append(f"s{number}")
            case "done" if waiting:
                start = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
                lines.append(done(f"d{number}", start))
    return lines, waiting


def closed(schedule, prefix="e"):
    lines, waiting = schedule
    return lines + [done(f"{prefix}{start}", start) for start in waiting]


@given(schedules())
def test_a_step_is_no_longer_than_its_parts_and_no_shorter_than_any_track(schedule):
    found = replayed(schedule[0], GRID)
    assert found.step_ps <= sum(event.duration_ps for event in found.events)
    assert all(found.busy_s(track) <= found.step_s for track in found.tracks)
    union = merged((e.start_ps, e.end_ps) for e in found.events)
    assert sum(end - start for start, end in union) <= found.step_ps
    assert 0 <= found.exposed_s <= found.communication_s <= found.step_s
    assert found.waiting_s >= 0, "what neither computes nor is sent"


@given(schedules())
def test_nothing_overlaps_on_a_track(schedule):
    found = replayed(schedule[0], GRID)
    for track in found.tracks:
        ordered = sorted((e.start_ps, e.end_ps) for e in found.events if track in e.tracks)
        assert all(a[1] <= b[0] for a, b in pairwise(ordered))


@given(schedules(), schedules(least=1), st.integers(0, 7))
def test_a_loop_is_its_body_so_many_times(outer, inner, trips):
    """Also when a collective that started before it is still on its way."""
    first = [line.replace("%s", "%o").replace("%d", "%od").replace("%f", "%of") for line in outer[0]]
    body = closed(inner)
    before, lines = loop(body, trips)
    last = [busy("last", 3), gather("end")]
    looped = replayed([*first, *lines, *last], GRID, before)
    unrolled = replayed([*first, *(body * trips), *last], GRID)
    assert figures(looped)[:4] == pytest.approx(figures(unrolled)[:4], rel=1e-12)
    assert sum(e.count for e in looped.events) == len(unrolled.events)


@given(schedules())
def test_the_trace_and_the_chart_say_what_the_timeline_says(schedule):
    found = replayed(schedule[0], GRID)
    records = json.loads(trace(found))["traceEvents"]
    names = {r["tid"]: r["args"]["name"] for r in records if r["name"] == "thread_name"}
    assert tuple(names[number] for number in sorted(names)) == found.tracks
    for number, track in names.items():
        slices = [r for r in records if r["ph"] == "X" and r["tid"] == number]
        assert sum(r["dur"] for r in slices) == pytest.approx(found.busy_s(track) * 1e6)
        assert all(r["ts"] + r["dur"] <= found.step_s * 1e6 * (1 + 1e-9) for r in slices)
    chart = gantt(found, 40).splitlines()
    assert len(chart) == len(found.tracks) + 1
    for row, track in zip(chart, found.tracks, strict=False):
        share = 100 * found.busy_s(track) / found.step_s
        assert row.startswith(track) and row.endswith(" %")
        assert int(row[-5:-2]) == pytest.approx(share, abs=0.51)
    assert gantt(found, 40) == gantt(found, 40) and trace(found) == trace(found)


def test_the_chart_of_a_worked_example():
    found = replayed([gather("s", "-start"), busy("f", 10), done("d", "s"), busy("h", 5)])
    assert gantt(found, 45) == (
        "compute  ████████████████████░             ░██████████  67 %\n"
        "X+       ███████████████████████████████████            78 %\n"
        "X-       ███████████████████████████████████            78 %\n"
        "         0                                     22.5 µs"
    )


def test_the_chart_of_nothing():
    assert gantt(Timeline((), (), 0)).endswith("0.0 µs")


def test_a_plan_is_a_timeline_of_its_steps():
    """Case 3 on v5p: 8192³·2/2 FLOPs at 4.59e14 a second, then half of 134 MB at 9e10 B/s."""
    plan = shardc.plan(
        "A[I, J_X] · B[J_X, K] → C[I_X, K]", mesh={"X": 2}, dims=dict.fromkeys("IJK", 8192), dtype="bf16"
    )
    found = plan.timeline
    product, scatter = found.events
    assert product.tracks == ("compute",) and product.duration_s == pytest.approx(8192**3 / 4.59e14)
    assert scatter.tracks == ("X+", "X-") and scatter.duration_s == pytest.approx(8192**2 / 9e10)
    assert scatter.start_ps == product.end_ps and found.step_s == pytest.approx(plan.cost.time_s)


@pytest.mark.parametrize("result", ["C[B_YX, D]", "C[B_Y, D]"], ids=["scattered", "summed for all"])
def test_what_is_done_as_one_stands_beside_itself(result):
    """A ring on v5e: the partial products while the sums go round; the timeline is as long as the plan's time."""
    sizes = {"B": 16384, "F": 16384, "D": 8192}
    asked = {"mesh": {"X": 4, "Y": 4}, "dims": sizes, "topology": "v5e:4x4"}
    times = []
    for overlap in ("off", "on"):
        plan = shardc.plan(f"In[B_Y, F_X] · W[F_X, D] → {result}", overlap=overlap, **asked)
        found = plan.timeline
        assert found.step_s == pytest.approx(plan.cost.time_s)
        assert (found.overlapped_s > 0) == bool(plan.schedule.together) == (overlap == "on")
        times.append(found.step_s)
    assert times[1] < times[0]


# Comparison.


def compiled(lines, memory=(4, 5, 6)):
    text = HEAD.format(partitions=4) + FUSED + "ENTRY %main (a: f32[512,512]) -> f32[512,512] {\n"
    text += "  %a = f32[512,512]{1,0} parameter(0)\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"
    keys = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
    analysis = None if memory is None else SimpleNamespace(**dict(zip(keys, memory, strict=True)))
    return SimpleNamespace(as_text=lambda: text, memory_analysis=lambda: analysis)


def test_a_comparison_has_both_sides_and_their_ratios():
    model = LinkModel.of(RING, V5P)
    theirs = [gather("g"), gather("h"), permute("p", shift(4, 1))]
    found = comparison_of(
        compiled([gather("g")]),
        compiled(theirs, memory=(4, 5, 12)),
        model,
        bound_wire_bytes=3 * MIB,
        rounds=[(1.0, 2.0), (1.0, 8.0), (2.0, 6.0)],
        warnings=["replicated"],
    )
    assert [(t.name, t.count, t.wire_bytes) for t in found.theirs.collectives] == [
        ("AllGather_X", 2, 6 * MIB),
        ("CollectivePermute_X", 1, MIB),
    ]
    assert found.measured is not None and found.measured.ratio == 3.0  # of 2, 4, 3; not 6 over 1
    fields = json.loads(json.dumps(found.to_json()))
    assert fields["ours"]["wire_bytes"] == 3 * MIB and fields["theirs"]["memory"]["temporary_bytes"] == 12
    assert fields["theirs"]["replayed"]["step_s"] > fields["ours"]["replayed"]["step_s"]
    rows = {line[:24].strip(): line.split() for line in str(found).splitlines()}
    assert rows["AllGather_X"][1:] == ["1", "×", "3.15", "MB", "2", "×", "3.15", "MB"]
    assert rows["CollectivePermute_X"][1:] == ["–", "1", "×", "1.05", "MB"]
    assert rows["wire bytes"][-1] == "2.33" and rows["temporary bytes"][-1] == "2.00"
    assert rows["temporary bytes"][-3:-1] == ["12", "B"], "few bytes are no nought of megabytes"
    assert rows["of the bound, 3.15 MB"][-2:] == ["1.00×", "2.33×"]
    assert str(found).endswith("note: replicated")


def test_a_comparison_without_memory_or_measurement():
    found = comparison_of(compiled([], memory=None), compiled([gather("g")], memory=None), LinkModel.of(RING, V5P))
    assert "temporary" not in str(found) and "measured" not in str(found)
    assert found.to_json()["measured"] is None and found.ours.collectives == ()


def test_collectives_are_tallied_with_their_counts():
    before, lines = loop([gather("g")], 5)
    found = tallied(Reader(module(lines, before=before), RING).all())
    assert [(t.kind, t.axes, t.count, t.wire_bytes) for t in found] == [("AllGather", ("X",), 5, 15 * MIB)]


@pytest.mark.parametrize(
    ("text", "place", "rows"),
    [
        ("A[I_X] → A[I]", {"chip": "v5p"}, ("X+", "X-")),
        ("A[I_X] → A[I]", {"chip": "v5p", "wraparound": "X=one-way"}, ("X+",)),
        ("A[I_XY] → A[I]", {"chip": "v5p", "wraparound": "Y=one-way", "formula": "book"}, ("X+", "X-", "Y+")),
        ("A[I_X] → A[I]", {"chip": "H100"}, ("switch",)),
        ("A[I_X] → A[I]", {"chip": "v5p", "dcn": "X=4"}, ("DCN",)),
        ("A[I_XY, J] → A[I_YX, J]", {"topology": "v5e:4x4"}, ("X+", "X-", "Y+", "Y-")),
    ],
)
def test_a_plans_rows_are_the_ways_that_its_steps_go(text, place, rows):
    found = shardc.plan(text, mesh={"X": 4, "Y": 4}, dims={"I": 2**16, "J": 64}, **place).timeline
    assert found.tracks == rows
    assert all(found.busy_s(track) == pytest.approx(found.communication_s) for track in rows)
