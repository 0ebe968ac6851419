"""`shardc check`: every fault of every file, each once, in its place."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner, Result

from shardc import cli
from shardc.commands.checking import annotation

MANY = """mesh X=4
A[I_X, J] · B[J, K → C[I, K]
D[I] = relu(E[I, J])
F[I_X, J_X] → G[I, J]
H = tanhh(C)
G2[I] = M[I_X]
K[I] = D
"""


def check(*arguments: str) -> Result:
    return CliRunner().invoke(cli.shardc, ["check", *arguments], standalone_mode=False)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    texts = [MANY, "mesh X=2, Y=2\nA[I_X] → B[I]\n", "A[I] → A[I]\n", "mesh X=0\nA[I_Z] → B[I]\n"]
    found = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.shard"
        path.write_text(text, encoding="utf-8")
        found.append(str(path))
    return found


def test_every_fault_is_told_in_its_place_and_once(files: list[str]) -> None:
    """Of six statements four have a fault; what uses a result that was left out is none of them."""
    result = check(files[0])
    places = [line.rpartition(".shard:")[2] for line in result.stderr.splitlines() if "-->" in line]
    codes = [line[6:12] for line in result.stderr.splitlines() if line.startswith("error[")]
    assert codes == ["SHC103", "SHC210", "SHC202", "SHC222"]
    assert [place.split(":")[0] for place in places] == ["2", "3", "4", "5"]
    for line in MANY.splitlines()[1:5]:
        assert f"  | {line}" in result.stderr.splitlines()
    assert result.return_value in (3, 4) and result.stdout == ""


def test_every_file_is_named_and_the_worst_status_is_left(files: list[str]) -> None:
    result = check(*files)
    for number in (0, 1, 3):
        assert f"{number}.shard" in result.stderr
    assert f"warning: {files[1]}: the text shards nothing over mesh axis `Y`" in result.stderr
    assert result.stderr.count("SHC203") == 1 and "SHC201" not in result.stderr  # what a bad mesh brings is not told
    assert result.return_value == 4 and result.stdout == "ok: A[I_X] → B[I]\nok: A[I] → A[I]\n"


def test_strict_makes_warnings_errors(files: list[str]) -> None:
    assert check(files[1]).return_value == 0
    result = check(files[1], "--strict")
    assert (result.return_value, result.stdout) == (4, "")
    assert f"error: {files[1]}: the text shards nothing over mesh axis `Y`" in result.stderr
    assert check(files[2], "--strict").return_value == 0


def test_as_json_a_line_each(files: list[str]) -> None:
    result = check(*files[:2], "--json", "--strict")
    errors = [json.loads(line)["error"] for line in result.stderr.splitlines()]
    assert [error["code"] for error in errors][1:] == ["SHC210", "SHC202", "SHC222", None]
    assert errors[-1]["file"] == files[1] and "mesh axis `Y`" in errors[-1]["message"]
    said = json.loads(result.stdout)
    assert said["ok"] is False and said["file"] == files[1]


def test_annotations_of_github(files: list[str]) -> None:
    """A line for each fault and warning, in its place, whatever is in the message."""
    result = check(*files, "--format", "github")
    lines = result.stdout.splitlines()
    assert result.return_value == 4 and result.stderr == ""
    assert [line.rpartition("title=")[2][:6] for line in lines if line.startswith("::error")] == [
        "SHC103", "SHC210", "SHC202", "SHC222", "SHC203",
    ]  # fmt: skip
    assert lines[2].startswith(f"::error file={files[0]},line=4,col=10,endColumn=10,title=SHC202::mesh axis `X`")
    assert f"::warning file={files[1]}::the text shards nothing over mesh axis `Y`" in lines
    assert check(files[1], "--strict", "--format", "github").stdout.startswith("::error file=")


def test_an_annotation_escapes_what_would_end_it() -> None:
    assert annotation("error", "a,b:c%.shard", "50 %\nnext\x1b") == (
        "::error file=a%2Cb%3Ac%25.shard::50 %25%0Anext\\u001b"
    )


def test_sarif(files: list[str]) -> None:
    """One run, a rule for each code, a result for each fault and warning, each region as in the text."""
    result = check(*files, "--format", "sarif")
    log = json.loads(result.stdout)
    [run] = log["runs"]
    assert (log["version"], run["columnKind"], result.return_value) == ("2.1.0", "unicodeCodePoints", 4)
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == sorted(set(rules)) == sorted({each["ruleId"] for each in run["results"]})
    assert run["tool"]["driver"]["version"]
    found = {}
    for each in run["results"]:
        [place] = each["locations"]
        region = place["physicalLocation"].get("region")
        path = unquote(place["physicalLocation"]["artifactLocation"]["uri"].removeprefix("file://"))
        assert path in files and each["message"]["text"]
        if region is not None and region["startLine"] == region["endLine"]:
            line = Path(path).read_text(encoding="utf-8").splitlines()[region["startLine"] - 1]
            found[each["ruleId"]] = line[region["startColumn"] - 1 : region["endColumn"] - 1]
    assert found["SHC202"] == "X" and found["SHC222"] == "tanhh" and "SHC203" in found
    assert [each["level"] for each in run["results"]].count("warning") == 1


def test_a_file_of_a_log_is_named_as_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a URI: one from the root has a scheme, since what begins with a slash is put behind another's folder."""
    path = tmp_path / "a b.shard"
    path.write_text("A[I", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for given, uri in ((str(path), path.as_uri()), (path.name, "a%20b.shard")):
        [result] = json.loads(check(given, "--format", "sarif").stdout)["runs"][0]["results"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_a_hook_runs_a_command_that_there_is() -> None:
    text = (Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    entries = [line.split()[-1] for line in text.splitlines() if line.strip().startswith("entry: shardc")]
    assert entries == ["check", "fmt"] and set(entries) <= set(cli.shardc.commands)


def test_fmt_rewrites_files_once(tmp_path: Path) -> None:
    path = tmp_path / "a.shard"
    path.write_text("A[I_X,J]->B[I, J]   # why\n", encoding="utf-8")
    fmt = ["fmt", str(path)]
    asked = CliRunner().invoke(cli.shardc, [*fmt, "--check"], standalone_mode=False)
    assert asked.return_value == 1 and "would rewrite" in asked.stderr and "->" in path.read_text(encoding="utf-8")
    assert CliRunner().invoke(cli.shardc, fmt, standalone_mode=False).return_value == 0
    assert path.read_text(encoding="utf-8") == "A[I_X, J] → B[I, J]  # why\n"
    again = CliRunner().invoke(cli.shardc, [*fmt, "--check"], standalone_mode=False)
    assert (again.return_value, again.stdout, again.stderr) == (0, "", "")
    shown = CliRunner().invoke(cli.shardc, ["fmt", "A[I]*B[I]->C[]"], standalone_mode=False)
    assert shown.stdout == "A[I] · B[I] → C[]\n"
