"""`shardc compare` and `shardc explain` as a user has them: in a process of their own, and from Python."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import shardc

pytest.importorskip("libtpu")

pytestmark = pytest.mark.tpu

ROOT = Path(__file__).parents[2]
REPORTED = "A[B_Y, S, H_X] → A[B, S_XY, H]"  # users met a full rematerialization here
SIZES = ["--mesh", "X=2,Y=2", "--dims", "B=64,S=256,H=256"]


def run(*arguments, **more):
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TPU_")}  # set by other tests
    environment = {**ours, "PYTHONPATH": str(ROOT), **more}
    command = [sys.executable, "-m", "shardc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=300)


def test_compare_on_a_slice_finds_the_rematerialization_and_is_quiet():
    found = run("compare", REPORTED, *SIZES, "--topology", "v5p:2x2x1", "--json")
    assert found.returncode == 0 and found.stderr == "", found.stderr
    comparison = json.loads(found.stdout)["comparison"]
    assert comparison["theirs"]["wire_bytes"] > 3 * comparison["ours"]["wire_bytes"]
    assert any("full rematerialization" in warning for warning in comparison["warnings"])
    assert comparison["measured"] is None


QUIET = {"TPU_MIN_LOG_LEVEL": "3", "TPU_STDERR_LOG_LEVEL": "3"}


@pytest.mark.exhaustive
def test_a_quiet_environment_hides_no_warning_that_is_reported():
    """The user's log level is not the one at which the compiler's warnings are read; it hides XLA's from the user."""
    found = run("compare", REPORTED, *SIZES, "--topology", "v5p:2x2x1", "--json", **QUIET)
    assert found.returncode == 0 and found.stderr == "", found.stderr
    assert any("full rematerialization" in one for one in json.loads(found.stdout)["comparison"]["warnings"])
    found = run("explain", "examples.wasteful:block", "--topology", "v5p:2x2x1", **QUIET)
    assert "full rematerialization" in found.stdout and found.stderr == "", found.stderr


RESTORED = """
import os, shardc
plan = shardc.plan("A[B_Y, S, H_X] → A[B, S_XY, H]", mesh="X=2,Y=2", dims="B=64,S=256,H=256", topology="v5p:2x2x1")
warned = plan.compare().warnings
print(bool(warned), os.environ["TPU_MIN_LOG_LEVEL"], os.environ.get("TPU_STDERR_LOG_LEVEL"))
"""


@pytest.mark.exhaustive
def test_the_environment_is_afterwards_what_the_user_made_it():
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TPU_")}
    environment = {**ours, "PYTHONPATH": str(ROOT), "TPU_MIN_LOG_LEVEL": "2", "TPU_STDERR_LOG_LEVEL": "0"}
    found = subprocess.run(
        [sys.executable, "-c", RESTORED], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["True", "2", "0"], found.stdout + found.stderr


HEARD = """
import os, sys
import shardc
plan = shardc.plan("A[B_Y, S, H_X] → A[B, S_XY, H]", mesh="X=2,Y=2", dims="B=64,S=256,H=256", topology="v5p:2x2x1")
{before}
print(*plan.compare().warnings, sep="\\n")
"""
UNHEARD = "warnings may be missing"


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("plan.verify()", "full rematerialization"),
        pytest.param("plan.tune()", "full rematerialization", marks=pytest.mark.long),
        pytest.param("import jax; jax.devices()", UNHEARD, marks=pytest.mark.long),
    ],
)
def test_what_ran_before_in_the_process_takes_no_warning_away_in_silence(before, words):
    """The compiler reads its log level once: when whoever comes first loads it."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HEARD.format(before=before)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert words in found.stdout, found.stdout + found.stderr
    assert "full rematerialization" in found.stdout or UNHEARD in found.stdout
    assert "rematerialization" not in found.stderr


LATE = """
import jax, shardc
print(shardc.plan("A[I_X] → A[I]", mesh="X=1", dims="I=8").compare().warnings)
"""


@pytest.mark.parametrize("level", ["3", pytest.param("2", marks=pytest.mark.long)])
def test_xla_s_own_log_level_hides_no_warning_on_the_cpu(level):
    found = run("compare", REPORTED, *SIZES, "--rounds", "1", "--json", TF_CPP_MIN_LOG_LEVEL=level)
    assert found.returncode == 0 and found.stderr == "", found.stderr
    assert any("full rematerialization" in one for one in json.loads(found.stdout)["comparison"]["warnings"])
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": level}
    done = subprocess.run([sys.executable, "-c", LATE], env=environment, capture_output=True, text=True, check=True)
    assert UNHEARD in done.stdout, done.stdout


def test_compare_on_simulated_devices_is_timed():
    found = run("compare", REPORTED, *SIZES, "--rounds", "3")
    assert found.returncode == 0, found.stderr
    assert "measured, 3 rounds" in found.stdout and "full rematerialization" in found.stdout


@pytest.mark.exhaustive
def test_both_sides_of_a_plan_with_an_axis_cut_are_seen_on_their_own_mesh():
    """`--map` lays X row by row, where the plan cuts it; `jax.jit` gets X whole, and its permutes are over X."""
    found = run(
        *["compare", "A[I, J_X] · B[J_X, K] → C[I_X, K]", "--mesh", "X=16", "--dims", "I=4096,J=4096,K=4096"],
        *["--topology", "v5e:4x4", "--map", "X=0+1", "--json"],
    )
    assert found.returncode == 0, found.stderr
    fields = json.loads(found.stdout)
    axes = {
        side: {axis for c in fields["comparison"][side]["collectives"] for axis in c["axes"] or ()} for side in SIDES
    }
    assert fields["plan"]["split"] and axes["ours"] == set(fields["plan"]["split"]["X"]) and axes["theirs"] == {"X"}


SIDES = ("ours", "theirs")


def test_unreduced_arrays_cannot_be_given_to_jit():
    found = run("compare", "G[D, F]{U_X} → G[D_X, F]", "--mesh", "X=4", "--dims", "D=64,F=64")
    assert found.returncode == 4 and "SHC212" in found.stderr and "Traceback" not in found.stderr


def test_explain_an_example_for_a_slice():
    found = run("explain", "examples.wasteful:block", "--topology", "v5p:2x2x1", "--json")
    assert found.returncode == 0 and found.stderr == "", found.stderr
    findings = json.loads(found.stdout)["findings"]
    assert findings and "wasteful.py" in json.dumps(findings)


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (["examples.wasteful"], "SHC001", 2),
        (["no_such_module:f"], "SHC507", 7),
        (["examples.wasteful:blok"], "SHC507", 7),
        (["examples.wasteful:block", "--topology", "v5p:2x2x2"], "SHC224", 4),
    ],
)
def test_what_cannot_be_explained_is_refused(arguments, code, status):
    found = run("explain", *arguments)
    assert found.returncode == status and code in found.stderr and "Traceback" not in found.stderr


@pytest.mark.exhaustive
def test_explain_from_python_for_a_slice():
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from wasteful import block
    finally:
        sys.path.pop(0)
    jitted, *args = block()
    found = shardc.explain(jitted, *args, topology="v5p:2x2x1")
    assert "full rematerialization" in str(found) and found.findings


def test_a_shard_map_that_names_its_mesh_is_told_to_leave_it_out():
    """It was told to call the function, which raises nothing."""
    mesh = jax.make_mesh((4,), ("X",), axis_types=(jax.sharding.AxisType.Explicit,))
    sizes = jax.ShapeDtypeStruct((64, 128), jnp.float32, sharding=jax.NamedSharding(mesh, jax.P("X")))
    specs = {"in_specs": jax.P("X"), "out_specs": jax.P()}

    def mean(x):
        return jax.lax.pmean(x, "X")

    with pytest.raises(shardc.ShardcError, match="cannot be traced") as refused:
        shardc.explain(jax.jit(jax.shard_map(mean, mesh=mesh, **specs)), sizes, topology="v5p:2x2x1")
    assert refused.value.code == "SHC308" and "leave out `mesh=`" in refused.value.help
    with jax.set_mesh(mesh):
        assert shardc.explain(jax.jit(jax.shard_map(mean, **specs)), sizes, topology="v5p:2x2x1")


def test_the_times_of_a_verified_step_make_the_whole():
    """Of 161 us 41 had no line: the weight is brought to the chip first."""
    text = "l[B_X, V_Y] = h[B_X, D] · W[D, V_Y]; z = logsumexp_V(l)"
    sizes = ["--mesh", "X=4,Y=2", "--dims", "B=2048,D=1024,V=32768", "--topology", "v5e:4x2"]
    told = json.loads(run("verify", text, *sizes, "--json").stdout)["verification"]["time"]["compiled"]
    assert told["waiting_s"] > 0.2 * told["step_s"]
    assert told["compute_s"] + told["exposed_s"] + told["waiting_s"] == pytest.approx(told["step_s"])
    assert "waiting for memory" in run("verify", text, *sizes).stdout
    assert (
        "waiting"
        not in run("verify", "A[I_X, J] → A[I, J]", *SIZES, "--dims", "I=4096,J=4096", "--topology", "v5p:2x2x1").stdout
    )
