"""Faults planted in compiled programs are found, and right programs accepted: a part of bench_faults.py.

What it can tell apart: the same table with what is allowed a hundred times as large does not find them all.
"""

import sys
from importlib import util
from pathlib import Path

import pytest

from shardc.simulate import tolerance

pytestmark = pytest.mark.devices

PLACE = Path(__file__).parents[1] / "benchmark" / "bench_faults.py"


@pytest.fixture(scope="module")
def bench():
    spec = util.spec_from_file_location("bench_faults", PLACE)
    module = sys.modules["bench_faults"] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_all_found(bench, name, dtype, seeds):
    (tried,) = (tried for tried in bench.PROGRAMS if tried.name == name)
    table, fine = bench.table(seeds, (tried,), (dtype,))
    assert fine, table
    return table


def test_planted_faults_are_found_and_right_programs_accepted(bench):
    table = assert_all_found(bench, "product, scattered", "bf16", 2)
    assert table.count(" found") >= 3


@pytest.mark.parametrize("fault", ["softmax by a constant", "softmax over another dim", "a dropped scale"])
def test_faults_of_attention_are_found(bench, fault):
    (tried,) = (tried for tried in bench.PROGRAMS if tried.name == "attention")
    report = bench.Trial.of(tried, "bf16").with_fault(fault)
    assert report.verdict.value == "not equal", report


@pytest.mark.parametrize("fault", ["a maximum of its own", "a mask inverted", "positions from 0 on every device"])
def test_faults_of_a_softmax_over_a_sharded_dim_are_found(bench, fault):
    (tried,) = (tried for tried in bench.PROGRAMS if tried.name == "attention, sharded sequence")
    report = bench.Trial.of(tried, "f32").with_fault(fault)
    assert report.verdict.value == "not equal", report


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("place", range(8))
def test_every_fault_is_found_in_every_program(bench, place, dtype):
    assert len(bench.PROGRAMS) == 8
    assert_all_found(bench, bench.PROGRAMS[place].name, dtype, 3)


@pytest.mark.parametrize("text", ["C[I] = sqrt(A[I, J_X] · B[J_X] - 1000)", "C[I] = (A[I, J_X] · B[J_X]) > 1000"])
def test_a_fault_that_nothing_could_show_is_not_called_equal(bench, text):
    trial = bench.Trial.of(bench.Tried("dead", text, "I=64,J=64"), "f32")
    for report in (trial.report(trial.compiled(), 0), trial.with_fault("a sum halved")):
        assert report.verdict.value == "not checkable", report
    assert "would be with other inputs" in str(report) or "tells nothing" in str(report)


def test_a_factor_that_signs_do_not_show_is_said(bench):
    """That a part is left out they do show."""
    trial = bench.Trial.of(bench.Tried("signs", "C[I] = (A[I, J_X] · B[J_X]) > 0", "I=64,J=64"), "f32")
    report = trial.with_fault("a sum halved")
    assert report.ok and "a sum off by a factor would not show" in str(report)
    assert trial.with_fault("a part left out of a sum").verdict.value == "not equal"


def test_a_loosened_tolerance_does_not_find_them(bench, monkeypatch):
    """Of a sum that is rounded: where nothing is, nothing is allowed however loose it is."""
    monkeypatch.setattr(tolerance, "RMS_FACTOR", 100 * tolerance.RMS_FACTOR)
    monkeypatch.setattr(tolerance, "ELEMENT_FACTOR", 100 * tolerance.ELEMENT_FACTOR)
    trial = bench.Trial.of(bench.PROGRAMS[1], "bf16")
    report = trial.with_fault("a sum halved")
    assert report.verdict.value == "not checkable", "and where it could pass, it is not called equal"
