"""`shardc check`: every fault of every file, each once, in its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shardc import cli

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
    assert f"warning: {files[1]}: mesh axis `Y` is not used" in result.stderr
    assert result.stderr.count("SHC203") == 1 and "SHC201" not in result.stderr  # what a bad mesh brings is not told
    assert result.return_value == 4 and result.stdout == "ok: A[I_X] → B[I]\nok: A[I] → A[I]\n"


def test_strict_makes_warnings_errors(files: list[str]) -> None:
    assert check(files[1]).return_value == 0
    result = check(files[1], "--strict")
    assert (result.return_value, result.stdout) == (4, "")
    assert f"error: {files[1]}: mesh axis `Y` is not used" in result.stderr
    assert check(files[2], "--strict").return_value == 0


def test_as_json_a_line_each(files: list[str]) -> None:
    result = check(*files[:2], "--json", "--strict")
    errors = [json.loads(line)["error"] for line in result.stderr.splitlines() if line.startswith("{")]
    assert [error["code"] for error in errors][1:] == ["SHC210", "SHC202", "SHC222"]
    assert json.loads(result.stdout)["ok"] is False
