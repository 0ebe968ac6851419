"""The front of time against memory: no plan on it is as good as another in both, and each means the program."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc import cli, simulate
from shardc.cost import LinkModel, chip
from shardc.errors import ShardcError
from shardc.io.units import in_bytes, in_seconds
from shardc.ir.mesh import Mesh
from shardc.planner import Objective, pareto, plan_with_subaxes
from shardc.planner.program.pareto import MAX_POINTS
from shardc.report import FrontView, front_table
from shardc.testing import Case, assert_equal_on_every_device, assert_schedule_legal, matmuls, programs

OBJECTIVES = st.sampled_from(list(Objective))


def model_of(program):
    return LinkModel.of(program.mesh, chip("v5p"))


def parsed(case):
    return shardc.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="f32")


def measure(planned, objective):
    return round(planned.cost.time_s, 14) if objective is Objective.TIME else planned.cost.wire_bytes


def assert_simulates(schedule):
    wholes = simulate.sample_inputs(schedule.program)
    blocks, expected = simulate.run(schedule, wholes), simulate.reference(schedule.program, wholes)
    for block, number, whole in zip(blocks, schedule.outputs, expected, strict=True):
        # Both in f64, of values about 1; the checker refuses a bound beyond an eighth of their spread.
        assert_equal_on_every_device(block, whole, schedule.values[number], schedule.mesh, 1e-9)


@settings(max_examples=10, deadline=None)
@given(st.one_of(matmuls(max_axes=2), programs()), OBJECTIVES)
def test_each_plan_of_the_front_needs_less_memory_and_costs_more(case, objective):
    program = parsed(case)
    front = pareto(program, model_of(program), objective).points
    assert 1 <= len(front) <= MAX_POINTS
    for before, after in pairwise(front):
        assert after.cost.peak_bytes < before.cost.peak_bytes
        assert measure(after, objective) > measure(before, objective)
    for point in front:
        assert_schedule_legal(point.schedule)
        assert_simulates(point.schedule)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("text", "mesh"),
    [  # on X=8 the free plan brought 37.7 MB on a mesh of 4·2, and one under a limit 33.6 on 2·2·2
        ("A[I, J_X] · B[J_X, K] · C[K_X, L] → D[I_X, L]", {"X": 8}),
        ("A[I, J_X] · B[J_X, K] · C[K_X, L] → D[I_X, L]", {"X": 4}),
        ("T = A[I_X, J] · B[J_X, K]; D[I_X, L] = relu(T) · C[K_X, L]", {"X": 8}),
    ],
)
def test_no_memory_limit_makes_a_plan_bring_fewer_bytes(text, mesh):
    program = shardc.parse(text, mesh=mesh, dims=dict.fromkeys("IJKL", 4096), dtype="bf16")
    free = plan_with_subaxes(program, model_of(program), Objective.BYTES)
    points = pareto(program, model_of(program), Objective.BYTES).points
    assert all(free.cost.wire_bytes <= each.cost.wire_bytes for each in points)


@settings(max_examples=4, deadline=None)
@given(st.one_of(matmuls(max_axes=2), programs()), OBJECTIVES)
def test_the_front_begins_as_good_as_the_plan_without_a_limit_and_ends_where_nothing_fits(case, objective):
    check_ends(case, objective)


@pytest.mark.exhaustive
@settings(max_examples=12, deadline=None)
@given(st.one_of(matmuls(max_axes=2), programs()), OBJECTIVES)
def test_many_fronts_begin_and_end_so(case, objective):
    check_ends(case, objective)


def check_ends(case, objective):
    program = parsed(case)
    free = plan_with_subaxes(program, model_of(program), objective)
    found = pareto(program, model_of(program), objective)
    assert found.whole
    front = found.points
    assert measure(front[0], objective) <= measure(free, objective)
    assert front[0].schedule == free.schedule or front[0].cost.peak_bytes < free.cost.peak_bytes
    with pytest.raises(ShardcError, match="SHC410"):
        plan_with_subaxes(program, model_of(program), objective, front[-1].cost.peak_bytes - 1)


LONG = "A[I_Y, J_X] · B[J, K_YX] → C[I, K_Y]"


def in_bf16(text, mesh):
    program = shardc.parse(text, mesh=mesh, dims=dict.fromkeys("IJK", 4096), dtype="bf16")
    return program, model_of(program)


def test_a_front_has_the_fast_plan_and_the_lean_ones():
    front = pareto(*in_bf16(LONG, {"X": 4, "Y": 2})).points
    free = plan_with_subaxes(*in_bf16(LONG, {"X": 4, "Y": 2}))
    assert len(front) > 2
    assert front[0].schedule == free.schedule
    assert front[-1].cost.peak_bytes < 0.75 * free.cost.peak_bytes
    assert front[-1].cost.time_s > 1.2 * free.cost.time_s


def test_the_front_is_the_same_each_time():
    first, again = (pareto(*in_bf16(LONG, {"X": 4, "Y": 2})) for _ in range(2))
    assert [point.schedule for point in first.points] == [point.schedule for point in again.points]


def test_a_front_cut_off_says_so():
    whole = pareto(*in_bf16(LONG, {"X": 4, "Y": 2}))
    short = pareto(*in_bf16(LONG, {"X": 4, "Y": 2}), most=2)
    assert (whole.whole, short.whole) == (True, False)
    assert [point.schedule for point in short.points] == [point.schedule for point in whole.points[:2]]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "memory", "code"),
    [("A[I_X, J] → A[I_X, J]{U_Y}", None, "SHC220"), ("A[I_X, J] → A[I, J]", 1000, "SHC410")],
)
def test_what_cannot_be_planned_at_all_is_refused(text, memory, code):
    with pytest.raises(ShardcError, match=code):
        pareto(*in_bf16(text, {"X": 2, "Y": 2}), memory=memory)


# From here on as users have it: from Python, and on the command line.

PLANNED = st.one_of(matmuls(max_axes=2), programs())


def plan(case, **options):
    return shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype="f32", chip="v5p", **options)


def of(found, objective):
    return round(found.cost.time_s, 14) if objective == "time" else found.cost.wire_bytes


MESH = Mesh.of({"X": 3, "Y": 4})
DEARER = "T[I_X, K] = A[I_Y, J_X] · B[J, K_Y]\nOut[I_X, K_Y] = gelu(T)"  # 180 bytes, and 216 within its own peak
OTHER = "T[I_X, K] = A[I_Y, J] · B[J, K]\nOut[I_X, K_Y] = relu(T)"  # as good within its own peak, and another plan


@settings(max_examples=5, deadline=None)
@given(PLANNED, st.sampled_from(["time", "bytes"]))
@example(Case(DEARER, MESH, {"I": 36, "K": 4, "J": 9}), "bytes")
@example(Case(OTHER, MESH, {"I": 12, "K": 4, "J": 2}), "bytes")
def test_each_point_is_a_plan_and_its_peak_as_memory_gives_it_again(case, objective):
    front = plan(case, objective=objective).pareto()
    assert isinstance(front, shardc.Front) and front.whole
    for point in front:
        again = plan(case, objective=objective, memory=point.cost.peak_bytes)
        assert (of(again, objective), again.cost.peak_bytes) == (of(point, objective), point.cost.peak_bytes)
        assert "def program(" in point.source()
    assert [point.schedule for point in front[-1].pareto()] == [front[-1].schedule]


@settings(max_examples=5, deadline=None)
@given(PLANNED, st.sampled_from(["time", "bytes"]), st.floats(0.3, 1.2))
def test_under_a_limit_a_front_has_no_better_points_and_all_keep_it(case, objective, part):
    free = plan(case, objective=objective)
    limit = int(part * free.cost.peak_bytes)
    try:
        front = plan(case, objective=objective, memory=limit).pareto()
    except ShardcError as error:
        assert error.code == "SHC410"
        assert free.pareto()[-1].cost.peak_bytes > limit
        return
    assert all(point.cost.peak_bytes <= limit for point in front)
    assert all(of(point, objective) >= of(free.pareto()[0], objective) for point in front)
    kept = [point for point in free.pareto() if point.cost.peak_bytes <= limit]
    assert [point.schedule for point in front][-len(kept) :] == [point.schedule for point in kept]


def front_of(text=LONG, mesh="X=4,Y=2", **options):
    return shardc.plan(text, mesh=mesh, **options).pareto()


OPEN = {"text": "A[I_X, J] · B[J_?, K_?] → C[I, K_X]", "dims": "I=512,J=4096,K=4096"}


@pytest.mark.parametrize(
    ("objective", "options"), [("time", {}), ("bytes", OPEN), ("bytes", {"text": "A[I_X, J] → A[I, J]"})]
)
def test_the_table_has_a_row_for_each_plan_with_its_numbers(objective, options):
    front = front_of(objective=objective, **options)
    rows = re.split(r"^-+ .*\n", str(front), flags=re.MULTILINE)[1].split("\n\n")[0].splitlines()
    rows = [row for row in rows if not row.startswith(" ")]  # the rest of a long cell
    assert len(rows) == len(front)
    for row, point in zip(rows, front, strict=True):
        cost, first = point.cost, front[0].cost
        by = cost.time_s / first.time_s if objective == "time" else cost.wire_bytes / first.wire_bytes
        ratios = [f"{by:.2f}", in_bytes(cost.peak_bytes), f"{cost.peak_bytes / first.peak_bytes:.2f}"]
        cells = [in_seconds(cost.time_s), in_bytes(cost.wire_bytes), *ratios, str(cost.peak_bytes)]
        assert re.split(r"  +", row)[:6] == cells
        move = next(step for step in point.steps if step.axes)
        assert f"{move.op}_" in row and move.operands[0][0] in row
    assert f"× {objective}" in str(front) and "no leaner plan was found" in str(front)


def test_a_table_that_is_cut_off_says_how_to_go_on():
    plan = shardc.plan(LONG, mesh="X=4,Y=2")
    whole, front = plan.pareto(), plan.pareto(points=2)
    assert not front.whole
    (limit,) = re.findall(r"cut off here: there may be leaner plans, under --memory (\d+)$", str(front))
    rest = shardc.plan(LONG, mesh="X=4,Y=2", memory=int(limit)).pareto()
    assert [p.schedule for p in (*front, *rest)] == [p.schedule for p in whole]
    assert str(whole[1:][0]) == str(whole[1])


def test_an_input_left_open_is_shown_where_a_plan_takes_it_elsewhere():
    front = front_of(**OPEN)
    inputs = {point.inputs[1].sharding for point in front}
    assert len(inputs) > 1
    table = str(front)
    assert all(f"given {sharding}" in table for sharding in inputs)


def test_what_is_noted_of_any_plan_is_noted():
    views = [replace(point._view, notes=(f"of {n}", "of all")) for n, point in enumerate(front_of())]
    lines = front_table(FrontView(Objective.TIME, tuple(views), whole=True)).splitlines()
    notes = [line for line in lines if line.startswith("note: ")]
    assert notes == ["note: of 0", "note: of all", *(f"note: of {n}" for n in range(1, len(views)))]


@pytest.mark.instant
@pytest.mark.parametrize("points", [0, -1, 1.5, True, "4", None])
def test_a_front_of_no_points_is_refused(points):
    with pytest.raises(ShardcError, match="SHC001"):
        shardc.plan(LONG, mesh="X=4,Y=2").pareto(points)


@pytest.mark.parametrize(
    "text, size, mesh, topology",
    [
        ("A[I_X, J] · B[J, K_X] → C[I, K_X]", 8192, "X=4", "v5e:2x2"),  # a ring
        ("A[I, J_X] · B[J_X, K] → C[I, K_X]", 8192, "X=16", "v5e:4x4"),  # chunks
    ],
)
def test_the_front_of_what_is_done_as_one_begins_with_the_plan(text, size, mesh, topology):
    asked = {"mesh": mesh, "dims": dict.fromkeys("IJK", size), "dtype": "bf16", "topology": topology}
    free = shardc.plan(text, **asked)
    assert free.schedule.together
    front = free.pareto()
    assert front[0].cost.time_s <= free.cost.time_s
    for point in front:
        assert shardc.plan(text, memory=point.cost.peak_bytes, **asked).schedule == point.schedule
    assert shardc.plan(text, overlap="off", **asked).pareto()[0].schedule.together == ()


@pytest.fixture
def command(capsys, monkeypatch):
    monkeypatch.setattr("shardc.machines.progress.SILENCE", 3600)  # on a busy machine a line is said

    def call(*arguments):
        status = cli._status(["plan", LONG, "--mesh", "X=4,Y=2", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_the_command_prints_the_table(command):
    assert command("--pareto") == (0, f"{front_of()}\n", "")
    options = {"objective": "bytes", "topology": "v5e:2x4", "memory": "44MB"}
    spelled = [word for name, value in options.items() for word in (f"--{name}", value)]
    status, out, _ = command("--pareto", *spelled)
    assert (status, out) == (0, f"{front_of(**options)}\n") and out.startswith("mesh X=4, Y=2; chip v5e;")


def test_the_json_has_what_the_plans_have(command):
    status, out, _ = command("--pareto", "--json")
    found, front = json.loads(out), front_of()
    assert status == 0
    assert (found["version"], found["objective"], found["whole"]) == (1, "time", True)
    assert found["points"] == [json.loads(point.to_json(1)) for point in front]
    limited = json.loads(command("--json", "--memory", str(found["points"][2]["cost"]["peak_bytes"]))[1])
    assert limited["steps"] == found["points"][2]["steps"]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["--pareto", "--memory", "1kB"], 6, "SHC410"),
        (["--pareto", "--memory", "much"], 2, "SHC001"),
        (["--pareto", "--top", "3"], 2, "SHC001"),
        (["--pareto", "--dims", "I=7"], 4, "SHC204"),
    ],
)
def test_what_has_no_front_ends_with_its_status(command, arguments, status, code):
    found, out, err = command(*arguments, "--json")
    assert (found, out, json.loads(err)["error"]["code"]) == (status, "", code)
