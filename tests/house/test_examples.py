"""Every example runs; notebooks do in test_notebook.py."""

import subprocess
import sys
from pathlib import Path

import pytest

from shardc import cli

pytestmark = pytest.mark.devices

FILES = sorted(path for path in (Path(__file__).parents[2] / "examples").iterdir() if path.is_file())
PROCESS = "attention.shard"
EXAMPLES = [path for path in FILES if path.suffix != ".ipynb"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path, capsys):
    """A program in this process, which has the eight devices that each asks for: `PROCESS` is one as a user runs it.
    What is Python starts devices by itself."""
    if path.suffix == ".shard" and path.name != PROCESS:
        status = cli._status(["run", str(path)])
        assert status == 0, capsys.readouterr()
        return
    command = ["-m", "shardc", "run", str(path)] if path.suffix == ".shard" else [str(path)]
    result = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


def test_there_are_examples():
    assert {path.suffix for path in EXAMPLES} == {".shard", ".py"}


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.suffix == ".shard"], ids=lambda path: path.name)
def test_an_example_is_emitted_as_ruff_formats_it(path, plan_of):
    source = plan_of(path).source()
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "-"]
    assert subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout == source
