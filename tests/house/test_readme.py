"""Every command and program of the README and of the guide inside, run, and its printed output compared."""

import re
import shlex
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

pytestmark = pytest.mark.devices

ROOT = Path(__file__).parents[2]
GUIDES = ("README.md", "shardc/README.md", "shardc/testing/README.md")
README = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in GUIDES)
# Commands whose output is partly the TPU compiler's.
COMPILED = re.compile(r"--topology|bench_verify|bench_field")
SKIPPED = ("pip install", "git clone", "pytest", "python -m venv", "ruff", "mypy", ".ci/run")


def console_blocks() -> list[tuple[str, str]]:
    """(command, expected output) of each `$ …` in a console block."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output.rstrip()))
    return found


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def commands() -> list:
    """Each command with its output; those of a benchmark take long."""
    return [
        pytest.param(*block, marks=pytest.mark.exhaustive if block[0].startswith("python") else (), id=block[0][:60])
        for block in console_blocks()
    ]


@pytest.mark.parametrize(("command", "expected"), commands())
def test_a_command_prints_what_the_readme_shows(command, expected):
    if command.startswith(SKIPPED):
        pytest.skip("installs or tests all there is: .ci/run does that")
    if COMPILED.search(command) and util.find_spec("libtpu") is None:
        pytest.skip("needs libtpu")
    words = shlex.split(command)
    program = {"shardc": ["-m", "shardc"], "python": []}[words[0]]
    result = subprocess.run([sys.executable, *program, *words[1:]], capture_output=True, text=True, cwd=ROOT)
    told = (line for line in result.stderr.splitlines() if not line.startswith("… "))  # progress, where it is slow
    printed = (result.stdout + "\n".join(told)).rstrip()
    if COMPILED.search(command):
        printed, expected = shape(printed), shape(expected)
    assert printed == expected


def shape(text: str) -> str:
    """What does not change with the compiler's version: the words, not its cycles and bytes, nor columns' widths."""
    return re.sub(r"[ \-░▒▓█]+", " ", re.sub(r"[\d.,]+ (?:[kMGT]?B|[mµn]?s)\b|[\d.,]+", "#", text))


@pytest.mark.parametrize("text", python_blocks(), ids=lambda value: value[:40])
def test_a_program_of_the_readme_runs(text, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning", script], check=True, cwd=ROOT, timeout=300)


def test_every_file_that_the_guide_names_is_there():
    text = (ROOT / "shardc" / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", text)
    assert len(named) > 20
    assert [path for path in named if not any((ROOT / place / path).exists() for place in ("shardc", "."))] == []


def test_the_readme_has_something_to_check():
    assert len(console_blocks()) >= 4
    assert python_blocks()
