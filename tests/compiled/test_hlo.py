"""Compiled programs, saved: each trap in their collectives, as compilers for TPU and CPU wrote it, and as GPUs' do.

The programs are in `tests/data/hlo`; their numbers here are worked out from what was asked of the compiler.
"""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.compiled import UnreadableHlo, collectives, read_hlo
from shardc.compiled.hlo.collectives import Reader, wire_bytes
from shardc.compiled.hlo.loops import count, trip_count
from shardc.compiled.hlo.text import Shape
from shardc.ir.collectives import AllReduce
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding

DATA = Path(__file__).parents[1] / "data" / "hlo"
EIGHT = Mesh.of({"X": 2, "Y": 2, "Z": 2})
FOUR_TWO = Mesh.of({"X": 4, "Y": 2})


@pytest.mark.parametrize("n", [2, 3, 4, 6, 8])
@given(st.integers(1, 64))
def test_what_is_read_of_a_sum_is_what_is_planned_of_it(n, local_bytes):
    """A scalar of bf16 over 8 devices as well: 3 bytes were planned and 4 read, so that no plan of it was kept."""
    mesh, before = Mesh.of({"X": n}), Sharding((), frozenset("X"))
    assert wire_bytes("AllReduce", n, local_bytes) == AllReduce(("X",)).wire_bytes(before, mesh, local_bytes)


def saved(name):
    return (DATA / f"{name}.hlo").read_text(encoding="utf-8")


def read(name, mesh):
    return collectives(saved(name), mesh)


def test_a_padded_scatter_is_one_reduce_scatter_of_what_was_not_padded():
    """bf16[8192,512] over X=4: the all-reduce inside is of 8256 rows; 48 rows go on to each neighbour."""
    scatter, halo = read("padded_v5p", FOUR_TWO)
    assert (scatter.kind, scatter.axes, scatter.group_size) == ("ReduceScatter", ("X",), 4)
    assert (scatter.local_bytes, scatter.wire_bytes) == (8192 * 512 * 2, 6144 * 512 * 2)
    assert scatter.padded
    assert not scatter.is_async
    assert (halo.kind, halo.local_bytes, halo.axes) == ("CollectivePermute", 48 * 512 * 2, ("X",))
    assert halo.part_of == scatter.name
    assert scatter.algorithm == "SingleInputAllReduceScatterFusion StrategyRing"


def test_a_scatter_that_the_compiler_made_anew_keeps_its_scope_in_its_sum():
    for found in read("padded_v5p", FOUR_TWO):
        assert (found.scope, found.source) == ("mlp/reduce_scatter", "model.py:10")


FUSED = """\
%all-reduce-scatter.3 (p: f32[64]) -> f32[16] {
  %p = f32[64]{0} parameter(0)
  %b = f32[64]{0} bitcast(%p)
  %r = f32[64]{0} all-reduce(%b), replica_groups=[2,4]<=[8], to_apply=%add
  %at = s32[] constant(0)
  ROOT %s = f32[16]{0} dynamic-slice(%r, %at), dynamic_slice_sizes={16}
}
"""


def test_a_fused_scatter_that_fits_is_not_padded():
    """Nor is a permute of its result then a part of it."""
    body = """
        %a = f32[64]{0} parameter(0)
        %f = f32[16]{0} fusion(%a), kind=kCustom, calls=%all-reduce-scatter.3
        %h = f32[4]{0} slice(%f), slice={[0:4]}
        ROOT %p = f32[4]{0} collective-permute(%h), source_target_pairs={{0,1}}
    """
    scatter, permute = by_hand(body, FUSED)
    assert facts([scatter]) == [("ReduceScatter", ("Y",), 256, 192, False)]
    assert (scatter.padded, permute.part_of) == (False, "")


def test_a_scatter_that_is_not_fused():
    (scatter,) = read("scattered_v5p", FOUR_TWO)
    assert (scatter.kind, scatter.padded, scatter.part_of) == ("ReduceScatter", False, "")
    assert (scatter.local_bytes, scatter.wire_bytes) == (1024 * 256 * 2, 768 * 256 * 2)
    assert (scatter.scope, scatter.source) == ("jit(scattered)/shard_map/mlp/reduce_scatter", "model.py:10")


LOOPS = ["loops_v5p", "loops_cpu_010", "loops_cpu_012"]


@pytest.mark.parametrize("name", LOOPS)
def test_loops_repeat_what_is_in_them(name):
    """5 permutes; 3 sums in each of 7 turns; a sum to ask whether to go on, a permute if so; the dearer branch."""
    local = 32 * 128 * 4
    assert [(c.kind, c.axes, c.wire_bytes, c.count, c.count_known) for c in read(name, EIGHT)] == [
        ("CollectivePermute", ("Y",), local, 5, True),
        ("AllReduce", ("Y",), local, 21, True),
        ("AllReduce", ("X", "Y"), 6, 1, False),
        ("CollectivePermute", ("X",), local, 1, False),
        ("AllReduce", ("Y",), local, 1, True),
    ]
    assert [c.total_bytes for c in read(name, EIGHT)] == [5 * local, 21 * local, 6, local, local]


@pytest.mark.parametrize("name", LOOPS)
def test_places_in_the_program_come_through(name):
    found = read(name, EIGHT)
    assert [c.source for c in found] == [f"model.py:{line}" for line in (15, 18, 22, 22, 24)]
    names = ("layers", "layers", "until", "until", "either")
    assert all(f"/{name}/" in c.scope for name, c in zip(names, found, strict=True))


def test_the_counter_says_what_the_compiler_says():
    for name in ("loops_cpu_010", "loops_cpu_012"):
        assert "known_trip_count" in saved(name)
        without = saved(name).replace("known_trip_count", "nothing")
        assert [c.count for c in collectives(without)] == [5, 21, 1, 1, 1]
        assert collectives(without) == collectives(saved(name))
    assert "known_trip_count" not in saved("loops_v5p")
    with_one = saved("loops_cpu_012").replace('"known_trip_count":{"n":"7"}', '"known_trip_count":{"n":"70"}')
    assert [c.count for c in collectives(with_one)] == [5, 210, 1, 1, 1], "the compiler's own count goes first"


def test_permutes_of_tpus_are_asynchronous():
    assert [c.is_async for c in read("loops_v5p", EIGHT)] == [True, False, False, True, False]
    assert not any(c.is_async for c in read("loops_cpu_012", EIGHT))


@pytest.mark.parametrize("name", ["several_v5p", "several_cpu"])
def test_arrays_summed_together_are_one_collective_of_their_bytes(name):
    (found,) = read(name, EIGHT)
    local = 32 * 256 * 4 + 32 * 128 * 4
    assert (found.kind, found.axes, found.local_bytes, found.wire_bytes) == (
        *("AllReduce", ("Y", "Z")),
        *(local, 2 * 3 * local // 4),
    )


def test_a_group_of_one_moves_nothing():
    (found,) = read("one_cpu", Mesh.of({"X": 4, "Y": 2, "Z": 1}))
    assert (found.group_size, found.axes, found.wire_bytes, found.local_bytes) == (1, (), 0, 16 * 256 * 4)


def test_groups_by_axes_and_by_counting_in_one_program():
    """Twelve layers: rows gathered over Y and weights over X in each; the last result gathered once."""
    found = read("layers_v5p", FOUR_TWO)
    assert "replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_1'}" in saved("layers_v5p")
    assert "replica_groups=[2,4]<=[4,2]T(1,0)" in saved("layers_v5p")
    assert [(c.kind, c.axes, c.local_bytes, c.count) for c in found] == [
        ("AllGather", ("Y",), 64 * 128 * 2, 12),
        ("AllGather", ("X",), 64 * 128 * 2, 12),
        ("AllGather", ("Y",), 64 * 128 * 2, 1),
    ]


def test_a_gather_that_is_cut_into_several_fusions_is_one():
    """v5e: one fusion starts it, one does a part beside a product, one ends it; each shows the whole all-gather."""
    assert saved("cut_v5e").count(" all-gather(") == 4
    reader = Reader(read_hlo(saved("cut_v5e")), FOUR_TWO)
    assert [(c.kind, c.axes, c.wire_bytes, c.is_async) for c in reader.all()] == [
        ("AllGather", ("X",), 3 * 4096 * 1024 * 2, False),
        ("AllGather", ("X",), 3 * 4096 * 1024 * 2, True),
        ("AllReduce", ("Y",), 1024 * 4096 * 2, False),
    ]
    entry = reader.module.entry
    ended = {i.name: reader.ends(entry, i) for i in entry.instructions if reader.ends(entry, i)}
    assert ended["async-collective-done"] == "async-collective-start"
    assert reader.collective(entry, entry.by_name["async-collective-done"]) is None


@pytest.mark.parametrize(("name", "mesh"), [("chain_v5e", {"X": 8}), ("cut_v5e", {"X": 4, "Y": 2})])
def test_each_asynchronous_collective_is_awaited_by_an_end_of_its_own(name, mesh):
    """The compiler may give several one channel; that of the first alone was awaited, and products ran too early."""
    reader = Reader(read_hlo(saved(name)), Mesh.of(mesh))
    begun = [collective.name for collective in reader.all() if collective.is_async]
    entry = reader.module.entry
    ended = [reader.ends(entry, i) for i in entry.instructions if i.opcode == "fusion" and reader.ends(entry, i)]
    assert begun and ended == begun


def test_gathers_that_another_core_does_are_asynchronous():
    """v6e's sparse core: `custom-call-start`, `-update` and `-done` of a computation that gathers."""
    reader = Reader(read_hlo(saved("offloaded_v6e")), FOUR_TWO)
    assert [(c.kind, c.axes, c.wire_bytes, c.is_async, c.scope) for c in reader.all()] == [
        ("AllGather", ("X",), 3 * 1024 * 4096 * 2, True, "w"),
        ("AllGather", ("X",), 3 * 4096 * 1024 * 2, True, "v"),
        ("AllReduce", ("Y",), 1024 * 4096 * 2, False, "jit(mlp)/dot_general"),
    ]
    starts = Counter(i.opcode for i in reader.module.entry.instructions if "custom-call" in i.opcode)
    assert starts["custom-call-start"] == starts["custom-call-update"] == starts["custom-call-done"] == 2


SUM = """\
%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}
"""


def program(body, before="", header="num_partitions=8"):
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().splitlines())
    entry = f"ENTRY %main (a: f32[64]) -> f32[64] {{\n{lines}\n}}\n"
    return f"HloModule by_hand, is_scheduled=true, {header}\n\n{SUM}\n{before}\n{entry}"


def by_hand(body, before="", **options):
    return collectives(program(body, before, **options), Mesh.of({"X": 2, "Y": 4}))


def facts(found):
    return [(c.kind, c.axes, c.local_bytes, c.wire_bytes, c.is_async) for c in found]


def test_pairs_of_start_and_done():
    found = by_hand(
        """
        %a = f32[64]{0} parameter(0)
        %b = bf16[32]{0} convert(%a)
        %g.1 = (f32[64]{0}, f32[256]{0}) all-gather-start(%a), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}
        %r.1 = f32[64]{0} all-reduce-start(%a), channel_id=2, replica_groups={{0,4},{1,5},{2,6},{3,7}}, to_apply=%add
        %g.2 = f32[256]{0} all-gather-done(%g.1)
        %r.2 = f32[64]{0} all-reduce-done(%r.1)
        %p.1 = (bf16[32]{0}, bf16[32]{0}) collective-permute-start(%b), channel_id=3, source_target_pairs={{0,1},{1,0}}
        %p.2 = bf16[32]{0} collective-permute-done(%p.1)
        ROOT %out = f32[64]{0} copy(%r.2)
        """
    )
    assert facts(found) == [
        ("AllGather", ("Y",), 256, 3 * 256, True),
        ("AllReduce", ("X",), 256, 256, True),
        ("CollectivePermute", ("Y",), 64, 64, True),
    ]


SCATTER = """\
%wrapped (p: f32[64]) -> f32[16] {
  %p = f32[64]{0} parameter(0)
  ROOT %rs = f32[16]{0} reduce-scatter(%p), replica_groups=mesh['X'=2,'Y'=4] {'Y'}, dimensions={0}, to_apply=%add
}
"""


@pytest.mark.parametrize(
    "opcode, key", [("async", "calls"), ("call", "to_apply"), ("custom-call", "called_computations")]
)
def test_an_asynchronous_start_of_a_computation(opcode, key):
    called = "{%wrapped}" if key == "called_computations" else "%wrapped"
    found = by_hand(
        f"""
        %a = f32[64]{{0}} parameter(0)
        %start = ((f32[64]{{0}}), f32[16]{{0}}, u32[]) {opcode}-start(%a), {key}={called}
        %update = ((f32[64]{{0}}), f32[16]{{0}}, u32[]) {opcode}-update(%start)
        ROOT %done = f32[16]{{0}} {opcode}-done(%update)
        """,
        SCATTER,
    )
    assert facts(found) == [("ReduceScatter", ("Y",), 256, 192, True)]
    assert [c.name for c in found] == ["start"]


def test_an_asynchronous_start_in_short():
    """XLA prints a start whose computation is one instruction as that instruction's own start."""
    found = by_hand(
        """
        %a = f32[64]{0} parameter(0)
        %start = ((f32[64]{0}), f32[16]{0}) reduce-scatter-start(%a), replica_groups=[2,4]<=[8], to_apply=%add
        ROOT %done = f32[16]{0} reduce-scatter-done(%start)
        """
    )
    assert facts(found) == [("ReduceScatter", ("Y",), 256, 192, True)]


def test_several_collectives_in_one_start_are_all_counted():
    more = """
  %ag = f32[512]{0} all-gather(%p), replica_groups={}, dimensions={0}
  ROOT %t = (f32[16]{0}, f32[512]{0}) tuple(%rs, %ag)
}"""
    both = SCATTER.replace("ROOT %rs", "%rs").replace("\n}", more)
    found = by_hand("%a = f32[64]{0} parameter(0)\n%s = (f32[16]{0}) async-start(%a), calls=%wrapped", both)
    assert facts(found) == [("ReduceScatter", ("Y",), 256, 192, True), ("AllGather", ("X", "Y"), 256, 7 * 256, True)]


@pytest.mark.parametrize(
    "opcode, key", [("call", "to_apply"), ("fusion", "calls"), ("custom-call", "called_computations")]
)
def test_calls_are_entered_each_time(opcode, key):
    called = "{%wrapped}" if key == "called_computations" else "%wrapped"
    line = f"{opcode}(%a), {key}={called}"
    found = by_hand(f"%a = f32[64]{{0}} parameter(0)\n%b = f32[16]{{0}} {line}\nROOT %c = f32[16]{{0}} {line}", SCATTER)
    assert facts(found) == 2 * [("ReduceScatter", ("Y",), 256, 192, False)]


def test_tuples_of_an_all_to_all():
    """GPUs and CPUs: an array for each member."""
    found = by_hand(
        """
        %a = f32[64]{0} parameter(0)
        %b = f32[16]{0} slice(%a), slice={[0:16]}
        ROOT %t = (f32[16], f32[16], f32[16], /*index=3*/f32[16]) all-to-all(%b, %b, %b, %b), replica_groups=[2,4]<=[8]
        """
    )
    assert facts(found) == [("AllToAll", ("Y",), 256, 192, False)]


def test_operands_may_carry_their_types():
    body = "%a = f32[64]{0} parameter(0)\nROOT %g = f32[512]{0} all-gather(f32[64]{0} %a), replica_groups={}"
    assert facts(by_hand(body)) == [("AllGather", ("X", "Y"), 256, 7 * 256, False)]
    assert by_hand(body) == by_hand(body.replace("%", "")), "names without their mark"


def test_ragged_exchanges_move_at_most_their_first_operand():
    rest = "".join(f"%n{k} = s32[4]{{0}} constant({{0, 0, 0, 0}})\n" for k in range(4))
    line = "ROOT %r = f32[64]{0} ragged-all-to-all(%a, %a, %n0, %n1, %n2, %n3), replica_groups=[2,4]<=[8]"
    assert facts(by_hand(f"%a = f32[64]{{0}} parameter(0)\n{rest}{line}")) == [("AllToAll", ("Y",), 256, 192, False)]


def test_a_permute_into_a_given_buffer_moves_what_it_sends():
    body = """
        %a = f32[64]{0} parameter(0)
        %at = s32[] constant(0)
        ROOT %p = f32[64]{0} collective-permute(%a, %a, %at, %at), source_target_pairs={{0,4},{4,0},{1,1}}
    """
    assert facts(by_hand(body)) == [("CollectivePermute", ("X",), 256, 256, False)]


def test_a_permute_to_oneself_moves_nothing():
    body = (
        "%a = f32[64]{0} parameter(0)\nROOT %p = f32[64]{0} collective-permute(%a), source_target_pairs={{0,0},{5,5}}"
    )
    assert facts(by_hand(body)) == [("CollectivePermute", (), 256, 0, False)]


def test_the_largest_group_counts():
    body = "%a = f32[64]{0} parameter(0)\nROOT %g = f32[512]{0} all-gather(%a), replica_groups={{3},{0,1,2}}"
    assert facts(by_hand(body)) == [("AllGather", None, 256, 512, False)]


def test_groups_by_axes_of_a_mesh_whose_devices_are_turned():
    """Its numbers stand between commas, as attributes do."""
    groups = "mesh['X'=2,'Y'=2], device_ids=(0,4,1,5) {'Y'}"
    gather = f"ROOT %g = f32[128]{{0}} all-gather(%a), replica_groups={groups}, dimensions={{0}}"
    (found,) = by_hand(f"%a = f32[64]{{0}} parameter(0)\n{gather}")
    assert (found.groups, found.axes) == (((0, 4), (1, 5)), ("X",))


def test_a_line_in_a_library_is_its_callers():
    text = saved("several_v5p").replace('1 "model.py"', '1 "lib/site-packages/layers/model.py"')
    assert [c.source for c in collectives(text)] == ["run.py:38"]


def test_replicas_are_devices_too():
    body = "%a = f32[64]{0} parameter(0)\nROOT %g = f32[512]{0} all-gather(%a), replica_groups={}, dimensions={0}"
    assert facts(by_hand(body, header="replica_count=8")) == [("AllGather", ("X", "Y"), 256, 7 * 256, False)]


BRANCHES = """\
%little (p: f32[64]) -> f32[64] {
  %p = f32[64]{0} parameter(0)
  ROOT %r = f32[64]{0} all-reduce(%p), replica_groups={{0,4},{1,5},{2,6},{3,7}}, to_apply=%add
}

%much (q: f32[64]) -> f32[64] {
  %q = f32[64]{0} parameter(0)
  ROOT %s = f32[64]{0} all-reduce(%q), replica_groups={}, to_apply=%add
}
"""


@pytest.mark.parametrize(
    "branches",
    ["branch_computations={%little, %much}", "true_computation=%much, false_computation=%little"],
)
def test_of_a_conditional_the_costliest_branch_counts(branches):
    line = f"ROOT %c = f32[64]{{0}} conditional(%i, %a, %a), {branches}"
    found = by_hand(f"%a = f32[64]{{0}} parameter(0)\n%i = s32[] constant(0)\n{line}", BRANCHES)
    assert facts(found) == [("AllReduce", ("X", "Y"), 256, 448, False)]


def loop(start, step, direction, limit, *, mirrored=False, op="add", in_tuple=False, fused=False):
    """A while over (i, limit, a) with an all-reduce in its body and one in its condition."""
    end = "%n" if in_tuple else "%limit"
    sides = f"{end}, %i" if mirrored else f"%i, {end}"
    test = f"pred[] compare({sides}), direction={direction}"
    inner = f"""\
%test (l: s32[], r: s32[]) -> pred[] {{
  %l = s32[] parameter(0)
  %r = s32[] parameter(1)
  ROOT %t = pred[] compare(%l, %r), direction={direction}
}}

"""
    if fused:
        test = f"pred[] fusion({sides}), kind=kLoop, calls=%test"
    before = f"""\
{inner if fused else ""}%body (s: (s32[], s32[], f32[64])) -> (s32[], s32[], f32[64]) {{
  %s = (s32[], s32[], f32[64]{{0}}) parameter(0)
  %i.1 = s32[] get-tuple-element(%s), index=0
  %n.1 = s32[] get-tuple-element(%s), index=1
  %a.1 = f32[64]{{0}} get-tuple-element(%s), index=2
  %step = s32[] constant({step})
  %next = s32[] {op}(%i.1, %step)
  %r = f32[64]{{0}} all-reduce(%a.1), replica_groups={{}}, to_apply=%add
  ROOT %out = (s32[], s32[], f32[64]{{0}}) tuple(%next, %n.1, %r)
}}

%condition (s.1: (s32[], s32[], f32[64])) -> pred[] {{
  %s.1 = (s32[], s32[], f32[64]{{0}}) parameter(0)
  %i = s32[] get-tuple-element(%s.1), index=0
  %n = s32[] get-tuple-element(%s.1), index=1
  %limit = s32[] constant({limit})
  %b = f32[64]{{0}} get-tuple-element(%s.1), index=2
  %q = f32[64]{{0}} collective-permute(%b), source_target_pairs={{{{0,1}}}}
  ROOT %go = {test}
}}
"""
    return program(
        f"""
        %a = f32[64]{{0}} parameter(0)
        %zero = s32[] constant({start})
        %most = s32[] constant({limit})
        %t = (s32[], s32[], f32[64]{{0}}) tuple(%zero, %most, %a)
        ROOT %w = (s32[], s32[], f32[64]{{0}}) while(%t), condition=%condition, body=%body
        """,
        before,
    )


COMPARED = {
    "LT": lambda i, n: i < n,
    "LE": lambda i, n: i <= n,
    "GT": lambda i, n: i > n,
    "GE": lambda i, n: i >= n,
    "NE": lambda i, n: i != n,
}
MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE"}


def run(start, step, direction, limit):
    """The loop, run; None if it does not end soon."""
    i = start
    for times in range(500):
        if not COMPARED[direction](i, limit):
            return times
        i += step
    return None


small = st.integers(-20, 20)


@given(small, small.filter(bool), st.sampled_from(list(COMPARED)), small)
def test_counting_is_running(start, step, direction, limit):
    found, expected = count(start, step, direction, limit), run(start, step, direction, limit)
    assert found == expected or (found is None and (expected is None or expected == 0))


@given(small, st.integers(1, 5), st.sampled_from(list(COMPARED)), small, st.booleans(), st.booleans(), st.booleans())
def test_the_trips_of_a_counter(start, step, direction, limit, mirrored, in_tuple, fused):
    """Up or down; the limit left or right, a constant or handed on in the tuple; the comparison in a fusion or not."""
    down = direction in ("GT", "GE")
    spelled = MIRRORED[direction] if mirrored else direction
    text = loop(
        *(start, step, spelled, limit),
        mirrored=mirrored,
        op="subtract" if down else "add",
        in_tuple=in_tuple,
        fused=fused,
    )
    expected = run(start, -step if down else step, direction, limit)
    asked, summed = collectives(text)
    if asked.count_known or (expected is not None and expected > 0):
        assert (asked.count, summed.count) == (expected + 1, expected), "the condition is asked once more"
        assert asked.count_known and summed.count_known
    else:
        assert (asked.count, summed.count) == (1, 1)


# Element 0 of another tuple is not the counter.
INNER = """%u = (s32[], s32[]) tuple(%n.1, %i.1)
  %j = s32[] get-tuple-element(%u), index=0
  %next = s32[] add(%j, %step)"""


@pytest.mark.parametrize(
    "what, by",
    [
        ("%zero = s32[] constant(0)", "%zero = s32[] partition-id()"),
        ("%next = s32[] add(%i.1, %step)", "%next = s32[] multiply(%i.1, %step)"),
        ("%next = s32[] add(%i.1, %step)", "%next = s32[] add(%n.1, %step)"),
        ("%next = s32[] add(%i.1, %step)", INNER),
        ("ROOT %go = pred[] compare", "ROOT %go = pred[] and"),
        ("%i = s32[] get-tuple-element(%s.1), index=0", "%i = s32[] get-tuple-element(%s.1), index=1"),
    ],
)
def test_a_loop_that_cannot_be_counted_counts_once_and_says_so(what, by):
    text = loop(0, 2, "LT", 8)
    assert [(c.count, c.count_known) for c in collectives(text)] == [(5, True), (4, True)]
    assert what in text
    assert [(c.count, c.count_known) for c in collectives(text.replace(what, by))] == [(1, False), (1, False)]


def test_a_limit_that_moves_is_none():
    """while i < n with both one more each time: it never ends, though n begins as a constant."""
    text = loop(0, 1, "LT", 8, in_tuple=True)
    assert [c.count for c in collectives(text)] == [9, 8]
    moving = text.replace("%next = ", "%more = s32[] add(%n.1, %step)\n  %next = ")
    moving = moving.replace("tuple(%next, %n.1, %r)", "tuple(%next, %more, %r)")
    assert [(c.count, c.count_known) for c in collectives(moving)] == [(1, False), (1, False)]


def test_doubling_down_is_not_counted_as_a_step():
    text = loop(8, 2, "GT", 0, op="subtract")
    assert [c.count for c in collectives(text)] == [5, 4]
    assert not any(c.count_known for c in collectives(text.replace("subtract(", "divide(")))


def test_an_unknown_loop_around_a_known_one_is_unknown():
    module = read_hlo(saved("loops_v5p"))
    loops = [(c, i) for c in module.computations.values() for i in c.instructions if i.opcode == "while"]
    assert sorted(str(trip_count(module, *each)) for each in loops) == ["3", "5", "7", "None"]


@given(
    st.sampled_from(["AllGather", "AllReduce", "ReduceScatter", "AllToAll", "CollectivePermute"]), st.integers(1, 64)
)
def test_wire_bytes_of_whole_shares(kind, n):
    shares = {"AllGather": n - 1, "AllReduce": 2 * (n - 1), "CollectivePermute": n if n > 1 else 0}
    share = 24
    local = share if kind == "AllGather" else share * n
    assert wire_bytes(kind, n, local) == shares.get(kind, n - 1) * share


@pytest.mark.parametrize(
    "dtype, bits",
    [
        ("f32", 32),
        ("bf16", 16),
        ("f8e4m3fn", 8),
        ("f8e5m2fnuz", 8),
        ("f4e2m1fn", 4),
        ("s4", 4),
        ("pred", 8),
        ("c64", 64),
    ],
)
def test_bytes_of_a_type(dtype, bits):
    assert Shape(dtype, (6, 4)).bytes == 3 * bits
    text = program(f"%a = {dtype}[6,4]{{1,0}} parameter(0)\nROOT %c = {dtype}[6,4]{{1,0}} copy(%a)")
    assert read_hlo(text).entry.root.shapes == (Shape(dtype, (6, 4)),)


def test_a_module_that_is_none():
    with pytest.raises(UnreadableHlo, match="HloModule"):
        read_hlo("module @jit_f {")
    with pytest.raises(UnreadableHlo, match="no entry"):
        read_hlo("HloModule empty\n")
    with pytest.raises(UnreadableHlo, match="no computation missing"):
        collectives(program("%a = f32[64]{0} parameter(0)\nROOT %b = f32[64]{0} call(%a), to_apply=%missing"))


def test_saved_programs_name_no_place_on_a_disk():
    for path in DATA.iterdir():
        assert '"/' not in path.read_text(encoding="utf-8"), path
