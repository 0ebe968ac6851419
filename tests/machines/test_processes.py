"""The emitted file on several processes, by the launcher in `examples/`; and what it says when one of them fails."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shardc
from shardc.planner.program import sizes

pytestmark = pytest.mark.devices

EXAMPLES = Path(__file__).parents[2] / "examples"
# Two processes share a mesh along its first axis: every program here communicates over that one.
MATMUL = """
    mesh X=4, Y=2; dims I=16, J=24, K=32; dtype int32
    A[I, J_X] · B[J_X, K_Y] → C[I_X, K_Y]
"""
EXCHANGE = """
    mesh X=4, Y=2; dims I=16, J=24; dtype bf16
    AllToAll_X(A[I_X, J]) → D[I, J_X]
    E[I_XY, J] → F[I_YX, J]
"""
UNREDUCED = """
    mesh X=4, Y=2; dims I=16, J=24, K=32; dtype int32
    A[I_Y, J]{U_X} → D[I, J_Y]{U_X}
    E[I, K_X] · F[K_X, J] → G[I, J]{U_X}
    H[I, J]{U_X} → L[I_X, J]
"""
CHAIN = """
    mesh X=4, Y=2; dims B=16, D=24, F=32; dtype f32
    Tmp[B_X, F_Y] = In[B_X, D_Y] ·_D Win[D_X, F_Y]
    Out[B_X, D_Y] = gelu(Tmp) ·_F Wout[F_Y, D_X]
"""
STARTED = re.compile(r"process (\d+): pid (\d+)\n")


def launch(program, *options, timeout=60):
    """The finished launcher; its own time limit is `timeout`, and it must never need much more."""
    command = [sys.executable, EXAMPLES / "many_processes.py", program, "--timeout", timeout, *options]
    began = time.monotonic()
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout + 30)
    assert time.monotonic() - began < timeout + 8
    assert "Traceback" not in ended.stderr
    for _, number in STARTED.findall(ended.stderr):
        assert is_gone(int(number)), f"worker {number} outlived the launcher"
    return ended


def is_gone(number):
    try:
        os.kill(number, 0)
        stat = Path(f"/proc/{number}/stat")
        # In a container there may be nobody who clears away a process whose parent was killed.
        return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def faulty(tmp_path, program, *, body="", ending=""):
    """`--program` and the emitted file with a fault planted: a line before its body, or text after what it returns."""
    text = shardc.plan(sizes.small(shardc.parse(program))).source()
    text = re.sub(r"^def program\(.*\):\n", lambda found: f"{found[0]}    {body}\n", text, flags=re.M)
    path = tmp_path / "faulty.py"
    path.write_text(f"import os\nimport signal\nimport time\n{text.rstrip()}{ending}\n", encoding="utf-8")
    return "--program", path


def refusal(ended, code, status):
    """The error's lines; nothing else is on stderr but who was started."""
    assert ended.returncode == status, ended.stderr
    assert ended.stdout == ""
    first, *rest = STARTED.sub("", ended.stderr).splitlines()
    assert first.startswith(f"error[{code}]: ")
    assert all(line.startswith(("  = note: ", "  = help: ")) for line in rest), rest
    assert rest[-1].startswith("  = help: ")
    return "\n".join([first, *rest])


RUNS = [(MATMUL, 2), (MATMUL, 4), (EXCHANGE, 2), (EXCHANGE, 4), (CHAIN, 2), (UNREDUCED, 2)]
NAMES = {MATMUL: "matmul", EXCHANGE: "exchange", CHAIN: "chain", UNREDUCED: "unreduced"}


SLOW = {(EXCHANGE, 4), (MATMUL, 2)}


@pytest.mark.parametrize(
    ("program", "processes"),
    [pytest.param(*run, marks=pytest.mark.exhaustive if run in SLOW else ()) for run in RUNS],
    ids=lambda value: NAMES.get(value, str(value)),
)
def test_the_emitted_file_equals_numpy_on_every_process(program, processes):
    ended = launch(program, "--processes", processes)
    assert ended.returncode == 0, ended.stderr
    assert len(STARTED.findall(ended.stderr)) == processes
    first, *outputs = ended.stdout.splitlines()
    assert first.startswith(f"{processes} processes, 8 devices in all")
    assert outputs
    for line in outputs:
        assert ": 8 shards on 8 simulated devices, equal to NumPy" in line
        if program in (MATMUL, UNREDUCED):
            assert line.endswith("allowed 0"), "integers are compared bitwise"


@pytest.mark.exhaustive
def test_one_wrong_shard_of_one_process_is_noticed(tmp_path):
    ended = launch(MATMUL, *faulty(tmp_path, MATMUL, ending=' + (jax.lax.axis_index(("X", "Y")) == 7)'))
    assert ended.returncode == 1, ended.stderr
    assert "NOT EQUAL to NumPy; largest error 1, allowed 0" in ended.stdout


@pytest.mark.parametrize("missing", [0, 1], ids=["the coordinator", "another"])
def test_a_process_that_never_starts_is_named_in_bounded_time(missing):
    text = refusal(launch(MATMUL, "--without", missing, timeout=2), "SHC310", 5)
    assert f"process {missing} of 2 never started; gave up after 2 s" in text


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "SHC310", "process 1 of 2 was killed by SIGKILL"),
        ("os.abort()", "SHC310", "process 1 of 2 was aborted (exit 134)"),
        ("os.system(f'kill -STOP {os.getpid()}')", "SHC310", "gave up after 5 s"),
        ("1 / 0", "SHC308", "process 1 of 2 failed (exit 1)\n  = note: ZeroDivisionError"),
    ],
    ids=["killed", "aborted", "stopped", "raised"],
)
def test_a_process_that_fails_midway_is_named_and_the_others_end(tmp_path, fault, code, told):
    broken = faulty(tmp_path, MATMUL, body=f"jax.process_index() == 1 and {fault}")
    assert told in refusal(launch(MATMUL, *broken, timeout=5 if "STOP" in fault else 60), code, 5)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
def test_the_workers_end_with_the_launcher(tmp_path, number):
    stuck = faulty(tmp_path, MATMUL, body="time.sleep(1000)")
    folder = tmp_path / "temporary"
    folder.mkdir()
    command = [sys.executable, EXAMPLES / "many_processes.py", MATMUL, *stuck]
    environment = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as launcher:
        started = [STARTED.fullmatch(launcher.stderr.readline()) for _ in range(2)]
        launcher.send_signal(number)
    workers = [int(found[2]) for found in started]
    deadline = time.monotonic() + 20
    while not all(is_gone(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(is_gone(worker) for worker in workers)
    assert number == signal.SIGKILL or not list(folder.iterdir()), "what can clear up, clears up"


USAGE = [
    ((MATMUL, "--processes", 3), "SHC001", 2, "8 devices of the mesh X=4, Y=2 do not divide among 3 processes"),
    ((MATMUL, "--processes", 0), "SHC001", 2, "--processes is 0"),
    ((MATMUL, "--processes", "two"), "SHC001", 2, "invalid int value: 'two'"),
    ((MATMUL, "--without", 2), "SHC001", 2, "--without is 2"),
    ((MATMUL, "--program", "absent.py"), "SHC503", 7, "cannot read `absent.py`"),
    (("absent.shard",), "SHC501", 7, "no file `absent.shard`"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "status", "told"), USAGE, ids=["3", "0", "two", "without", "program", "input"]
)
def test_what_cannot_be_run_is_refused(arguments, code, status, told):
    assert told in refusal(launch(*arguments), code, status)
