"""Plans on simulated devices: equal to NumPy on every shard, integers bitwise; and the lowered program's bytes."""

import ast
import json
import random
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc import simulate
from shardc.compiled.hlo.stablehlo import collectives
from shardc.emit.call.placing import from_blocks, make_mesh, spec_of
from shardc.ir.collectives import DirectExchange
from shardc.ir.sharding import Sharding, spell
from shardc.machines.run import report_of
from shardc.machines.run import run as simulated
from shardc.rules.placements import placements
from shardc.testing import assert_equal_on_every_device

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from traced import called_otherwise

pytestmark = pytest.mark.devices

RANDOM = random.Random(20)
TWO = {"X": 2, "Y": 4}
THREE = {"X": 2, "Y": 2, "Z": 2}


def shardings(axes, rank):
    return [Sharding(dims) for dims in placements(tuple(axes), rank)]


def matmul(a, b, c, names=("IJ", "JK", "IK")):
    (x, y, z) = (spell(dims, sharding) for dims, sharding in zip(names, (a, b, c), strict=True))
    return f"A{x} · B{y} → C{z}"


def drawn(axes, names, count):
    """Random shardings for the operands and the result of one product."""
    options = {rank: shardings(axes, rank) for rank in {len(dims) for dims in names}}
    return [matmul(*(RANDOM.choice(options[len(dims)]) for dims in names), names) for _ in range(count)]


SIZES = dict(zip("BHIJKLST", (8, 16, 24, 32, 40, 48, 56, 64), strict=True))
TRIPLES = [(TWO, text) for text in drawn("XY", ("IJ", "JK", "IK"), 120)]
THREE_AXES = [(THREE, text) for text in drawn("XYZ", ("IJ", "JK", "IK"), 40)]
TRANSPOSED = [(THREE, text) for text in drawn("XYZ", ("JI", "JK", "KI"), 15)]
RANK_3 = [(TWO, text) for text in drawn("XY", ("BIJ", "BJK", "BIK"), 20)]
RANK_4 = [(THREE, text) for text in drawn("XYZ", ("BHST", "BHTK", "BHSK"), 20)]
MIXED = [(THREE, text) for text in drawn("XYZ", ("BIJ", "JK", "BIK"), 15)]
PERMUTED = [
    ({"X": 2, "Y": 4}, "A[I_XY, J] → A[I_YX, J]"),
    (THREE, "A[I_XY, J_Z] → A[I_ZX, J_Y]"),
    (THREE, "A[I_X, J_Y] → A[I_Z, J_X]"),
    ({"X": 2, "Y": 4}, "A[I_X, J_Y] → A[I_Y, J_X]"),
    (THREE, "A[I_XYZ, J] → A[I_ZXY, J]"),
]
EXCHANGED = [
    (TWO, "A[I_X, J_Y] → A[I_YX, J]"),  # in two rounds
    (TWO, "A[I, J_YX] → A[I_XY, J]"),  # one AllToAll over both axes
    (TWO, "A[I_XY, J] → A[I, J_X]"),  # in digits
    (TWO, "A[I_X, J] → A[I, J_XY]"),
    (TWO, "A[I_Y, J] → A[I_X, J]"),
    (THREE, "A[I_X, J_YZ] → A[I_YZX, J]"),  # in four rounds
    (THREE, "A[I_XYZ, J] → A[I, J_ZX]"),
    (THREE, "A[B_X, I_Y, J_Z] → A[B_Y, I, J_XZ]"),
    (THREE, "A[B_XY, I_Z, J] → A[B, I_Y, J_X]"),
    (THREE, "A[B_XYZ, I, J] → A[B, I_Y, J_X]"),  # dims in digits, pieces to two dims
    (TWO, "A[I, J_Y]{U_X} → A[I_YX, J]"),  # sums scattered below Y's digit, before Y moves
    (TWO, "A[I, J_X] · B[J_X, K_Y] → C[I_YX, K]"),
    ({"X": 8}, "A[I_X, J] → A[I, J_X]"),
    ({"X": 4, "Y": 2}, "A[I_X, J_Y] → A[I_Y, J_X]"),  # a part of an axis
    ({"X": 2, "Y": 3}, "A[I_XY, L] → A[I_Y, L_X]"),
]
RANDOM_RESHARDS = [
    (mesh, "A{} → A{}".format(*(spell(dims, RANDOM.choice(shardings(mesh, len(dims)))) for _ in range(2))))
    for mesh, dims, count in (
        ({"X": 4, "Y": 2}, "IJ", 15),
        ({"X": 2, "Y": 3}, "IL", 15),
        (THREE, "IJ", 20),
        (THREE, "BIJ", 20),
    )
    for _ in range(count)
]
UNREDUCED = [
    (TWO, "A[I, J]{U_X} · B[J, K] → C[I, K]{U_X}"),
    (TWO, "A[I, J]{U_X} · B[J, K_Y] → C[I, K_Y]"),
    (TWO, "A[I_Y, J]{U_X} · B[J, K] → C[I, K]"),
    (TWO, "A[I, J_Y]{U_X} · B[J_Y, K] → C[I, K]{U_XY}"),
    (TWO, "A[I, J_Y]{U_X} · B[J_Y, K] → C[I, K]"),
    (TWO, "A[I, J] · B[J_Y, K]{U_X} → C[I_Y, K_X]"),
    (TWO, "A[I, J]{U_XY} → A[I_X, J_Y]"),
    (THREE, "A[I, J_XYZ] · B[J_XYZ, K] → C[I_Z, K_YX]"),  # scattered over both dims at once
    (THREE, "A[B, I_Y, J]{U_XZ} → A[B_Z, I_Y, J_X]"),
    (TWO, "A[I, J]{U_XY} → A[I, J]{U_Y}"),
    (TWO, "A[I_Y, J]{U_X} → A[I, J_Y]{U_X}"),
    (TWO, "A[I, J]{U_X} → A[I_Y, J]{U_X}"),
    (TWO, "A[I, J]{U_X} → A[I, J]"),
    (TWO, "A[I_X, J_Y] · B[J_Y, K] → C[I_X, K]{U_Y}"),
    (THREE, "A[I, J_X] · B[J_X, K_Y] → C[I_Z, K_Y]{U_X}"),
    (TWO, "C[I, J]{U_X} = A[I, J]{U_X} + B[I, J]{U_X}"),
    (TWO, "C[I, J]{U_X} = A[I, J]{U_X} - B[I, J]{U_X}"),
    (TWO, "C[I, J_Y]{U_X} = -A[I, J_Y]{U_X}"),
    (TWO, "T[I, J]{U_X} = B[I, K_X] · D[K_X, J]\nC[I, J]{U_X} = A[I, J]{U_X} + T"),
    (TWO, "C[J]{U_X} = sum_I(A[I, J]{U_X})"),
]
EVERY = [
    *TRIPLES,
    *THREE_AXES,
    *TRANSPOSED,
    *RANK_3,
    *RANK_4,
    *MIXED,
    *PERMUTED,
    *EXCHANGED,
    *RANDOM_RESHARDS,
    *UNREDUCED,
]


def arguments(plan, wholes, mesh, seed=0):
    """Placed arrays; unreduced ones as partial sums that differ from device to device."""
    placed = []
    for whole, number in zip(wholes, plan.schedule.inputs, strict=True):
        array = plan.schedule.given(number)
        blocks = simulate.scatter(whole, array, plan.schedule.given_mesh, seed).astype(array.dtype.jax)
        flat = blocks.reshape(-1, *blocks.shape[len(plan.mesh) :])
        placed.append(from_blocks(list(flat), array, mesh, jax.NamedSharding(mesh, spec_of(array.sharding))))
    return placed


def executed(text, mesh, dtype="int32", objective="time"):
    plan = shardc.plan(text, mesh=mesh, dims=SIZES, dtype=dtype, objective=objective)
    wholes = simulate.sample_inputs(plan.program, seed=3)
    devices = make_mesh(plan.schedule.given_mesh)
    program = plan.compile(devices)
    placed = arguments(plan, wholes, devices)
    results = program(*placed)
    results = results if isinstance(results, tuple) else (results,)
    jax.block_until_ready(results)
    return plan, program, placed, report_of(plan.schedule, wholes, results)


def foreseen(schedule):
    """(kind, wire bytes, axes) of each collective, in order; an exchange in rounds is as many."""
    found = []
    for step in schedule.steps:
        if step.is_collective and step.name != "Slice":
            rounds = step.op.rounds if isinstance(step.op, DirectExchange) else 1
            found += [(step.name, step.cost.wire_bytes // rounds, set(step.op.axes))] * rounds
    return found


QUICKLY = 3  # one case in so many is tried unasked, by time and by bytes in turn
TRIED = [
    pytest.param(n, *case, marks=pytest.mark.exhaustive if n % QUICKLY else (), id=f"{n}-{case[0]}-{case[1]}")
    for n, case in enumerate(EVERY)
]


@pytest.mark.parametrize(("place", "mesh", "text"), TRIED)
def test_a_program_equals_numpy_on_every_shard_and_moves_the_bytes_foreseen(place, mesh, text):
    plan, program, placed, report = executed(text, mesh, objective=("time", "bytes")[place % 2])
    assert report.ok, report
    assert all(output.bound == 0 for output in report.outputs), "integers are compared bitwise"
    assert all(output.shards == plan.schedule.mesh.devices for output in report.outputs)
    lowered = collectives(program.lower(*placed), plan.schedule.mesh)
    assert sum(c.total_bytes for c in lowered) == plan.cost.wire_bytes
    for found, (kind, wire, axes) in zip(lowered, foreseen(plan.schedule), strict=True):
        assert (found.kind, found.wire_bytes) == (kind, wire)
        assert set(found.axes) == axes or (kind == "CollectivePermute" and set(found.axes) < axes)  # some may stay


def test_blocks_of_one_row_are_exchanged_with_nobody():
    """Over an axis of one device, which the lowered program does not name."""
    *_, report = executed("A[B_X, I, J_Y] → A[B_X, I_Y, J]", {"X": 8, "Y": 1})
    assert report.ok, report


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_floats_are_within_the_derived_bound(dtype):
    for mesh, text in [*TRIPLES[:4], *RANK_4[:3]]:
        report = executed(text, mesh, dtype)[-1]
        assert report.ok, report


def test_a_dropped_sum_is_seen(monkeypatch):
    """The comparison itself must fail on a known bad program."""
    plan = shardc.plan("A[I, J_X] · B[J_X, K] → C[I, K]", mesh=TWO, dims=SIZES, dtype="bf16", objective="bytes")
    wholes = simulate.sample_inputs(plan.program)
    half = [whole.copy() for whole in wholes]
    half[0][:, : half[0].shape[1] // 2] = 0
    devices = make_mesh(plan.schedule.given_mesh)
    result = plan.compile(devices)(*arguments(plan, half, devices))
    assert not report_of(plan.schedule, wholes, [result]).ok


def test_a_result_of_another_shape_or_type_is_seen():
    plan = shardc.plan("A[I_X, J] → A[I, J]", mesh=TWO, dims=SIZES, dtype="f32")
    wholes = simulate.sample_inputs(plan.program)
    for wrong in (wholes[0][:, :8].astype(np.float32), wholes[0].astype(np.int32)):
        report = report_of(plan.schedule, wholes, [jnp.asarray(wrong)])
        assert not report.ok
        assert "NOT EQUAL" in str(report)


def test_a_value_needed_right_after_its_name_could_be_taken_again():
    """`A` is gathered twice from the same argument, and both results and the argument are used."""
    text = "B[I, J] = A[I_X, J_Y] + A; D[I_X, J_Y] = B + A; E[I, J_Y] = A"
    *_, report = executed(text, TWO)
    assert report.ok


@pytest.mark.parametrize("text", ["B[I, J] = A[I_X, J]; C[I, J] = A; D[I, J] = B", "B[J] = A[J_X]; C[J] = A[J]"])
def test_results_that_are_one_value_are_told_apart_by_name(text):
    """One gather serves all; each output is reported under its own name."""
    plan = shardc.plan(text, mesh=TWO, dims={"I": 16, "J": 16}, dtype="int32")
    assert len(set(plan.schedule.outputs)) == 1
    wholes = simulate.sample_inputs(plan.program)
    results = plan.compile()(*(whole.astype(np.int32) for whole in wholes))
    told = [output.sharding for output in report_of(plan.schedule, wholes, results).outputs]
    assert told == [array.sharding for array in plan.outputs]
    assert told == [str(array) for array in plan.schedule.results]
    assert [name.split("[")[0] for name in told] == [plan.program.results[at].name for at in plan.program.outputs]


def test_partial_sums_of_eight_bit_floats_add_up_wider():
    plan = shardc.plan("C[J] = sum_I(A[I_X, J])", mesh=TWO, dims=SIZES, dtype="f8_e4m3fn")
    assert "A.astype(jnp.float32)" in plan.source()
    result = plan.compile()(np.ones((24, 32), jnp.float8_e4m3fn))
    np.testing.assert_array_equal(np.asarray(result).astype(float), 24)


def test_two_unreduced_arguments_are_multiplied_after_one_is_reduced():
    plan, *_, report = executed("A[I, J]{U_X} · B[J, K]{U_Y} → C[I, K]", TWO)
    assert report.ok
    assert plan.cost.wire_bytes > 0


@pytest.mark.filterwarnings("error")
def test_a_number_that_is_infinite_in_its_type_is_no_warning_of_numpy():
    found = simulated(shardc.plan("C[I_X] = A[I_X] / 1e30", mesh="X=2", dtype="f16").schedule)
    assert "NOT CHECKABLE" in str(found)


def test_a_run_that_differs_ends_with_1(monkeypatch, capsys):
    from shardc import cli
    from shardc.machines import run

    monkeypatch.setattr(run.simulate, "reference", lambda program, wholes: [wholes[0] @ wholes[1] + 1])
    assert cli._status(["run", str(Path(__file__).parents[2] / "examples" / "matmul.shard")]) == 1
    assert "NOT EQUAL" in capsys.readouterr().out


def test_a_block_that_worst_case_bounds_say_nothing_of_is_checked_and_its_json_finite(capsys):
    """Softmax between products in bf16: what was allowed there was infinite, and so printed."""
    from shardc import cli

    path = str(Path(__file__).parents[2] / "examples" / "attention.shard")
    assert cli._status(["run", path, "--dtype", "bf16", "--json"]) == 0
    fields = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    (output,) = fields["run"]["outputs"]
    assert output["verdict"] == "equal" and 8 * output["rms_bound"] <= output["spread"]


@pytest.mark.parametrize("text", ["C[I_X] = 1 / A[I_X]", "C[I_X, J] = sin(A[I_X, J] ⊙ 1000)", "C[I_X] = log(A[I_X])"])
def test_the_largest_error_of_small_shards_is_the_largest(text):
    """They are taken together: no root of a mean square is above it."""
    plan = shardc.plan(text, mesh="X=2", dims="I=4" + ",J=2" * ("J" in text), dtype="bf16")
    (output,) = simulated(plan.schedule).outputs
    assert output.ok and 0 < output.rms_error <= output.max_error


def test_what_is_not_checkable_ends_with_6_and_its_reason(capsys):
    from shardc import cli

    text = "C[I_X] = sum_J(softmax_J(A[I_X, J]))"
    assert cli._status(["run", text, "--mesh", "X=2", "--dims", "I=64,J=64", "--dtype", "bf16"]) == 6
    assert "NOT CHECKABLE: values lie apart by less than 8 times" in capsys.readouterr().out


def test_small_integers_sum_in_int32():
    plan = shardc.plan("C: int32[I, K] = A: int8[I, J_X] · B: int8[J_X, K]", mesh=TWO, dims=SIZES)
    assert "preferred_element_type=jnp.int32" in plan.source()
    a, b = np.full((24, 32), 100, np.int8), np.full((32, 40), 100, np.int8)
    np.testing.assert_array_equal(plan.compile()(a, b), a.astype(np.int64) @ b.astype(np.int64))


LARGE = "square(square(square(square(square(A[I, J_X])))))"  # up to 3^32


@pytest.mark.parametrize("dtype", ["int32", "int16", "int8"])
@pytest.mark.parametrize(
    "text",
    [
        f"C[I_Y, J] = {LARGE}; D: int32[J_X] = sum_I(C)",
        f"C[I, J_X] = {LARGE} > 0",
        f"C: int32[I, K]{{U_X}} = {LARGE} · B[J_X, K_Y]; D: int32[I, K_X] = C",
        "for L { x[I, J_X] = square(x[I, J_X]) + x }",
    ],
)
def test_whole_numbers_that_their_type_has_no_room_for_go_on_from_its_other_end(text, dtype):
    """What NumPy has in 64 bits is none of what devices hold; such programs were said to differ."""
    plan, _, _, report = executed(text, TWO, dtype)
    assert report.verdict.value == "equal", str(report)
    wholes = simulate.sample_inputs(plan.program, seed=3)
    wanted, found = simulate.reference(plan.program, wholes), simulate.run(plan.schedule, wholes)
    for blocks, whole, number in zip(found, wanted, plan.schedule.outputs, strict=True):
        assert_equal_on_every_device(blocks, whole, plan.schedule.values[number], plan.schedule.mesh)


def test_narrow_floats_sum_in_f32():
    plan = shardc.plan("A[I, J] · B[J, K] → C[I, K]", mesh=TWO, dims=SIZES | {"J": 4096}, dtype="bf16")
    assert "preferred_element_type=jnp.float32" in plan.source()


FUNCTIONS = [
    "C[I] = sum_J(A[I_X, J_Y])",
    "T[I_X, J] = A[I_?, J_?] + A",
    "C[I_X, J] = A[I_?, J_?] ⊙ relu(A)",
    "B[J, I_X] = A[I_X, J]; C[I_X, J] = A + A",
    "A[I, J_X] = A[I_X, J]; C[I_X] = sum_J(A[I_X, J])",
    "B[I_X, J] = gelu(A[I_X, J_Y])",
    "B[I_X, J_Y] = softmax_J(A[I_X, J_Y])",
    "B[I_X] = max_J(A[I_X, J_Y])",
    "B[I_X] = sum_J(A[I_X, J_Y])",
    "B[I_X, J] = A[I_X, J] ⊙ D[J_Y]",
    "B[I_X, J] = relu(A[I_X, J]) + D[J_Y]",
    "B[J, I_X] = A[I_X, J_Y]",
    "B[I_X, J_Y] = silu(A[I_X, K] · D[K, J_Y]) ⊙ (A ·_K E[K, J_Y])",
    "T[I_X, K] = exp(A[I_X, J_Y] · D[J_Y, K]); B[I, K_X] = -T",
    "B[I_?, J_?] = square(A[I_X, J_Y])",
]


@pytest.mark.parametrize("text", FUNCTIONS)
def test_functions_on_every_shard(text):
    report = executed(text, TWO, "f32")[-1]
    assert report.ok, report


def emitted(plan, tmp_path):
    path = tmp_path / "emitted.py"
    path.write_text(plan.source(), encoding="utf-8")
    return path


@pytest.mark.parametrize("mesh, text", [EVERY[n] for n in range(0, len(EVERY), 17)] + [(TWO, t) for t in FUNCTIONS[:8]])
def test_the_emitted_file_and_the_callable_are_one(mesh, text):
    dtype = "f32" if (mesh, text) not in EVERY else "int32"
    plan = shardc.plan(text, mesh=mesh, dims=SIZES, dtype=dtype)
    assert not called_otherwise(plan.schedule, plan.source(), make_mesh(plan.schedule.given_mesh))


# Calls that are split in the middle of a chain, and loops.
LONG = (
    "ActivationsOfLayer[I, J] · Weights[J, K_Y] → C[I, K_Y]",
    "ActivationsOfTheLayer[I_X, J_Y] → ActivationsOfTheLayer[I_YX, J]",
    "ActivationsOfTheLayer[I_X, J_Y] → ActivationsOfTheLayer[I, J]",
)


def test_emitted_files_are_formatted_and_import_with_no_device(tmp_path):
    for place, (mesh, text) in enumerate([*EVERY[::7], *UNREDUCED, *((TWO, text) for text in FUNCTIONS)]):
        sizes = SIZES | {"J": 4096}
        plan = (
            shardc.plan(text, mesh=mesh, dims=sizes, dtype="int32" if "gelu" not in text else "bf16")
            if ("softmax" not in text and "silu" not in text and "exp" not in text)
            else shardc.plan(text, mesh=mesh, dims=sizes, dtype="bf16")
        )
        (tmp_path / f"emitted_{place}.py").write_text(plan.source(), encoding="utf-8")
        ast.parse(plan.source())
    for place, text in enumerate(LONG):
        plan = shardc.plan(text, mesh=TWO, dims=SIZES | {"J": 4096}, dtype="bf16", objective="bytes")
        (tmp_path / f"long_{place}.py").write_text(plan.source(), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", "--check", "--diff", str(tmp_path)]
    result = subprocess.run(ruff, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[:3000]
    check = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import emitted_0; import jax._src.xla_bridge as b; "
    check += "assert not b.backends_are_initialized()"
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning", "-c", check], check=True)


def test_permuting_the_devices_of_the_mesh_changes_nothing():
    plan = shardc.plan("A[I_X, J_Y] · B[J_Y, K] → C[I, K_X]", mesh=TWO, dims=SIZES, dtype="int32")
    wholes = simulate.sample_inputs(plan.program)
    devices = jax.sharding.Mesh(
        np.array(jax.devices())[::-1].reshape(2, 4), ("X", "Y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2
    )
    np.testing.assert_array_equal(plan.compile(devices)(*(w.astype(np.int32) for w in wholes)), wholes[0] @ wholes[1])


def test_devices_that_somebody_has_asked_for_are_there_after_a_run_on_fewer():
    """As of a test of two devices before one of eight."""
    check = """
import jax
jax.config.update("jax_num_cpu_devices", 8)
import shardc
from shardc.machines.run import run
assert run(shardc.plan("A[I_X] → A[I]", mesh="X=2", dims="I=8").schedule).ok
assert len(jax.devices()) == 8
assert run(shardc.plan("A[I_X] → A[I]", mesh="X=8", dims="I=8").schedule).ok
"""
    subprocess.run([sys.executable, "-c", check], check=True)
