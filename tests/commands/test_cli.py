"""The command line: what it prints where, exit codes, files whole or not at all. No traceback reaches a user."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module

import click
import pytest

from shardc import cli

MATMUL = "A[I_X, J_Y] · B[J_Y, K] → C[I_X, K_Y]"
MESH = ["--mesh", "X=2,Y=4", "--dims", "I=64,J=64,K=64"]


@pytest.fixture
def shardc(capsys):
    def call(*arguments):
        status = cli._status(list(arguments))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_check_says_ok(shardc):
    status, out, err = shardc("check", MATMUL, *MESH)
    assert (status, out, err) == (0, f"ok: {MATMUL}\n", "")


def test_check_warns_of_an_axis_that_nobody_uses(shardc):
    status, out, err = shardc("check", "A[I_X] → A[I]", "--mesh", "X=2,Z=4", "--dims", "I=8")
    assert status == 0
    assert out == "ok: A[I_X] → A[I]\n"
    assert "Z" in err


def test_an_error_goes_to_stderr_with_a_caret(shardc):
    status, out, err = shardc("check", "A[I_X, J] → A[I, J]", "--mesh", "X=4", "--dims", "I=6,J=8")
    assert (status, out) == (4, "")
    assert err == (
        "error[SHC204]: dim `I` = 6 is not divisible by mesh axis `X` = 4\n"
        " --> <expression>:1:3\n"
        "  | A[I_X, J] → A[I, J]\n"
        "  |   ^^^ 6 mod 4 = 2\n"
        "  = help: make I 8, or drop `_X`\n"
    )


def test_an_error_as_json_has_the_same_fields(shardc):
    status, out, err = shardc("plan", "A[I_X, J] → A[I, J]", "--mesh", "X=4", "--dims", "I=6,J=8", "--json")
    assert (status, out) == (4, "")
    error = json.loads(err)["error"]
    assert error["code"] == "SHC204"
    assert (error["span"]["line"], error["span"]["column"]) == (1, 3)
    assert error["help"]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["check", "A[I, J → B[I]"], 3),
        (["check", "A[I_W] → A[I]", *MESH], 4),
        (["check", "no-such-file.shard"], 7),
        (["check", "."], 7),
        (["check", MATMUL, "--mesh", "X=2,,Y"], 2),
        (["check", MATMUL, "--mesh", "X=2,Y=0"], 4),
        (["check", MATMUL, *MESH, "--dtype", "float17"], 4),
        (["check", MATMUL, *MESH, "--chip", "v9"], 4),
        (["check", MATMUL, *MESH, "--no-such-flag"], 2),
        (["plan"], 2),
        (["plan", MATMUL, *MESH, "--top", "0"], 2),
        (["plan", MATMUL, *MESH, "--objective", "money"], 2),
        (["nonsense"], 2),
        (["check", "A[I] → A[I]" + " " * 70_000], 6),
        (["check", MATMUL, "--mesh", "X=1048576,Y=2"], 6),
    ],
)
def test_exit_codes(shardc, arguments, status):
    found, out, err = shardc(*arguments)
    assert found == status, err
    assert out == ""
    assert err
    assert "Traceback" not in err


def test_a_file_that_is_not_utf8_names_the_byte(shardc, tmp_path):
    path = tmp_path / "bad.shard"
    path.write_bytes(b"A[I] \xff A[I]")
    status, _, err = shardc("check", str(path))
    assert status == 3
    assert "0xff at offset 5" in err


def test_standard_input(shardc, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfA[I_X] -> A[I]\r\n"), encoding="utf-8"))
    status, out, _ = shardc("check", "-", "--mesh", "X=4", "--dims", "I=8")
    assert (status, out) == (0, "ok: A[I_X] → A[I]\n")


def test_options_override_declarations(shardc):
    text = "mesh X=2\ndims I=8\ndtype f32\nchip v5e\nA[I_X] → A[I]"
    _, out, _ = shardc("plan", text, "--json", "--mesh", "X=4", "--dims", "I=16", "--dtype", "bf16", "--chip", "v5p")
    plan = json.loads(out)
    assert (plan["mesh"], plan["dims"], plan["dtype"], plan["chip"]) == ({"X": 4}, {"I": 16}, "bf16", "v5p")
    assert plan["cost"]["wire_bytes"] == 3 * 4 * 2


def test_plan_shows_what_the_next_best_would_cost(shardc):
    status, out, _ = shardc("plan", "A[I, J_X] · B[J, K] → C[I, K]", *MESH)
    assert status == 0
    assert "case 2" in out
    assert "instead" in out
    _, alone, _ = shardc("plan", "A[I, J_X] · B[J, K] → C[I, K]", *MESH, "--top", "1")
    assert "instead" not in alone


def test_emit_writes_a_file_once(shardc, tmp_path):
    target = tmp_path / "out.py"
    assert shardc("emit", MATMUL, *MESH, "-o", str(target))[0] == 0
    first = target.read_text(encoding="utf-8")
    assert "def program(A, B):" in first
    status, _, err = shardc("emit", MATMUL, *MESH, "-o", str(target))
    assert status == 7
    assert "--force" in err
    assert shardc("emit", MATMUL, *MESH, "-o", str(target), "--force")[0] == 0
    assert target.read_text(encoding="utf-8") == first
    assert [path.name for path in tmp_path.iterdir()] == ["out.py"]


def test_emit_prints_what_it_would_write(shardc, tmp_path):
    target = tmp_path / "out.py"
    shardc("emit", MATMUL, *MESH, "-o", str(target))
    assert shardc("emit", MATMUL, *MESH)[1] == target.read_text(encoding="utf-8")


def test_what_grad_writes_is_what_it_prints_and_a_command_reads_it(shardc, tmp_path):
    target = tmp_path / "back.shard"
    assert shardc("grad", MATMUL, *MESH, "-o", str(target)) == (0, "", "")
    assert shardc("grad", MATMUL, *MESH)[1] == target.read_text(encoding="utf-8")
    assert shardc("check", str(target))[0] == 0
    before = target.read_bytes()
    status, _, err = shardc("grad", MATMUL, *MESH, "--whole", "-o", str(target))
    assert (status, "SHC504" in err, target.read_bytes()) == (7, True, before)
    said = shardc("grad", MATMUL, *MESH, "--whole", "--json", "-o", str(target), "--force")
    assert said == (0, json.dumps({"output": str(target)}) + "\n", "")
    assert target.read_bytes() != before


def test_emit_does_not_overwrite_its_input(shardc, tmp_path):
    source = tmp_path / "in.shard"
    source.write_text("mesh X=2\nA[I_X] → A[I]\n", encoding="utf-8")
    status, _, err = shardc("emit", str(source), "-o", str(source), "--force")
    assert status == 7
    assert "SHC505" in err
    assert "A[I_X]" in source.read_text(encoding="utf-8")


def test_emit_to_a_directory_that_is_not_there(shardc, tmp_path):
    status, _, err = shardc("emit", MATMUL, *MESH, "-o", str(tmp_path / "no" / "out.py"))
    assert status == 7
    assert "SHC506" in err


def test_what_a_killed_run_left_is_swept(shardc, tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    stale = tmp_path / f".out.py.{dead.pid}.shardc-tmp"
    alive = tmp_path / f".out.py.{os.getppid()}.shardc-tmp"
    stale.touch()
    alive.touch()
    shardc("emit", MATMUL, *MESH, "-o", str(tmp_path / "out.py"))
    assert not stale.exists()
    assert alive.exists()


def test_a_full_disk_leaves_the_old_file(shardc, tmp_path, monkeypatch):
    target = tmp_path / "out.py"
    target.write_text("old", encoding="utf-8")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    status, _, err = shardc("emit", MATMUL, *MESH, "-o", str(target), "--force")
    assert status == 7
    assert "No space left" in err
    assert target.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.py"]


def test_a_file_that_exists_is_refused_before_the_work(shardc, tmp_path, monkeypatch):
    """A plan takes long, and a compiler longer."""
    monkeypatch.setattr("shardc.api.planned", lambda *_: pytest.fail("it was planned"))
    there = tmp_path / "there.json"
    there.write_text("mine")
    monkeypatch.setattr("shardc.backward.grad", lambda *_, **__: pytest.fail("it was differentiated"))
    for command, option in (("verify", "--trace"), ("emit", "-o"), ("grad", "-o")):
        arguments = [command, MATMUL, *MESH, option]
        status, _, err = shardc(*arguments, str(there))
        assert status == 7 and "SHC504" in err and there.read_text() == "mine"
        status, _, err = shardc(*arguments, str(tmp_path / "no" / "where.json"))
        assert status == 7 and "SHC506" in err


def test_the_timeline_of_a_plan_needs_no_compiler(shardc):
    arguments = ["A[I, J_X] · B[J_X, K] → C[I_X, K]", "--mesh", "X=2", "--dims", "I=8192,J=8192,K=8192"]
    status, out, _ = shardc("plan", *arguments, "--gantt")
    rows = out.splitlines()[-4:]
    assert status == 0 and [row[:9] for row in rows[:3]] == ["compute  ", "X+       ", "X-       "]
    assert rows[0][9] == "█" and rows[1][9] == rows[2][9] == " ", "what it leaves is exchanged after the product"
    assert rows[0].endswith("%") and rows[3].split()[0] == "0" and rows[3].endswith("µs")
    assert shardc("plan", *arguments, "--gantt", "--json") == shardc("plan", *arguments, "--json")
    assert shardc("plan", *arguments, "--gantt", "--pareto")[0] == 2


def test_a_fault_of_ours_ends_with_70_and_a_replay(shardc, monkeypatch):
    def broken(*_arguments, **_options):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("shardc.api.plan_with_subaxes", broken)
    status, out, err = shardc("plan", MATMUL, *MESH)
    assert (status, out) == (70, "")
    assert "SHC900" in err
    assert "shardc plan 'A[I_X, J_Y]" in err
    assert "Traceback" not in err
    status, out, err = shardc("plan", MATMUL, *MESH, "--json")
    error = json.loads(err)["error"]
    assert (status, out, error["code"]) == (70, "", "SHC900")
    assert "shardc plan 'A[I_X, J_Y]" in error["note"]


STAGES = {  # where each command goes through, from text to result
    "shardc.notation.parse:source_of": "plan",
    "shardc.notation.parse:resolve": "plan",
    "shardc.planner.program.sizes:_filled": "plan",
    "shardc.api:plan_with_subaxes": "plan",
    "shardc.results:table": "plan",
    "shardc.results:to_json": "plan --json",
    "shardc.emit.steps.calls:lower": "emit",
    "shardc.emit.text.source:body": "emit",
    "shardc.emit.text.source:check_source": "emit",
    "shardc.proving.prove:reduced": "emit",
    "shardc.proving.prove:Module": "plan --prove",
    "shardc.pipeline:print_lowering": "plan --passes",
    "shardc.machines.run:foresee": "run",
    "shardc.machines.run:report_of": "run",
}


@pytest.mark.parametrize("place", STAGES)
def test_a_crash_in_any_stage_ends_with_70_and_a_replay(place, shardc, monkeypatch):
    """An exception that nothing foresees, planted where the text is read, planned, written, proved, run and shown."""
    met = []

    def broken(*_arguments, **_options):
        met.append(place)
        raise ZeroDivisionError("planted")

    module, _, name = place.partition(":")
    monkeypatch.setattr(import_module(module), name, broken)
    command, *options = STAGES[place].split()
    mesh = MESH[:2] if place.endswith("_filled") else MESH
    status, out, err = shardc(command, MATMUL, *mesh, *options)
    assert met, "the stage is gone through"
    assert (status, out) == (70, "") and "SHC900" in err and "Traceback" not in err
    assert f"shardc {command} 'A[I_X, J_Y]" in err


def test_an_interrupt_ends_with_130_and_no_output(shardc, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("shardc.api.plan_with_subaxes", interrupted)
    assert shardc("plan", MATMUL, *MESH)[:2] == (130, "")


def test_a_closed_pipe_is_no_traceback():
    command = [sys.executable, "-m", "shardc", "plan", MATMUL, *MESH, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    error = process.stderr.read()
    assert process.wait() == 7
    assert b"Traceback" not in error


def test_a_kill_while_writing_leaves_the_old_file_or_the_new(tmp_path):
    target = tmp_path / "out.py"
    target.write_text("old", encoding="utf-8")
    command = [sys.executable, "-m", "shardc", "emit", MATMUL, *MESH, "-o", str(target), "--force"]
    whole = subprocess.run(command[:-3], capture_output=True, text=True, check=True).stdout
    for delay in (0.1, 0.2, 0.3, 0.4):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert target.read_text(encoding="utf-8") in ("old", whole)


@pytest.mark.exhaustive
def test_many_runs_with_one_target_leave_one_whole_file(tmp_path):
    target = tmp_path / "out.py"
    command = [sys.executable, "-m", "shardc", "emit", MATMUL, *MESH, "-o", str(target), "--force"]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    whole = subprocess.run(command[:-3], capture_output=True, text=True, check=True).stdout
    assert target.read_text(encoding="utf-8") == whole
    assert [path.name for path in tmp_path.iterdir()] == ["out.py"]


def test_chips_shows_every_chip_and_its_source(shardc):
    status, out, _ = shardc("chips")
    assert status == 0
    for name in ("v3", "v4p", "v5e", "v5p", "v6e", "v7x", "H100", "H200", "B200", "GB200-NVL72"):
        assert name in out
    assert "How To Scale Your Model" in out
    _, out, _ = shardc("chips", "--json", "--profile", "spec")
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["v5e"]["link_bandwidth"] == 5e10
    assert all(row["source"] for row in rows.values())


def test_a_memory_limit_that_cannot_be_kept_says_what_could(shardc):
    status, out, err = shardc("plan", "A[I_X, J] → A[I, J]", *MESH, "--memory", "1kB")
    assert (status, out) == (6, "")
    assert "the smallest peak found is" in err


def test_a_usage_error_as_json(shardc):
    status, out, err = shardc("plan", "--json")
    assert (status, out) == (2, "")
    assert json.loads(err)["error"]["code"] == "SHC001"


def test_a_target_that_is_no_file_is_left_alone(shardc, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    status, _, err = shardc("emit", MATMUL, *MESH, "-o", str(pipe), "--force")
    assert status == 7
    assert "not a regular file" in err
    assert pipe.is_fifo()


def test_topology_and_dcn_price_the_plan(shardc):
    text = "G[D, F]{U_XP} → G[D, F]"
    status, out, _ = shardc("plan", text, "--mesh", "X=4", "--dcn", "P=2", "--dims", "D=8192,F=8192")
    assert status == 0
    assert out.index("ReduceScatter_X") < out.index("AllReduce_P") < out.index("AllGather_X")
    status, _, err = shardc("plan", "A[I_X] → A[I]", "--mesh", "X=4", "--topology", "v5p:4x4x4")
    assert status == 4
    assert "64 chips" in err


def test_check_reports_a_fault_of_every_file_and_the_worst_status(shardc, tmp_path):
    """The statuses: 0 fine, 3 syntax, 4 semantics, 7 files."""
    texts = {"good": "A[I] → A[I]", "syntax": "A[I → A[I]", "semantics": "A[I_W] → A[I]", "long": "#" * 70_000}
    for name, text in texts.items():
        (tmp_path / f"{name}.shard").write_text(text, encoding="utf-8")
    paths = [str(tmp_path / f"{name}.shard") for name in ("syntax", "good", "missing", "semantics")]
    status, out, err = shardc("check", *paths)
    assert (status, out) == (7, "ok: A[I] → A[I]\n")
    assert [line[6:12] for line in err.splitlines() if line.startswith("error")] == ["SHC103", "SHC501", "SHC201"]
    status, out, err = shardc("check", "--json", *paths[:2], *paths[3:])
    assert (status, json.loads(out)["ok"]) == (4, True)
    assert [json.loads(line)["error"]["code"] for line in err.splitlines()] == ["SHC103", "SHC201"]
    assert shardc("check", paths[0], paths[1])[0] == 3
    assert shardc("check", paths[1], paths[1])[:2] == (0, "ok: A[I] → A[I]\n" * 2)


def test_usage_is_told_as_other_errors_are(shardc):
    assert shardc("plan", "--no-such")[2] == (
        "error[SHC001]: No such option '--no-such'.\n  = help: shardc plan --help\n"
    )
    status, out, err = shardc()
    assert (status, out) == (2, "")
    assert err.startswith("Usage: shardc") and "Exit status" in err


def test_a_result_that_cannot_be_written_is_told_as_json(shardc, monkeypatch):
    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shardc.io.streams.result", full)
    monkeypatch.setattr("shardc.io.streams.silence", lambda _: None)
    status, out, err = shardc("plan", MATMUL, *MESH, "--json")
    assert (status, out, json.loads(err)["error"]["code"]) == (7, "", "SHC506")


@pytest.mark.parametrize("command", ["emit", "grad", "report"])
def test_flags_that_do_nothing_are_named(shardc, command):
    status, _, err = shardc(command, MATMUL, *MESH, "--force")
    assert (status, err) == (0, "warning: --force does nothing without -o\n")


VALUED = [
    (name, option, spelling)
    for name, command in sorted(cli.shardc.commands.items())
    for option in command.params
    if isinstance(option, click.Option) and not option.is_flag
    for spelling in option.opts
]


@pytest.mark.parametrize(("name", "option", "spelling"), VALUED)
def test_an_option_is_not_taken_for_the_value_of_another(shardc, tmp_path, monkeypatch, name, option, spelling):
    """`-o --force` wrote a file called `--force`. What follows is each spelling of the command, and the end of them."""
    monkeypatch.chdir(tmp_path)
    for other in ["--", *(each for param in cli.shardc.commands[name].params for each in param.opts if "-" in each)]:
        status, out, err = shardc(name, MATMUL, spelling, other, "v5e")
        assert (status, out) == (2, ""), other
        assert f"{spelling} takes {option.metavar or ''}" in err
        assert f"`{other}` stands there" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "first", "second"),
    [("--mesh", "X=2", "X=4"), ("--dims", "I=8", "J=8"), ("--chip", "v5e", "v5p"), ("--dtype", "f32", "bf16")],
)
@pytest.mark.parametrize("joined", [False, True])
def test_an_option_of_one_value_is_given_once(option, first, second, joined, capsys):
    """The first would be dropped; and an expression that begins as an option does is none."""
    given = [f"{option}={first}", f"{option}={second}"] if joined else [option, first, option, second]
    mesh = [] if option == "--mesh" else ["--mesh", "X=2"]
    assert cli._status(["plan", "-A[I_X, J] → B[I, J]", *mesh, *given]) == 2
    assert f"error[SHC001]: {option} is given 2 times, and takes one value" in capsys.readouterr().err


def test_an_option_that_is_a_list_is_given_as_often_as_one_likes(capsys):
    assert cli._status(["plan", "A[I_X, J] → A[I, J]", "--mesh", "X=2", "--sweep", "I=4,8", "--sweep", "J=2,4"]) == 0


@pytest.mark.parametrize("command", ["emit", "grad", "report"])
def test_a_dash_is_standard_output_where_the_result_goes_there(shardc, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    to_nowhere, to_dash = shardc(command, MATMUL, *MESH), shardc(command, MATMUL, *MESH, "-o", "-")
    assert to_dash == to_nowhere
    assert to_dash[0] == 0 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("command", "option"), [("verify", "--trace"), ("tune", "-o")])
def test_a_dash_is_refused_where_tables_go_to_standard_output(shardc, tmp_path, monkeypatch, command, option):
    monkeypatch.chdir(tmp_path)
    status, out, err = shardc(command, MATMUL, *MESH, option, "-")
    assert (status, out) == (2, "")
    assert "`-` is standard output" in err and not list(tmp_path.iterdir())
