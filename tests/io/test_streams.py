"""Standard streams that are closed, full or broken, and interrupts at many moments, under every kind of command.

The law: a result that cannot be written is exit 7 with SHC506 (a broken pipe silently); messages that cannot be written
change nothing; an interrupt is exit 130 and one line. No traceback, and no status 70, in any of it.
"""

import functools
import json
import os
import subprocess
import sys

import pytest

MESH = ["--mesh", "X=2,Z=2", "--dims", "I=8"]
COMMANDS = {
    "check": ["check", "A[I_X] → A[I]", *MESH],
    "check, refused": ["check", "A[I_W] → A[I]", *MESH],
    "check, refused as JSON": ["check", "A[I_W] → A[I]", *MESH, "--json"],
    "check -": ["check", "-", *MESH],
    "plan": ["plan", "A[I_X] → A[I]", *MESH],
    "plan, JSON": ["plan", "A[I_X] → A[I]", *MESH, "--json"],
    "emit": ["emit", "A[I_X] → A[I]", *MESH],
    "emit, JSON": ["emit", "A[I_X] → A[I]", *MESH, "--json"],
    "emit -o": ["emit", "A[I_X] → A[I]", *MESH, "-o", "{out}"],
    "explain": ["explain", "no_such_module:f"],
    "chips": ["chips"],
    "chips, JSON": ["chips", "--json"],
    "help": ["--help"],
    "help of a command": ["plan", "--help"],
    "version": ["--version"],
    "usage": ["plan", "--no-such-flag"],
    "usage as JSON": ["plan", "--json"],
    "no command": [],
}
SLOW = {"run": ["run", "A[I_X] → A[I]", *MESH], "compare": ["compare", "A[I_X] → A[I]", *MESH, "--rounds", "1"]}
FAULTS = ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full", "broken 1", "broken 2"]


def started(arguments, fault, tmp_path):
    """(status, stdout, stderr) of a command whose streams have a fault; None for a stream that is the fault's."""
    arguments = [argument.replace("{out}", str(tmp_path / "out.py")) for argument in arguments]
    kept = {number: subprocess.PIPE for number in ("1", "2")}
    redirections = fault
    if fault.startswith("broken"):
        reading, writing = os.pipe()
        os.close(reading)
        kept[fault[-1]], redirections = writing, ""
    (tmp_path / "out.py").unlink(missing_ok=True)
    done = subprocess.run(
        ["bash", "-c", f'exec "$@" {redirections}', "bash", sys.executable, "-m", "shardc", *arguments],
        input=b"A[I_X] -> A[I]",
        stdout=kept["1"],
        stderr=kept["2"],
        check=False,
        timeout=60,
    )
    if fault.startswith("broken"):
        os.close(kept[fault[-1]])
    return done.returncode, done.stdout, done.stderr


@functools.lru_cache
def healthy(name, tmp_path):
    return started({**COMMANDS, **SLOW}[name], "", tmp_path)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    return tmp_path_factory.mktemp("streams")


def hold(name, fault, workplace):
    status, out, err = healthy(name, workplace)
    found, stdout, stderr = started({**COMMANDS, **SLOW}[name], fault, workplace)
    stderr = stderr or b""
    assert b"Traceback" not in stderr and b"Exception ignored" not in stderr and b"SHC900" not in stderr
    reads = "<&-" in fault and "-" in COMMANDS.get(name, ())
    loses = ">&-" in fault.replace("2>&-", "") or ">/dev/full" in fault.replace("2>/dev/full", "") or "1" in fault
    if reads or (loses and out):
        assert found == 7
        if "2" not in fault and not fault.startswith("broken"):
            assert (b"SHC503" if reads else b"SHC506") in stderr
            assert "--json" not in COMMANDS.get(name, ()) or json.loads(stderr.splitlines()[-1])["error"]
    else:
        assert found == status
        if "2" not in fault and name not in SLOW:  # which foresee times
            assert stderr == err
    if not loses and not reads and name != "compare":  # which prints times
        assert stdout == out


QUICK = [
    *[("check", fault) for fault in FAULTS],
    *[("check, refused", "broken 2"), ("check -", "<&-"), ("usage", ">&-")],
    *[("emit -o", "2>/dev/full"), ("plan, JSON", ">/dev/full")],
]
OTHERS = [
    *[("check, refused", fault) for fault in (">&-", "2>/dev/full")],
    *[("check -", "2>/dev/full"), ("emit", ">&-"), ("help", ">&-")],
    *[("usage as JSON", "2>/dev/full"), ("chips, JSON", ">/dev/full")],
]


@pytest.mark.parametrize(("name", "fault"), QUICK)
def test_a_faulty_stream_loses_what_it_carries_and_no_more(name, fault, workplace):
    hold(name, fault, workplace)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "fault"),
    [*OTHERS, *((name, FAULTS[4 * row % 9]) for row, name in enumerate([*COMMANDS, *SLOW]))],
)
def test_each_command_under_some_of_the_faults(name, fault, workplace):
    """One of nine each, in turns, so that each fault is met by two or three kinds of command beside those above."""
    hold(name, fault, workplace)


def test_a_file_never_gets_the_number_of_a_closed_stream(workplace):
    """Whatever a compiler prints on descriptor 2 would else end up in the file that is written."""
    started(COMMANDS["emit -o"], "<&- >&- 2>&-", workplace)
    beside = (workplace / "out.py").read_bytes()
    _, out, _ = started(COMMANDS["emit"], "", workplace)
    assert beside == out


@pytest.mark.parametrize("encoding", ["latin-1"])
def test_results_are_utf8_in_every_locale(encoding, workplace):
    command = [sys.executable, "-m", "shardc", *COMMANDS["check"]]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == healthy("check", workplace)


# --- interrupts

# Sends itself SIGINT at the n-th event that Python audits (imports, files opened, code compiled and run), or tells how
# many there were: moments all over a command, from its first line on. What comes before is Python's own start.
INTERRUPTED = """
import os, signal, sys
number, sys.argv = int(sys.argv[1]) + 1, ["shardc", *sys.argv[2:]]
seen = 0
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal; a shell's background jobs ignore it
def count(event, arguments):
    global seen
    if not seen and not (event == "exec" and arguments[0].co_filename.endswith("__main__.py")):
        return
    seen += 1
    if seen == number > 1:
        os.kill(os.getpid(), signal.SIGINT)
sys.path.insert(0, os.getcwd())
import shardc
sys.addaudithook(count)
try:
    from shardc.__main__ import main
    main()
finally:
    if number == 1:
        print(seen, file=sys.stderr)
"""


def interrupted(number, arguments):
    command = [sys.executable, "-c", INTERRUPTED, str(number), *arguments]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


@functools.lru_cache
def uninterrupted(name, workplace):
    """How many moments there are; what the command prints and writes when nothing happens."""
    (workplace / "out.py").unlink(missing_ok=True)
    status, out, err = interrupted(0, filled(name, workplace))
    assert status == 0
    *messages, count = err.splitlines(keepends=True)
    written = (workplace / "out.py").read_bytes() if name == "emit -o" else b""
    return int(count), out, messages, written


def filled(name, workplace):
    return [argument.replace("{out}", str(workplace / "out.py")) for argument in COMMANDS[name]]


def hold_when_interrupted(name, part, workplace):
    count, whole, messages, written = uninterrupted(name, workplace)
    (workplace / "out.py").unlink(missing_ok=True)
    status, out, err = interrupted(max(1, int(part * count)), filled(name, workplace))
    assert status == 130
    assert out in (b"", whole)
    assert [line for line in err.splitlines(keepends=True) if line not in messages] in ([], [b"interrupted\n"])
    left = [path for path in workplace.iterdir() if path.name.startswith(("out", ".out"))]
    assert [path.name for path in left] in ([], ["out.py"])
    assert all(path.read_bytes() == written for path in left)


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.9, 0.98])
def test_an_interrupt_at_any_moment_is_130_and_one_line(part, workplace):
    hold_when_interrupted("emit -o", part, workplace)


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", [number / 6 for number in range(6)])
@pytest.mark.parametrize("name", ["check", "plan, JSON", "chips"])
def test_interrupts_at_many_moments(name, part, workplace):
    hold_when_interrupted(name, part, workplace)


def test_who_ignores_interrupts_is_left_alone(workplace):
    """As `nohup` and background jobs of scripts do."""
    ignoring = INTERRUPTED.replace("signal.default_int_handler", "signal.SIG_IGN")
    command = [sys.executable, "-c", ignoring, "300", *COMMANDS["check"]]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == healthy("check", workplace)[:2]


def test_interrupts_are_answered_before_anything_is_loaded():
    """Until then an interrupt is Python's own: a traceback. What `import shardc` loads is loaded in that time."""
    counted = "import sys; before = set(sys.modules); import shardc; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", counted], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["shardc"]
