"""Lowered programs, saved and by hand: what is asked of the compiler, in the text of JAX 0.10 and of 0.12."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.compiled import UnreadableHlo
from shardc.compiled.hlo.stablehlo import collectives
from shardc.ir.mesh import Mesh

DATA = Path(__file__).parents[1] / "data" / "hlo"
EIGHT = Mesh.of({"X": 2, "Y": 2, "Z": 2})
TWO_FOUR = Mesh.of({"X": 2, "Y": 4})


@pytest.mark.parametrize("version", ["010", "012"])
def test_loops_calls_and_cases(version):
    """As in the compiled program: 5 permutes, 3·7 sums, an unknown loop whose condition sums, the dearer branch."""
    found = collectives((DATA / f"loops_{version}.mlir").read_text(encoding="utf-8"), EIGHT)
    local = 32 * 128 * 4
    assert [(c.kind, c.axes, c.local_bytes, c.wire_bytes, c.count, c.count_known) for c in found] == [
        ("CollectivePermute", ("Y",), local, local, 5, True),
        ("AllReduce", ("Y",), local, local, 21, True),
        ("AllReduce", ("X", "Y"), 4, 6, 1, False),
        ("CollectivePermute", ("X",), local, local, 1, False),
        ("AllReduce", ("Y",), local, local, 1, True),
    ]
    assert [c.source for c in found] == [f"model.py:{line}" for line in (15, 18, 22, 22, 24)]
    assert all(scope in c.scope for scope, c in zip(("", "", "until", "until", "either"), found, strict=True))


MESHES = """\
  sdy.mesh @mesh = <["X"=2, "Y"=4]>
  sdy.mesh @turned = <["X"=2, "Y"=4], device_ids=[0, 2, 4, 6, 1, 3, 5, 7]>
  sdy.mesh @"odd name" = <["data"=8]>
"""


def module(main, functions="", devices=8):
    head = f"module @jit_f attributes {{mhlo.num_partitions = {devices} : i32, mhlo.num_replicas = 1 : i32}} {{"
    public = "  func.func public @main(%arg0: tensor<64xf32>) -> (tensor<64xf32>) {"
    return f"{head}\n{MESHES}{public}\n{main}\n    return %arg0 : tensor<64xf32>\n  }}\n{functions}}}\n"


def gather(groups, operand="tensor<64xf32>", value="%0"):
    return f'    {value} = "stablehlo.all_gather"(%arg0) <{{all_gather_dim = 0, {groups}}}> : ({operand}) -> {operand}'


def one(main, functions="", mesh=TWO_FOUR):
    (found,) = collectives(module(main, functions), mesh)
    return found


GROUPS = {
    "dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>": ((0, 1, 2, 3), (4, 5, 6, 7)),
    "dense<[[0, 1, 2], [3, -1, -1]]> : tensor<2x3xi64>": ((0, 1, 2), (3,)),
    "dense<0> : tensor<1x1xi64>": ((0,),),
    "dense<> : tensor<0x0xi64>": (tuple(range(8)),),
    f'dense<"0x{"".join(n.to_bytes(8, "little").hex() for n in (0, 4, 1, 258))}"> : tensor<2x2xi64>': (
        (0, 4),
        (1, 258),
    ),
    '#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "X">]>': (
        *((0, 4), (1, 5), (2, 6), (3, 7)),
    ),
    '#stablehlo.replica_group_mesh_axes<mesh_name = @mesh, axes = [#stablehlo.axis_ref<name = "Y">, '
    '#stablehlo.axis_ref<name = "X">]>': ((0, 4, 1, 5, 2, 6, 3, 7),),
    '#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "Y", '
    "sub_axis_info = (1)2>]>": ((0, 2), (1, 3), (4, 6), (5, 7)),
    '#stablehlo.replica_group_mesh_axes<mesh = @turned, axes = [#stablehlo.axis_ref<name = "X">]>': (
        *((0, 1), (2, 3), (4, 5), (6, 7)),
    ),
    '#stablehlo.replica_group_mesh_axes<mesh = @"odd name", axes = [#stablehlo.axis_ref<name = "data">]>': (
        tuple(range(8)),
    ),
}


@pytest.mark.parametrize("text", GROUPS)
def test_each_form_of_groups(text):
    found = one(gather(f"replica_groups = {text}, use_global_device_ids"))
    assert found.groups == GROUPS[text]
    assert found.wire_bytes == (max(map(len, GROUPS[text])) - 1) * 256


TYPES = {
    "tensor<6x4xf32>": 96,
    "tensor<6x4xbf16>": 48,
    "tensor<6x4xf8E4M3FN>": 24,
    "tensor<6x4xf8E8M0FNU>": 24,
    "tensor<6x4xf4E2M1FN>": 12,
    "tensor<6x4xi1>": 24,
    "tensor<6x4xui8>": 24,
    "tensor<6x4xi4>": 12,
    "tensor<6x4xui16>": 48,
    "tensor<6x4xi64>": 192,
    "tensor<6x4xcomplex<f32>>": 192,
    "tensor<f64>": 8,
    "tensor<6x4xbf16>, tensor<3xi8>": 51,
}


@pytest.mark.parametrize("text", TYPES)
def test_bytes_of_each_type(text):
    groups = "replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>"
    assert one(gather(groups, text)).local_bytes == TYPES[text]


ROWS = "replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>"
PERMUTE = (
    '    %p = "stablehlo.collective_permute"(%arg0) <{{source_target_pairs = {}}}> : (tensor<64xf32>) -> tensor<64xf32>'
)


@pytest.mark.parametrize(
    "pairs, moved, axes",
    [
        ("dense<[[0, 4], [4, 0]]> : tensor<2x2xi64>", 256, ("X",)),
        ("dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>", 0, ()),
        ("dense<0> : tensor<1x2xi64>", 0, ()),
        ("dense<> : tensor<0x2xi64>", 0, ()),
    ],
)
def test_permutes(pairs, moved, axes):
    found = one(PERMUTE.format(pairs))
    assert (found.kind, found.wire_bytes, found.axes) == ("CollectivePermute", moved, axes)


def test_a_type_behind_a_region():
    """The operands of a reduction stand where its region is closed; those of its sum inside do not count."""
    text = f"""\
    %0 = "stablehlo.reduce_scatter"(%arg0) <{{{ROWS}, scatter_dimension = 0 : i64}}> ({{
    ^bb0(%arg4: tensor<bf16>, %arg5: tensor<bf16>):
      %9 = stablehlo.add %arg4, %arg5 : tensor<bf16>
      stablehlo.return %9 : tensor<bf16>
    }}) : (tensor<64xbf16>) -> tensor<16xbf16>"""
    found = one(text)
    assert (found.kind, found.axes, found.local_bytes, found.wire_bytes) == ("ReduceScatter", ("Y",), 128, 96)


def test_functions_count_as_often_as_they_are_called():
    functions = f"""\
  func.func private @inner(%arg0: tensor<64xf32>) -> tensor<256xf32> {{
{gather(ROWS)}
    return %0 : tensor<256xf32>
  }}
  func.func private @"odd name"(%arg0: tensor<64xf32>) -> tensor<256xf32> {{
    %0 = call @inner(%arg0) : (tensor<64xf32>) -> tensor<256xf32>
    %1 = func.call @inner(%arg0) : (tensor<64xf32>) -> tensor<256xf32>
    return %1 : tensor<256xf32>
  }}
  func.func private @nobody_calls(%arg0: tensor<64xf32>) -> tensor<256xf32> {{
{gather(ROWS)}
    return %0 : tensor<256xf32>
  }}
"""
    main = """\
    %0 = call @"odd name"(%arg0) : (tensor<64xf32>) -> tensor<256xf32>
    %1 = stablehlo.composite "my.own" %arg0 {decomposition = @inner} : (tensor<64xf32>) -> tensor<256xf32>"""
    assert len(collectives(module(main, functions))) == 3


def loop(start, step, direction, limit, *, op="add", kept=False):
    end = "%iter_2" if kept else "%c_9"
    return f"""\
    %c = stablehlo.constant dense<{start}> : tensor<i32>
    %c_0 = stablehlo.constant dense<{limit}> : tensor<i32>
    %1:3 = stablehlo.while(%iterArg = %c, %iter_1 = %arg0, %iter_2 = %c_0) : tensor<i32>, tensor<64xf32>, tensor<i32>
    cond {{
      %c_9 = stablehlo.constant dense<{limit}> : tensor<i32>
      %2 = stablehlo.compare {direction}, %iterArg, {end}, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    }} do {{
  {gather(ROWS, value="%3")}
      %c_4 = stablehlo.constant dense<{step}> : tensor<i32>
      %4 = stablehlo.{op} %iterArg, %c_4 : tensor<i32>
      stablehlo.return %4, %iter_1, %iter_2 : tensor<i32>, tensor<64xf32>, tensor<i32>
    }}"""


@given(
    st.integers(-20, 20),
    st.integers(1, 5),
    st.sampled_from(["LT", "LE", "GT", "GE"]),
    st.integers(0, 30),
    st.booleans(),
)
def test_trips(start, step, direction, distance, kept):
    down = direction in ("GT", "GE")
    limit = start - distance if down else start + distance
    text = loop(start, step, direction, limit, op="subtract" if down else "add", kept=kept)
    stop = limit + (direction == "LE") - (direction == "GE")
    expected = len(range(start, stop, -step if down else step))
    found = one(text)
    assert (found.count, found.count_known) == (expected, True)


@pytest.mark.parametrize(
    "what, by",
    [
        ("stablehlo.add", "stablehlo.multiply"),
        ("stablehlo.return %4, %iter_1, %iter_2", "stablehlo.return %iter_2, %iter_1, %4"),
        ("dense<0> : tensor<i32>", "dense<[0, 1]> : tensor<2xi32>"),
        ("stablehlo.compare LT", "stablehlo.compare EQ"),
    ],
)
def test_a_loop_that_cannot_be_counted(what, by):
    text = loop(0, 2, "LT", 8)
    assert what in text
    assert (one(text).count, one(text).count_known) == (4, True)
    found = one(text.replace(what, by))
    assert (found.count, found.count_known) == (1, False)


def test_a_condition_is_asked_once_more():
    text = loop(0, 2, "LT", 8).replace(
        "stablehlo.return %2", f"{gather(ROWS, value='%q').strip()}\n      stablehlo.return %2"
    )
    assert [c.count for c in collectives(module(text))] == [5, 4]


def test_a_limit_that_moves_is_none():
    text = loop(0, 1, "LT", 8, kept=True)
    assert one(text).count == 8
    moving = text.replace("stablehlo.return %4, %iter_1, %iter_2", "stablehlo.return %4, %iter_1, %4")
    assert not one(moving).count_known


@pytest.mark.parametrize("text", ["", "HloModule x", "module @m {", "module @m {\n}\n", "func.func @f() {\n}\n"])
def test_what_is_no_module(text):
    with pytest.raises(UnreadableHlo):
        collectives(text)


@pytest.mark.parametrize(
    "line, what",
    [
        (gather("replica_groups = dense<[[0, 1]]> : tensor<2x2xi64>"), "replica_groups"),
        (gather("something = else"), "no replica_groups"),
        (
            gather(next(t for t in GROUPS if "@mesh" in t).replace("#", "replica_groups = #").replace("@mesh", "@no")),
            "mesh no",
        ),
        ("    %0 = call @missing(%arg0) : (tensor<64xf32>) -> tensor<64xf32>", "@missing"),
    ],
)
def test_what_cannot_be_read_says_so(line, what):
    with pytest.raises(UnreadableHlo, match=what):
        collectives(module(line))
