"""Sweeps: what is swept, the crossings against the chapter on training, the best split, and what is refused."""

import csv
import io
import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardc
from shardc import cli
from shardc.sweeping.ranges import over, points

BACKWARD = "dW[D, F] = In[{b}, D] · dOut[{b}, F]; dIn[{b}, D] = dOut[{b}, F] · W[D, F]"
TENSOR = "Tmp[B, F_Y] = In[B, D_Y] ·_D Win[D, F_Y]; Out[B, D_Y] = Tmp ·_F Wout[F_Y, D]"
BOTH = "Tmp[B_X, F_Y] = In[B_X, D_Y] ·_D Win[D_X, F_Y]; Out[B_X, D_Y] = Tmp ·_F Wout[F_Y, D_X]"
BOOK = {"chip": "v5p", "formula": "book"}


# --- what is swept


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("B=1k..8k", [1024, 2048, 4096, 8192]),
        ("B=1k..6k", [1024, 2048, 4096, 6144]),
        ("B=2..32*4", [2, 8, 32]),
        ("B=1k..4k+1k", [1024, 2048, 3072, 4096]),
        ("B=512,768,1M", [512, 768, 2**20]),
        ("B=7..7", [7]),
    ],
)
def test_sizes_are_read(text, sizes):
    assert [size for (size,) in over(text).sizes] == sizes


@given(st.integers(1, 4096), st.integers(2, 3))
def test_a_split_is_every_way_to_share_the_devices_out(count, parts):
    found = over(f"{'*'.join('XYZ'[:parts])}={count}").sizes
    brute = [n for n in range(1, count + 1) if count % n == 0]
    assert all(math.prod(sizes) == count for sizes in found) and len(set(found)) == len(found)
    expected = len(brute) if parts == 2 else sum(sum(1 for m in range(1, n + 1) if n % m == 0) for n in brute)
    assert len(found) == expected


def test_two_quantities_make_every_combination():
    assert points([over("X*Y=2"), over("B=1..2")]) == [
        {"X": 1, "Y": 2, "B": 1},
        {"X": 1, "Y": 2, "B": 2},
        {"X": 2, "Y": 1, "B": 1},
        {"X": 2, "Y": 1, "B": 2},
    ]


@pytest.mark.parametrize(
    "text",
    ["B", "=4", "B=", "B=0", "B=8..4", "B=4..8*1", "B=4..8+0", "X*X=4", "X*=4", "B=1T", "B=9999999G", "B=1..9999+1"],
)
def test_what_cannot_be_swept_is_said(text):
    with pytest.raises(shardc.ShardcError) as caught:
        points([over(text)])
    assert caught.value.code == "SHC001" and caught.value.help


@pytest.mark.instant
@given(st.one_of(st.from_regex(r"[0-9]{1,5}[kMGKTmg]?", fullmatch=True), st.text("0123456789kMGB.e", max_size=5)))
def test_a_size_is_read_alike_of_a_sweep_an_option_and_the_interface(size):
    """Up to what a sweep takes at most."""

    def size_by(read):
        try:
            return read()
        except shardc.ShardcError:
            return None

    def by_option():
        return dict(shardc.parse("A[I] → A[I]", mesh="X=1", dims=f"I={size}").sizes)["I"]

    swept, given = size_by(lambda: over(f"I={size}").sizes[0][0]), size_by(by_option)
    assert swept == given or (swept is None and given is not None and given > 2**40)


@given(st.text(max_size=12))
def test_any_text_is_a_sweep_or_a_coded_error(text):
    try:
        points([over(text)])
    except shardc.ShardcError as error:
        assert error.code == "SHC001"


# --- the chapter on training, by command


@pytest.mark.parametrize(
    ("mesh", "axes", "tokens"), [({"X": 4}, "B_X", 2550), ({"X": 4, "Y": 4, "Z": 4}, "B_XYZ", 850)]
)
def test_data_parallelism_is_limited_by_compute_from_so_many_tokens_a_chip(mesh, axes, tokens):
    devices = math.prod(mesh.values())
    sizes = {"D": 2048, "F": 8192}
    found = shardc.sweep(
        BACKWARD.format(b=axes), f"B={128 * devices}..{8192 * devices}", mesh=mesh, dims=sizes, objective="time", **BOOK
    )
    (crossing,) = found.crossings
    assert crossing.at / devices == pytest.approx(tokens, rel=0.01)  # a factor of two elsewhere would be 100 times that
    assert crossing.between[0] <= crossing.at <= crossing.between[1]


def test_tensor_parallelism_is_limited_by_communication_from_f_over_2550():
    found = shardc.sweep(TENSOR, "Y=2..32", mesh={"Y": 4}, dims={"B": 8192, "D": 8192, "F": 32768}, **BOOK)
    assert found.crossings[0].at == pytest.approx(12.85, rel=0.01)


@pytest.mark.parametrize(("tokens", "devices"), [(49152, 64), (196608, 256), (24576, 64)])
def test_the_best_split_is_the_chapters(tokens, devices):
    """X_opt = √(B/F · N), both axes of one physical axis each, wherever both wrap: communication is 4BD/X + 4DF/Y."""
    found = shardc.sweep(
        BOTH,
        f"X*Y={devices}",
        dims={"B": tokens, "D": 8192, "F": 32768},
        wraparound={"X": "ring", "Y": "ring"},
        **BOOK,
    )
    wanted = math.sqrt(tokens / 32768 * devices)
    assert found.optimum == pytest.approx(wanted, rel=0.02)
    near = min(found.rows, key=lambda row: abs(math.log(dict(row.sizes)["X"] / wanted)))
    assert found.best is near


def test_a_point_is_the_plan_alone():
    found = shardc.sweep(BOTH, "X*Y=8", "B=512,1024", dims={"D": 512, "F": 1024}, chip="v5e")
    assert len(found.rows) == 8
    for row in found.rows:
        sizes = dict(row.sizes)
        alone = shardc.plan(
            BOTH, mesh={"X": sizes["X"], "Y": sizes["Y"]}, dims={"B": sizes["B"], "D": 512, "F": 1024}, chip="v5e"
        )
        assert (row.wire_bytes, row.time_s, row.peak_bytes) == (
            alone.cost.wire_bytes,
            alone.cost.time_s,
            alone.cost.peak_bytes,
        )


# --- on the command line


def command(*words):
    return subprocess.run([sys.executable, "-m", "shardc", *words], capture_output=True, text=True)


RESHARD = ("plan", "A[I_X, J] -> A[I, J]", "--sweep", "X=2..8")


def test_the_table_the_json_and_the_csv_say_the_same():
    table, fields = command(*RESHARD).stdout, json.loads(command(*RESHARD, "--json").stdout)
    lines = list(csv.DictReader(io.StringIO(command(*RESHARD, "--csv").stdout)))
    assert [row["sizes"]["X"] for row in fields["rows"]] == [2, 4, 8] == [int(line["X"]) for line in lines]
    assert [str(row["wire_bytes"]) for row in fields["rows"]] == [line["wire_bytes"] for line in lines]
    assert fields["best"] == {"X": 4} and "* least time: X=4" in table


def test_a_point_that_is_not_legal_says_so_and_the_others_stand():
    found = command("plan", "A[I_X, J] -> A[I, J]", "--sweep", "X=2..4+1", "--dims", "I=8,J=8")
    assert found.returncode == 0 and "SHC204" in found.stdout and found.stdout.count("AllGather_X") == 2
    fields = json.loads(
        command("plan", "A[I_X, J] -> A[I, J]", "--sweep", "X=2,3", "--dims", "I=8,J=8", "--json").stdout
    )
    assert fields["rows"][1]["error"]["code"] == "SHC204"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--sweep", "Q=1..2"), 2),
        (("--sweep", "X=1..2", "--sweep", "X=1..4"), 2),
        (("--sweep", "X=1", "--sweep", "I=8", "--sweep", "J=8"), 2),
        (("--sweep", "X=1..2", "--top", "3"), 2),
        (("--sweep", "I*J=64"), 2),
        (("--sweep", "X=3", "--dims", "I=8"), 4),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_status(words, status, capsys):
    assert cli._status(["plan", "A[I_X, J] -> A[I, J]", "--mesh", "X=4", *words]) == status
    said = capsys.readouterr().err
    assert "error[" in said and "Traceback" not in said


@pytest.mark.parametrize(
    "option",
    [
        ("--objective", "bytes"),
        ("--idle", "keep"),
        ("--overlap", "on"),
        ("--formula", "book"),
        ("--profile", "spec"),
        ("--wraparound", "X=ring"),
        ("--dcn", "Y"),
        ("--dtype", "f32"),
        ("--topology", "v5e:2x4"),
    ],
    ids=" ".join,
)
def test_a_row_is_priced_as_the_plan_that_the_same_option_gives(option, capsys):
    text = "A[I_X, J] · B[J_X, K] → C[I_Y, K_X]" if "bytes" in option else "A[I_X, J] · B[J, K_X] → C[I, K_X]"
    asked = ["plan", text, "--mesh", "X=4,Y=2", "--chip", "v5e", "--json"]

    def said(*more):
        assert cli._status([*asked, *more]) == 0
        return json.loads(capsys.readouterr().out)

    def of_row(*more):
        (row,) = said("--dims", "J=8192,K=8192", "--sweep", "I=8192", *more)["rows"]
        return row["time_s"], row["wire_bytes"]

    cost = said("--dims", "I=8192,J=8192,K=8192", *option)["cost"]
    assert of_row(*option) == (cost["time_s"], cost["wire_bytes"]) != of_row()


def test_what_moves_nothing_is_no_move() -> None:
    """Of a gather over an axis of one device."""
    sizes = {"B": 8192, "D": 4096, "F": 16384}
    found = shardc.sweep("In[B_X, D_Y] · W[D_X, F_Y] → Out[B_X, F_Y]", "X*Y=4", dims=sizes)
    assert [row.moves for row in found.rows][::2] == ["AllGather_Y", "AllGather_X"]


# --- of two quantities, and what the figures are of

PRODUCT = "Out[B_X, F_Y] = In[B_X, D_Y] · W[D_X, F_Y]"


def points_of(found):
    """Each crossing: its name, the rows beside it, and the other sizes."""
    return {(each.name, each.between, each.beside) for each in found.crossings}


def test_the_crossings_do_not_depend_on_what_is_swept_first():
    options = {"mesh": {"X": 4, "Y": 2}, "dims": {"F": 32768}, **BOOK}
    spans = ("B=8k..128k", "D=1k,16k")
    one, other = (shardc.sweep(PRODUCT, *order, **options) for order in (spans, spans[::-1]))
    assert points_of(one) == points_of(other)
    assert {(each.name, each.beside) for each in one.crossings} >= {("B", (("D", 1024),)), ("B", (("D", 16384),))}


@pytest.mark.parametrize("spans", [("B=8k..128k", "D=1k,16k"), ("D=16k,1k", "B=8k..128k"), ("B=1k", "D=1k,2k")])
def test_everywhere_is_every_row(spans):
    found = shardc.sweep(PRODUCT, *spans, mesh={"X": 4, "Y": 2}, dims={"F": 32768}, **BOOK)
    limits = {row.limited_by for row in found.rows if row.refused is None}
    assert ("everywhere" in str(found)) == (len(limits) == 1)


def test_where_legal_rows_lie_apart_each_limit_is_counted():
    """No two of them are beside each other: one is D=2 of X=2, the other D=3¹⁵ of X=3."""
    sizes = {"B": 6, "F": 6}
    found = shardc.sweep("A[B, D_X] · W[D_X, F] → C[B_X, F]", "X=2,3", f"D=2,{3**15}", dims=sizes, **BOOK)
    assert [row.limited_by for row in found.legal] == ["communication", "compute"] and not found.crossings
    assert "everywhere" not in str(found) and "1 row is limited by compute, 1 by communication" in str(found)


def test_a_sweep_says_what_it_is_of():
    words = ("plan", PRODUCT, "--sweep", "B=8k..16k", "--mesh", "X=4,Y=2", "--dims", "F=1024")
    table, fields = command(*words).stdout, json.loads(command(*words, "--json").stdout)
    assert table.startswith("mesh X=4, Y=2; chip v5p; bf16; F=1024, D=4096\nnote: no size given, so D=4096; ")
    assert fields["mesh"] == {"X": 4, "Y": 2} and fields["dims"] == {"D": 4096, "F": 1024}
    assert (fields["chip"], fields["dtype"]) == ("v5p", "bf16")
    assert len(fields["notes"]) == 1 and "D=4096" in fields["notes"][0]


def test_what_is_swept_is_not_among_what_stands():
    table = str(shardc.sweep(PRODUCT, "X*Y=4", dims={"B": 64, "D": 64, "F": 64}))
    assert table.startswith("chip v5p; bf16; B=64, D=64, F=64\n\n")


def test_a_size_that_is_chosen_for_each_row_is_said_for_each():
    """No size is given, and 4096 is no multiple of 3."""
    found = shardc.sweep("A[I_X, J] → A[I, J_X]", "X=2,3")
    assert str(found).startswith("chip v5p; bf16; I=4096 or 4098, J=4096 or 4098\n")


def test_a_dim_is_no_axis_to_split_devices_among():
    found = command("plan", PRODUCT, "--sweep", "X*B=8", "--mesh", "Y=2")
    assert found.returncode == 2 and "`X*B=8` splits devices, among axes only" in found.stderr


@pytest.mark.parametrize("spans", [("X*Y=16", "B=1k..64k"), ("B=1k..64k", "X*Y=16")])
def test_each_size_has_its_best_split(spans):
    """As the sweep of that size alone has it: X_opt goes with the root of the batch."""
    options = {"dims": {"D": 8192, "F": 32768}, "wraparound": {"X": "ring", "Y": "ring"}, **BOOK}
    found = shardc.sweep(BOTH, *spans, **options)
    table, fields = str(found), json.loads(found.to_json())
    assert found.best is None and found.optimum is None and len(found.splits) == len(fields["splits"]) == 7
    for split, told in zip(found.splits, fields["splits"], strict=True):
        ((dim, size),) = split.beside
        alone = shardc.sweep(BOTH, "X*Y=16", **{**options, "dims": {**options["dims"], dim: size}})
        best = dict(alone.best.sizes)
        assert dict(split.best.sizes) == {**best, dim: size} and split.optimum == alone.optimum
        assert told == {"beside": {dim: size}, "best": best, "optimum": alone.optimum}
        assert f"* least time at B={size:,}: X={best['X']}, Y={best['Y']}" in table
    assert table.count(" *  ") == 7


def test_what_a_loop_moves_is_among_the_moves():
    text = "for L { h[B_X, D] = relu(h[B_X, D] ·_D W[L, D, E_X]) ·_E V[L, E_X, D] }"
    found = shardc.sweep(text, "B=64..256", mesh={"X": 4}, dims={"L": 3, "D": 64, "E": 256}, chip="v5p")
    assert all(row.wire_bytes and "_X" in row.moves for row in found.rows)


@pytest.mark.parametrize("axis", ["X", "data"])
def test_an_axis_of_any_name_is_declared_by_its_sweep(axis):
    text = f"A[I_{axis}, J] · B[J, K] → C[I_{axis}, K]"
    found = shardc.sweep(text, f"{axis}=2..8", chip="v5p")  # where `dims` says I, `I_data` is no dim anyhow
    assert [dict(row.sizes) for row in found.rows] == [{axis: 2}, {axis: 4}, {axis: 8}]
    assert [row.flops * dict(row.sizes)[axis] for row in found.rows] == [2 * 4096**3] * 3


def test_a_dim_whose_name_ends_like_an_axis_is_not_split():
    """`d_model` stays a dim, where what is swept is a dim too."""
    found = shardc.sweep("A[d_model, J] → A[d_model, J_X]", "d_model=8,16", mesh={"X": 2}, dims={"J": 8})
    assert [dict(row.sizes) for row in found.rows] == [{"d_model": 8}, {"d_model": 16}]
