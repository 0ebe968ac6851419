"""The benchmark against the field on a few cases, with the TPU's compiler: what its figures must obey."""

import json
import os
import subprocess
import sys
from math import isclose

import pytest

pytest.importorskip("libtpu")

pytestmark = pytest.mark.tpu


def printed_and_figures(field, folder):
    """What it prints, and every figure."""
    file = folder / "rows.json"
    command = [sys.executable, field.__file__, "--quick", "--seed", "7", "--worst", "2", "--json", file]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TPU_")}  # set by other tests
    printed = subprocess.run(command, capture_output=True, text=True, env=ours, timeout=600)
    assert printed.returncode == 0 and "Error" not in printed.stderr, printed.stderr
    return printed.stdout, json.loads(file.read_text(encoding="utf-8"))["cases"]


def nothing_moves_fewer_bytes_than_the_bound(quick):
    for row in quick[1]:
        if "bound" in row:
            figures = [row["bytes"]["planned"], row["bytes"]["wire_bytes"], row["time"]["planned"]]
            assert min(*figures, row["xla"]["wire_bytes"], row["cpu"]) >= row["bound"], row["text"]


def what_is_planned_is_what_is_compiled(field, quick):
    for row in quick[1]:
        if row["section"] != field.MATMULS:  # where the compiler may sum whole what is scattered
            for objective in field.OBJECTIVES:
                side = row[objective]
                assert isclose(side["wire_bytes"], side["planned"], rel_tol=0.01), (objective, row["text"])


def each_objective_is_best_at_its_own(quick):
    """By time the search keeps to the axes that the case writes, by bytes it may use the others as well."""
    for row in quick[1]:
        assert row["bytes"]["planned"] <= row["time"]["planned"], row["text"]
        if all(f"{axis[0]}" in row["text"] for axis in row["mesh"].split(",")):
            assert row["time"]["priced_s"] <= row["bytes"]["priced_s"] * (1 + 1e-9), row["text"]


def every_section_is_printed_with_its_worst_cases_and_what_is_stated(field, quick):
    printed, rows = quick
    for section in (field.RESHARDS, field.ELSEWHERE, field.REPORTED, field.MATMULS):
        assert f"\n{section}\n" in printed
        assert any(row["section"] == section for row in rows)
    assert not any(key in row for row in rows for key in ("refused", "died"))
    assert printed.count("planned by bytes in") == 4
    assert "worst: " in printed and "XLA for the TPU warns of a full rematerialization" in printed
    assert "matmuls: cases planned above XLA's wire bytes" in printed
    assert "executed" not in printed


def the_reported_sharding_makes_xla_replicate_and_is_caught(quick):
    (row,) = (row for row in quick[1] if row["text"] == "A[B_Y, S, H_X] → A[B, S_XY, H]")
    assert row["xla"]["warns"]
    assert row["xla"]["wire_bytes"] == 7 * 64 * 512 * 512 * 2 // 8  # all that lies on the seven others
    assert row["bytes"]["wire_bytes"] < row["xla"]["wire_bytes"] // 4


@pytest.mark.long
def test_what_it_prints_obeys_these(field, tmp_path):
    """One test, since each would wait for the same compiler."""
    quick = printed_and_figures(field, tmp_path)
    nothing_moves_fewer_bytes_than_the_bound(quick)
    what_is_planned_is_what_is_compiled(field, quick)
    each_objective_is_best_at_its_own(quick)
    every_section_is_printed_with_its_worst_cases_and_what_is_stated(field, quick)
    the_reported_sharding_makes_xla_replicate_and_is_caught(quick)
