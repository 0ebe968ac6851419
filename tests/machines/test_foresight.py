"""What a run takes, as foreseen and as measured in a process of its own; what is too much is refused."""

import json
import math
import re
import subprocess
import sys
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc import cli
from shardc.machines import foresight
from shardc.machines.foresight import Rates, check_room, foresee
from shardc.machines.progress import Progress

pytestmark = pytest.mark.devices

MESH = {"X": 2, "Y": 4}
MATMUL = "A[I_X, J_Y] · B[J_Y, K] → C[I_X, K_Y]"
MLP = "Hs = gelu(x[B_X, D_Y] ·_D Win[D_X, F_Y]); Out[B_X, D_Y] = Hs ·_F Wout[F_Y, D_X]"
SMALL = [(MATMUL, "bf16", "I=1024,J=1024,K=1024")]
LARGER = [
    pytest.param(MATMUL, "f32", "I=2048,J=2048,K=2048", marks=pytest.mark.long),
    pytest.param(MATMUL, "int32", "I=2048,J=2048,K=2048", marks=pytest.mark.long),
    pytest.param(MLP, "bf16", "B=1024,D=1024,F=4096", marks=pytest.mark.long),
    ("A[I, J]{U_X} → A[I, J_X]", "f32", "I=2048,J=2048"),
]
# Within a factor of 2, and 4: the machine does other things meanwhile.
MEMORY, TIME = 2.0, 4.0

CHILD = """
import json, sys, time
import shardc
from shardc.machines.foresight import foresee
from shardc.machines.run import run
text, dtype, dims = sys.argv[1:]
schedule = shardc.plan(text, mesh={"X": 2, "Y": 4}, dims=dims, dtype=dtype).schedule
foreseen = foresee(schedule)
begun = time.perf_counter()
assert run(schedule).ok
seconds = time.perf_counter() - begun
status = open("/proc/self/status").read()  # what getrusage says of a child may be its parent's
peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
print(json.dumps([foreseen.memory_bytes / peak, foreseen.seconds / seconds]))
"""


TRIES = 4  # of which one is as foreseen: the others may have shared the machine with other tests


def assert_foreseen(text, dtype, dims):
    found = []
    for _ in range(TRIES):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, text, dtype, dims], capture_output=True, text=True, check=True
        )
        memory, seconds = json.loads(done.stdout)
        assert 1 / MEMORY <= memory <= MEMORY, memory
        found.append(seconds)
        if 1 / TIME <= seconds <= TIME:
            return
    raise AssertionError(found)


@pytest.mark.parametrize(("text", "dtype", "dims"), SMALL)
def test_memory_and_time_are_as_foreseen(text, dtype, dims):
    assert_foreseen(text, dtype, dims)


@pytest.mark.long
@pytest.mark.parametrize(("text", "dtype", "dims"), LARGER)
def test_memory_and_time_of_larger_programs_are_as_foreseen(text, dtype, dims):
    assert_foreseen(text, dtype, dims)


def test_what_is_foreseen_grows_with_what_is_done():
    found = [
        foresee(shardc.plan(MATMUL, mesh=MESH, dims={"I": n, "J": n, "K": n}, dtype="f32").schedule, Rates())
        for n in (64, 512, 4096)
    ]
    assert [f.memory_bytes for f in found] == sorted({f.memory_bytes for f in found})
    assert [f.seconds for f in found] == sorted({f.seconds for f in found})
    assert found[2].memory_bytes > 8 * 3 * 4096**2, "the arguments alone, in NumPy"


def refused(capsys, *options):
    begun = time.perf_counter()
    status = cli._status(["run", MATMUL, "--mesh", "X=2,Y=4", *options])
    assert time.perf_counter() - begun < 20, "and nothing was begun"
    return status, capsys.readouterr().err


def test_a_run_that_does_not_fit_is_refused(capsys):
    status, text = refused(capsys, "--dims", "I=131072,J=131072,K=131072")
    assert status == 6 and "error[SHC411]: the run would take" in text and "GB are free" in text
    assert re.search(r"give smaller --dims \(I=\d+,J=\d+,K=\d+, say\), or a smaller mesh", text)


def test_a_run_that_takes_too_long_is_refused_and_says_how_to_allow_it(capsys, monkeypatch):
    monkeypatch.setattr(foresight, "free_memory", lambda: None)
    status, text = refused(capsys, "--dims", "I=16384,J=16384,K=16384", "--seconds", "3")
    assert status == 6 and "at most 3 s are spent" in text and "--seconds " in text


def test_what_takes_long_is_said_and_what_is_quick_is_not():
    said = []
    with Progress(said.append, silence=0.2) as now:
        now("quick")
        now("slow")
        time.sleep(0.5)
        now("after")
        time.sleep(0.05)
    assert said in (["slow"], ["slow", "after"])
    with Progress(said.append, silence=0.2) as now:
        now("quick again")
    time.sleep(0.3)
    assert "quick again" not in said


# What is said to do instead


LAWFUL = [
    (MATMUL, MESH, "bf16"),
    ("A[I, J_X] · B[J_X, K] → C[I, K]", {"X": 4}, "f32"),
    ("A[I, J_X] · B[J_X, K] → C[I, K]", {"X": 3, "Y": 5}, "int32"),
    (MLP, MESH, "bf16"),
    ("C[I_X, J] = softmax_J(A[I_X, J])", {"X": 8}, "f32"),
    ("for L { h[I_X, J] = relu(x[I_X, K] · W[L, K, J]); x = h[I_X, J] · V[L, J, K] }", {"X": 4}, "f32"),
]


def advised(error):
    """The sizes that a refusal names, as they are given to --dims, and the seconds, if it names them."""
    sizes, seconds = re.search(r"--dims \(([^)]*), say\)", error.help), re.search(r"--seconds (\d+)", error.help)
    return sizes and sizes[1], seconds and int(seconds[1])


@settings(max_examples=80)
@given(st.sampled_from(LAWFUL), st.integers(6, 17), st.integers(0, 5), st.integers(1, 600), st.floats(0.5, 50))
@example(LAWFUL[1], 16, 0, 600, 24.0)  # 65536³ on four devices: one dim after another was refused
@example(LAWFUL[1], 12, 0, 5, 24.0)
def test_smaller_sizes_that_a_refusal_names_are_not_refused_again(drawn, power, odd, most, gigabytes):
    text, mesh, dtype = drawn
    unit, room = 8 * math.prod(mesh.values()), int(gigabytes * 1e9)
    dims = {dim: max(unit, (2**power + odd * place) // unit * unit) for place, dim in enumerate("IJKBDF")}
    dims = {dim: size for dim, size in dims.items() if re.search(rf"\b{dim}\b|\b{dim}_", text)} | {"L": 2}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(foresight, "free_memory", lambda: room)
        patched.setattr(foresight.Rates, "measured", foresight.Rates)  # which other work changes more than twice

        def refusal(sizes, seconds):
            plan = shardc.plan(text, mesh=mesh, dims=sizes, dtype=dtype)

            def anew(given):
                return shardc.plan(plan.program.with_sizes(given)).schedule

            try:
                check_room(foresee(plan.schedule), plan.program, seconds, anew)
            except shardc.ShardcError as error:
                return error
            return None

        first = refusal(dims, most)
        if first is None:
            return
        sizes, seconds = advised(first)
        if sizes is not None:
            given = {dim: int(size) for dim, size in (each.split("=") for each in sizes.split(","))}
            allowed = seconds if " and --seconds" in first.help else most
            assert refusal(dims | given, allowed) is None, (first.help, dims)
        if " or allow it" in first.help:
            assert refusal(dims, seconds) is None, (first.help, dims)
        assert sizes is not None or most < 5 or gigabytes < 1, (str(first), "small sizes take neither time nor memory")
