"""`shardc help`: every code has a meaning and an example that raises it; every option of every command has help."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import shardc
from shardc import cli
from shardc.commands.codes import MEANINGS
from shardc.errors import CODES
from shardc.machines import tpu

pytestmark = pytest.mark.devices

ROOT = Path(__file__).parents[2]
Prepare = Callable[[pytest.MonkeyPatch], object]


def has(name: str, text: str | bytes) -> Prepare:
    return lambda _: Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())


def broken(*_arguments: object, **_options: object) -> None:
    raise ZeroDivisionError("planted")


def unreadable(self: object, **_options: object) -> str:
    raise jax.errors.JaxRuntimeError("INTERNAL: planted")


def impatient(patch: pytest.MonkeyPatch) -> None:
    os.mkfifo("pipe.shard")
    patch.setattr("shardc.io.files.PATIENCE", 0.05)


# What makes each `where` so; in the folder of the test.
WHERE: dict[str, Prepare] = {
    "": lambda _: None,
    "latin.shard has a byte 0xff": has("latin.shard", b"A[I] \xff A[I]"),
    "JAX has started with eight devices": lambda _: jax.devices(),
    "JAX 0.9.2 is installed": lambda patch: patch.setattr("importlib.metadata.version", lambda _: "0.9.2"),
    "libtpu is not installed": lambda patch: patch.setattr(tpu, "is_installed", lambda: False),
    "libtpu prints something else": lambda patch: patch.setattr(jax.stages.Compiled, "as_text", unreadable),
    "drawsvg is not installed": lambda patch: patch.setitem(sys.modules, "drawsvg", None),  # type: ignore[arg-type]
    "big.shard has 70,000 characters": has("big.shard", "A[I] → A[I]" + " " * 70_000),
    "long.shard adds 1,001 arrays": has("long.shard", " + ".join(["A[I]"] * 1001) + " → C[I]"),
    "deep.shard has 51 brackets in one another": has("deep.shard", "relu(" * 51 + "A[I]" + ")" * 51 + " → C[I]"),
    "out.py exists": has("out.py", ""),
    "in.shard is a program": has("in.shard", "mesh X=4\nA[I_X] → A[I]\n"),
    "pipe.shard is a pipe that nobody writes to": impatient,
    "the planner has a fault": lambda patch: patch.setattr("shardc.api.plan_with_subaxes", broken),
}
LONG = {"SHC310"}  # starts processes


def test_every_code_has_its_meaning() -> None:
    assert list(MEANINGS) == sorted(CODES)
    assert {meaning.where for meaning in MEANINGS.values()} == set(WHERE)


def codes() -> list[object]:
    return [pytest.param(code, marks=pytest.mark.exhaustive if code in LONG else ()) for code in MEANINGS]


@pytest.mark.parametrize("code", codes())
def test_the_example_of_a_code_raises_it(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    meaning = MEANINGS[code]
    monkeypatch.chdir(tmp_path)
    WHERE[meaning.where](monkeypatch)
    first, _, rest = meaning.example.partition(" ")
    if first == "shardc":
        cli._status(shlex.split(rest))
        assert f"error[{code}]" in capsys.readouterr().err
    elif first == "python":
        told = subprocess.run([sys.executable, *shlex.split(rest)], capture_output=True, text=True, cwd=ROOT)
        assert f"error[{code}]" in told.stderr
    else:
        with pytest.raises(shardc.ShardcError) as caught:
            exec(meaning.example, {"shardc": shardc, "jax": jax, "jnp": jnp})
        assert caught.value.code == code


@pytest.mark.parametrize("code", CODES)
def test_help_tells_what_is_in_the_table(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And of an expression what is said of it, so that nothing else can be shown."""
    for spelt in (code, code.lower(), code[3:]):
        assert cli._status(["help", spelt]) == 0
        told = capsys.readouterr().out
        assert told.startswith(f"{code}: {CODES[code]} (exit status ") and MEANINGS[code].why in told
        assert all(line in told for line in MEANINGS[code].example.splitlines())
        shown = MEANINGS[code].example.startswith("shardc check ") and not MEANINGS[code].where
        assert (f"error[{code}]: " in told) == shown


def test_help_of_a_command_and_of_what_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._status(["help", "plan"]) == 0 and "Usage: shardc plan" in capsys.readouterr().out
    assert cli._status(["help"]) == 0 and "completion" in capsys.readouterr().out
    assert cli._status(["help", "codes"]) == 0 and len(capsys.readouterr().out.splitlines()) == len(CODES)
    assert cli._status(["help", "exlpain"]) == 2 and "did you mean `explain`" in capsys.readouterr().err


def test_every_command_and_every_option_has_help() -> None:
    assert {name for name, command in cli.shardc.commands.items() if not command.help} == set()
    options = [
        (name, option.name)
        for name, command in cli.shardc.commands.items()
        for option in command.params
        if getattr(option, "help", "") in (None, "") and option.param_type_name == "option"
    ]
    assert options == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_what_there_is(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The script is read by the shell, if it is there; what it asks is answered with commands, options and choices."""
    assert cli._status(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_SHARDC_COMPLETE" in script
    for words, wanted in (
        (["che"], "check"),
        (["plan", "--objec"], "--objective"),
        (["plan", "--objective", "b"], "bytes"),
        (["plan", "--chip", "v5"], "v5p"),
        (["plan", "--dtype", "f8"], "f8_e4m3fn"),
        (["help", "shc20"], "SHC204"),
    ):
        line = shlex.join(["shardc", *words])
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words)) if shell != "fish" else words[-1]}
        told = asked_by(shell, asked)
        assert wanted in told, told


def asked_by(shell: str, asked: dict[str, str]) -> str:
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    with pytest.MonkeyPatch.context() as patch:
        for name, value in asked.items():
            patch.setenv(name, value)
        return found(cli.shardc, {}, "shardc", "_SHARDC_COMPLETE").complete()
