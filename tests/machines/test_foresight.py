"""What a run takes, as foreseen and as measured in a process of its own; what is too much is refused."""

import json
import subprocess
import sys
import time

import pytest

import shardc
from shardc import cli
from shardc.machines import foresight
from shardc.machines.foresight import Rates, foresee
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
    assert "give smaller --dims (I=32768, say)" in text


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
