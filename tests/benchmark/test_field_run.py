"""The benchmark against the field: its plans executed on simulated devices, each number of them in a process."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.devices


@pytest.mark.exhaustive
def test_plans_are_executed_and_equal_on_every_shard(field, tmp_path):
    file = tmp_path / "rows.json"
    command = [sys.executable, field.__file__, "--quick", "--reshards", "1", "--no-tpu", "--run", "--json", file]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert printed.returncode == 0, printed.stderr
    rows = json.loads(file.read_text(encoding="utf-8"))["cases"]
    assert {row["section"] for row in rows} == {field.RESHARDS, field.ELSEWHERE, field.REPORTED, field.MATMULS}
    for row in rows:
        assert row["run bytes"]["equal"] and row["run time"]["equal"], row["text"]
        assert "xla" not in row and row["cpu"] >= row.get("bound", 0)
    assert "plans executed that differ from NumPy" in printed.stdout


@pytest.mark.exhaustive
def test_a_child_that_dies_costs_one_case(field):
    """The second case asks for a mesh that its dims do not fit: an error in the child; the others are not lost."""
    (good,) = (case for case in field.cases(0, 0, 1) if case.section == field.MATMULS)
    bad = field.Case(field.MATMULS, good.text, good.mesh, "I=3,J=5,K=7", good.topology)
    first, second, third = field.simulated([good, bad, good], run=False)
    assert first == third and first["cpu"] >= 0
    assert "SHC204" in second["died"]
