"""Every kind of file under every option that takes one: bounded reads, coded errors, files whole or not at all.

The law: a command ends within its patience with 0 or a coded status, never 70; what is no regular file is not written;
a file that is written is whole, in its old mode, at the end of its links; one that is not written is as it was.
"""

import os
import socket
import stat
import subprocess
import sys

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardc import ShardcError, cli
from shardc.cost import chip
from shardc.io import files

MATMUL = "A[I_X, J_Y] · B[J_Y, K] → C[I_X, K_Y]"
MESH = ["--mesh", "X=2,Y=4", "--dims", "I=64,J=64,K=64"]
CHIP = """
name = "mine"
flops = 1e14
narrow_flops = 1e14
hbm_bytes = 1e10
hbm_bandwidth = 1e12
link_bandwidth = 1e11
dcn_bandwidth = 1e9
torus_dims = 2
"""
FITTING = {"shard": f"mesh X=2, Y=4\n{MATMUL}\n", "toml": CHIP, "py": "old"}


def regular(path, text):
    path.write_text(text, encoding="utf-8")


def endless(device):
    return lambda path, _: path.symlink_to(device)


def long_sparse(path, text):
    path.write_text(text, encoding="utf-8")
    os.truncate(path, 2**34)


def unix_socket(path, _):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")  # whose names are short
    os.rename("socket", path)


def through_links(path, text):
    (path.parent / "far").mkdir(exist_ok=True)
    regular(path.parent / "far" / "target", text)
    (path.parent / "near").symlink_to("far/target")
    path.symlink_to("near")


KINDS = {
    "missing": lambda path, _: None,
    "regular": regular,
    "empty": lambda path, _: path.touch(),
    "not text": lambda path, _: path.write_bytes(b"A[I] \xff\xfe\x00"),
    "sparse": long_sparse,
    "directory": lambda path, _: path.mkdir(),
    "pipe": lambda path, _: os.mkfifo(path),
    "socket": unix_socket,
    "zeros": endless("/dev/zero"),
    "noise": endless("/dev/urandom"),
    "nothing": endless("/dev/null"),
    "full": endless("/dev/full"),
    "link": through_links,
    "dangling": lambda path, _: path.symlink_to(path.parent / "nowhere"),
    "dangling in no folder": lambda path, _: path.symlink_to(path.parent / "no" / "where"),
    "circle": lambda path, _: path.symlink_to(path.name),
}
NAMES = {
    "plain": "file",
    "long": "f" * 240,
    "Greek": "αβγ" * 40,
    "a pattern": "*[a-z]?",
    "a dash": "-file",
    "controls": "\x1b[31m\x07\n\r\x9b2J\u202efile",
    "no Unicode": "\udcff\udcfe",
}
READERS = {
    "INPUT": ("shard", lambda file: ["check", file]),
    "--chip": ("toml", lambda file: ["check", MATMUL, *MESH, f"--chip={file}"]),
}
WRITERS = {
    "emit -o": ("py", '"""A[I_X, J_Y]', lambda file: ["emit", MATMUL, *MESH, f"-o{file}"]),
    "grad -o": ("shard", "mesh X=", lambda file: ["grad", MATMUL, *MESH, f"-o{file}"]),
}
TELLING = {"plain": set(KINDS), "long": {"regular", "dangling"}, "controls": {"missing", "regular", "zeros", "circle"}}
PAIRS = [
    pytest.param(kind, name, marks=[] if kind in TELLING.get(name, {"regular"}) else pytest.mark.exhaustive)
    for name in NAMES
    for kind in KINDS
]


def name_of(name, ending):
    whole = f"{NAMES[name]}.{ending}"
    return f"./{whole}" if whole.startswith("-") else whole


def silent(text):
    """No character that a terminal acts on."""
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.fixture
def shardc(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(files, "PATIENCE", 0.05)
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        status = cli._status(list(arguments))
        captured = capsys.readouterr()
        assert silent(captured.out) and silent(captured.err)
        assert status in (0, 3, 4, 6, 7), captured.err
        return status, captured.out, captured.err

    return call


@pytest.mark.parametrize(("kind", "name"), PAIRS)
@pytest.mark.parametrize("option", READERS)
def test_every_kind_of_file_is_read_or_refused(option, kind, name, shardc, tmp_path):
    ending, command = READERS[option]
    file = name_of(name, ending)
    if "\n" in file and option == "INPUT":
        pytest.skip("a line break makes it an expression") if not file.endswith(".shard") else None
    KINDS[kind](tmp_path / file, FITTING[ending])
    status, _, err = shardc(*command(file))
    assert (status == 0) == (kind in ("regular", "link")), err
    if kind in ("missing", "dangling", "dangling in no folder", "directory", "pipe", "socket", "circle"):
        assert status == 7


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("kind", "name"), PAIRS)
@pytest.mark.parametrize("option", WRITERS)
def test_every_kind_of_file_is_written_whole_or_refused(option, kind, name, force, shardc, tmp_path):
    ending, begins, command = WRITERS[option]
    file = name_of(name, ending)
    path = tmp_path / file
    KINDS[kind](path, FITTING[ending])
    before = path.lstat() if os.path.lexists(path) else None
    if path.is_file():
        path.chmod(0o751)
    status, _, err = shardc(*command(file), *(["--force"] if force else []))
    new = kind == "missing" or (force and kind in ("regular", "empty", "not text", "sparse", "link", "dangling"))
    assert (status == 0) == new, err
    if new:
        assert path.read_text(encoding="utf-8").startswith(begins)
        assert kind in ("missing", "dangling") or stat.S_IMODE(path.stat().st_mode) == 0o751
    if before is not None:
        after = path.lstat()
        assert stat.S_IFMT(after.st_mode) == stat.S_IFMT(before.st_mode), "a link stays a link, a pipe a pipe"
        assert new or after.st_ino == before.st_ino
        assert new or after.st_size == before.st_size
    assert not [left for left in tmp_path.rglob("*") if left.name.endswith("shardc-tmp")]


@pytest.mark.parametrize("length", [1, 180, 181, 200, 249, 252])
def test_a_name_may_be_as_long_as_the_file_system_allows(length, shardc, tmp_path):
    file = "f" * length + ".py"
    assert shardc("emit", MATMUL, *MESH, "-o", file)[0] == 0
    assert shardc("emit", MATMUL, *MESH, "-o", file, "--force")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == [file]
    assert shardc("emit", MATMUL, *MESH, "-o", "f" * 300)[0] == 7


ODD = {
    "deep": "a = " + "[" * 15_000,
    "dotted": "a." * 3_000 + "a = 1",
    "digits": "a = " + "9" * 15_000,
    "NUL": "\0",
    "infinite": "flops = 1e999",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_a_chips_file_may_hold_anything(text, shardc, tmp_path):
    regular(tmp_path / "my.toml", text)
    status, _, err = shardc("check", MATMUL, *MESH, "--chip", "my.toml")
    assert (status, "SHC223" in err) == (4, True)
    with pytest.raises(ShardcError):
        chip(str(tmp_path / "my.toml"))
    regular(tmp_path / "my.toml", text + "\n" * 17_000)
    assert shardc("check", MATMUL, *MESH, "--chip", "my.toml")[0] == 6


def test_a_long_expression_is_no_file_name(shardc, tmp_path):
    text = " + ".join(["A[I_X]"] * 200) + " → C[I_X]"
    assert shardc("emit", text, "--mesh", "X=2", "-o", "out.py")[0] == 0


@pytest.mark.parametrize("way", ["itself", "a link", "a hard link", "standard input", "the chip"])
@pytest.mark.parametrize("writer", ["emit", "grad"])
def test_the_output_is_no_input(writer, way, shardc, tmp_path, monkeypatch):
    source, chip = tmp_path / "in.shard", tmp_path / "my.toml"
    regular(source, FITTING["shard"])
    regular(chip, CHIP)
    (tmp_path / "link").symlink_to("in.shard")
    (tmp_path / "hard").hardlink_to(source)
    target = {"a link": "link", "a hard link": "hard", "the chip": "my.toml"}.get(way, "in.shard")
    if way != "standard input":
        status, _, err = shardc(writer, "in.shard", "--chip", "my.toml", "-o", target, "--force")
        assert (status, "SHC505" in err) == (7, True)
    else:
        with source.open("rb") as stdin:
            command = [sys.executable, "-m", "shardc", writer, "-", "-o", "in.shard", "--force"]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            done = subprocess.run(command, stdin=stdin, capture_output=True, check=False, env=environment)
        assert (done.returncode, b"SHC505" in done.stderr) == (7, True)
    assert source.read_text(encoding="utf-8") == FITTING["shard"]
    assert chip.read_text(encoding="utf-8") == CHIP


def test_a_pipe_with_a_writer_is_an_input(shardc, tmp_path, monkeypatch):
    """As a shell's `<(…)` gives one; the writer may be late."""
    monkeypatch.setattr(files, "PATIENCE", 20)
    os.mkfifo(tmp_path / "pipe.shard")
    writer = subprocess.Popen(["bash", "-c", f"sleep 0.2; printf '%s' '{FITTING['shard']}' > pipe.shard"])
    assert shardc("check", "pipe.shard")[:2] == (0, f"ok: {MATMUL}\n")
    assert writer.wait() == 0


def test_what_others_left_beside_a_target_stays(shardc, tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    others = [f".outx.py.{dead.pid}.shardc-tmp", f".out.py.x{dead.pid}.shardc-tmp", ".out.py..shardc-tmp"]
    own = [f".out.py.{dead.pid}.shardc-tmp", f".out.py.{os.getpid()}.shardc-tmp"]
    for name in [*others, *own]:
        (tmp_path / name).touch()
    (tmp_path / "victim").write_text("whole")
    (tmp_path / own[1]).unlink()
    (tmp_path / own[1]).symlink_to("victim")
    shardc("emit", MATMUL, *MESH, "-o", "out.py")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "out.py", "victim"])
    assert (tmp_path / "victim").read_text() == "whole"


# --- expressions that look like options

signs = st.sampled_from(["-", "--", "---", "- ", "-(", "-(-", "--("])
names = st.sampled_from(["A", "o", "out", "h", "json", "force", "In"])
arrows = st.sampled_from(["→", "->", "\\to", "\\rightarrow"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(signs, names, arrows, st.sampled_from(["", " · B[I]"]), st.sampled_from([0, 1, 2]))
def test_an_expression_that_begins_with_a_minus_is_one(capsys, sign, name, arrow, more, place):
    text = f"{sign}{name}[I_X]{')' * sign.count('(')}{more} {arrow} C[I]"
    mesh = ["--mesh", "X=2"]
    arguments = [[text, *mesh], [*mesh, text], [*mesh, "--", text]][place]
    assert cli._status(["check", *arguments]) == 0
    assert capsys.readouterr().out.startswith("ok: -" if sign.count("-") % 2 or "(" in sign else "ok: ")


VALUED = [
    (name, option.opts[-1])
    for name, command in cli.shardc.commands.items()
    for option in command.params
    if isinstance(option, click.Option) and not option.is_flag
]


@pytest.mark.instant
@pytest.mark.parametrize(("command", "option"), [*VALUED, *((name, "more") for name in cli.shardc.commands)])
def test_what_is_refused_is_told_as_it_was_given(capsys, command, option):
    """Nothing of how an expression is told from an option."""
    assert cli._status([command, MATMUL, option, "-A[1]", "-B[2]"])
    said = capsys.readouterr().err
    assert said and not any(mark in said for mark in ("\0", "\\0", "x00", "u0000"))


def test_an_option_with_brackets_in_its_value_is_one(shardc, tmp_path):
    for target in ("-oA[1].py", "--output=A[2].py"):
        assert shardc("emit", MATMUL, *MESH, target)[0] == 0
    assert shardc("emit", MATMUL, *MESH, "-o", "-A[3].py")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["-A[3].py", "A[1].py", "A[2].py"]
