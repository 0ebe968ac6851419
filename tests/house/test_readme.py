"""The README and the pages: each command and program run, its printed output compared; links, names, lengths.

Commands and programs run in this process, which has the eight devices that they ask for; what a page's program says
of devices before JAX starts is run as a user runs it where the whole space is gone through.
"""

import os
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from importlib import util
from pathlib import Path

import jax
import pytest

from shardc import cli

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "examples" / "guide").glob("*.md")),
    ROOT / "tests" / "benchmark" / "README.md",
    ROOT / "shardc" / "README.md",
    ROOT / "shardc" / "testing" / "README.md",
]
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PAGES}
EVERY = "\n".join(TEXTS.values())
FEWER = {"--plans 40": "--plans 6"}  # are enough for the words, and of a page's figures only the words are held
# Commands whose output is partly the TPU compiler's.
COMPILED = re.compile(r"--topology|bench_verify|bench_field")
EMITS = re.compile(r"^# \$ (shardc emit .* -o \w+\.py)$", re.MULTILINE)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(EVERY) if kind == language]


def console_blocks() -> dict[str, str]:
    """The expected output of each `$ …` in a console block; what several pages show is run once."""
    found: dict[str, str] = {}
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            assert found.setdefault(command, output.rstrip()) == output.rstrip(), f"two pages differ: {command}"
    return found


def programs() -> list[str]:
    return list(dict.fromkeys(blocks("python")))


def commands() -> list:
    """Each command with its output; those of a benchmark take long."""
    return [
        pytest.param(*block, marks=pytest.mark.exhaustive if block[0].startswith("python") else (), id=block[0][:60])
        for block in console_blocks().items()
    ]


@pytest.mark.page
@pytest.mark.devices
@pytest.mark.parametrize(("command", "expected"), commands())
def test_a_command_prints_what_the_page_shows(command, expected, capsys, monkeypatch):
    if COMPILED.search(command) and util.find_spec("libtpu") is None:
        pytest.skip("needs libtpu")
    monkeypatch.chdir(ROOT)
    for many, few in FEWER.items():
        command = command.replace(many, few)
    out, err = printed(shlex.split(command), capsys)
    told = [line for line in err.splitlines() if not line.startswith("… ")]  # progress, where it is slow
    shown = "\n".join([out.rstrip(), *told]).strip()
    if COMPILED.search(command):
        shown, expected = shape(shown), shape(expected)
    assert shown == expected


def printed(words: list[str], capsys) -> tuple[str, str]:
    """`compare` tells the compiler's warnings, which it writes if it is asked before it starts: in a process anew."""
    assert words[0] in ("shardc", "python"), "a page shows commands of shardc and of Python"
    if words[0] == "shardc" and words[1] != "compare":
        cli._status(words[1:])
        return capsys.readouterr()
    own = ["-m", "shardc"] if words[0] == "shardc" else []
    result = subprocess.run([sys.executable, *own, *words[1:]], capture_output=True, text=True)
    return result.stdout, result.stderr


def shape(text: str) -> str:
    """What does not change with the compiler's version: the words, not its cycles and bytes, nor columns' widths; nor
    which of the remarks some of many plans got."""
    text = re.sub(r"^normalised:.*", "", text, flags=re.MULTILINE)
    return re.sub(r"[ \-░▒▓█]+", " ", re.sub(r"[\d.,]+ (?:[kMGT]?B|[mµn]?s)\b|[\d.,]+", "#", text))


@pytest.mark.page
@pytest.mark.devices
@pytest.mark.parametrize("text", programs(), ids=lambda value: value[:40])
def test_a_program_of_a_page_runs(text, tmp_path, monkeypatch):
    """Its devices are there already: what it asks for is not more."""
    update = jax.config.update

    def asked(name, value):
        if name == "jax_num_cpu_devices":
            assert value <= jax.device_count()
        else:
            update(name, value)

    monkeypatch.setattr(jax.config, "update", asked)
    monkeypatch.syspath_prepend(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        runpy.run_path(str(written(text, tmp_path)), run_name="__main__")


@pytest.mark.page
@pytest.mark.exhaustive
@pytest.mark.parametrize("text", [text for text in programs() if "jax.config" in text], ids=lambda value: value[:40])
def test_a_program_that_starts_devices_runs_by_itself(text, tmp_path):
    command = [sys.executable, "-W", "error::DeprecationWarning", str(written(text, tmp_path))]
    subprocess.run(command, check=True, cwd=ROOT, timeout=300)


def written(text: str, folder: Path) -> Path:
    """A program as a file, beside those that it says are emitted first: `# $ shardc emit … -o matmul.py`."""
    for command in EMITS.findall(text):
        *words, name = shlex.split(command)
        assert cli._status([*words[1:], str(folder / name)]) == 0
    script = folder / "block.py"
    script.write_text(text, encoding="utf-8")
    return script


def test_every_file_that_a_page_names_is_there():
    """In backquotes as a path of Python or of the notation, or where a link leads."""
    gone = []
    for page, text in TEXTS.items():
        here = (ROOT / page).parent
        named = [path for path in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|shard))`", text)]
        gone += [path for path in named if not any((ROOT / place / path).exists() for place in ("shardc", "."))]
        linked = [path for path in re.findall(r"\]\(([^)#]+)", text) if not path.startswith("http")]
        gone += [path for path in linked if not Path(os.path.normpath(here / path)).is_file()]
    assert gone == []
    assert len(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", EVERY)) > 20


SAID_TO_BE_IN = re.compile(r"`([A-Za-z_]\w*)` (?:in|of) `((?:[a-z_]+/)*[a-z_]+\.py)`")


def test_what_a_page_says_to_be_in_a_file_is_made_there():
    """`overlapped` stood in another file than the guide said, for weeks."""
    said = {pair for text in TEXTS.values() for pair in SAID_TO_BE_IN.findall(text)}
    gone = []
    for name, path in sorted(said):
        files = [file for file in (ROOT / "shardc").rglob("*.py") if file.as_posix().endswith(f"/{path}")]
        made = re.compile(rf"^(?:    )?(?:def |class )?{name}\b[ :(=]|import [^\n]*\b{name}\b", re.MULTILINE)
        if not any(made.search(file.read_text(encoding="utf-8")) for file in files):
            gone.append((name, path))
    assert gone == [] and len(said) > 8


def test_every_page_is_in_the_table_of_the_readme():
    linked = set(re.findall(r"\]\((\S+\.md)\)", TEXTS["README.md"]))
    assert linked == set(TEXTS) - {"README.md"}


def test_no_page_is_long():
    """The README as it stands; of a page what is not printed by a command."""
    assert len(TEXTS["README.md"].split()) <= 900
    words = {page: len(BLOCK.sub("", text).split()) for page, text in TEXTS.items() if page.startswith("examples/")}
    assert {page: count for page, count in words.items() if count > 1200} == {}


def test_there_is_something_to_check():
    assert len(console_blocks()) >= 12
    assert len(programs()) >= 8
