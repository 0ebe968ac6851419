"""The thirty tasks of examples/guide/tasks.md, each in at most two commands, run in a copy of the examples' folder."""

from __future__ import annotations

import re
import shlex
import shutil
from importlib import util
from pathlib import Path

import pytest

from shardc import cli

pytestmark = pytest.mark.devices

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "examples" / "guide" / "tasks.md").read_text(encoding="utf-8")


def tasks() -> list[tuple[str, list[str]]]:
    """Each numbered sentence, with the commands below it."""
    found: list[tuple[str, list[str]]] = []
    for line in PAGE.splitlines():
        if numbered := re.match(r"(\d+)\. (.+)", line):
            assert int(numbered[1]) == len(found) + 1
            found.append((numbered[2], []))
        elif line.startswith("    "):
            found[-1][1].append(line.strip())
    return found


def test_there_are_thirty_each_in_at_most_two_commands() -> None:
    assert len(tasks()) == 30
    assert [task for task, commands in tasks() if not 1 <= len(commands) <= 2] == []
    assert all(command.startswith("shardc ") for _, commands in tasks() for command in commands)


ANSWERS = {  # what the output says to the question, beside that it is there
    1: r"^ok: ",
    3: r"^SHC204: ",
    5: r"equal to NumPy",
    9: r"ReduceScatter_X",
    10: r"(?s)× time.*AllGather_X A; Einsum; Slice_X,K C",
    11: r"AllToAll_X",
    12: r"\(\d\.\d\d× the lower bound\)",
    16: r"communication = compute at B",
    17: r"\* least time: X=\d+, Y=\d+",
    18: r"peak memory +\S+ MB of",
    19: r"(?s)--memory.*\n.*\n.*0\.\d\d ",
    20: r"(?s)^\"\"\".*jax.shard_map",
    22: r"dWin\[",
    26: r"compute",
    27: r"as planned",
    29: r"instead",
}


def cases() -> list[object]:
    """Those that compile take long."""
    compiles = re.compile("shardc (?:run|verify|compare|explain) ")
    return [
        pytest.param(*each, id=each[0][:30], marks=pytest.mark.exhaustive if compiles.search(str(each[1])) else ())
        for each in tasks()
    ]


@pytest.mark.parametrize(("task", "commands"), cases())
def test_a_task(
    task: str, commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--topology" in " ".join(commands) and "plan" not in commands[0] and util.find_spec("libtpu") is None:
        pytest.skip("needs libtpu")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        words, _, target = command.partition(" > ")
        status = cli._status(shlex.split(words)[1:])
        out, err = capsys.readouterr()
        assert status == 0, err
        if target:
            Path(target).write_text(out, encoding="utf-8")
    place = [each for each, _ in tasks()].index(task) + 1
    assert re.search(ANSWERS.get(place, ""), out), f"task {place} is not answered"
    made = [path.name for path in tmp_path.iterdir() if path.name != "examples"]
    written = re.findall(r"(?:-o|>) (\S+)", " ".join(commands))
    assert sorted(made) == sorted(written) and (out or written or "--check" in commands[-1] or "github" in commands[-1])
