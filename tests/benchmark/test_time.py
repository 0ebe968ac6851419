"""What the benchmark of time draws."""

import pytest

import shardc


def test_cases_are_of_the_seed_and_of_nothing_else(time_bench):
    drawn = time_bench.cases(1, 40, 14)
    assert time_bench.cases(1, 5, 3) == [*drawn[:5], *drawn[40:43]]
    assert time_bench.cases(2, 40, 14) != drawn


def test_cases_are_of_every_slice_and_of_one_to_three_axes_some_idle(time_bench):
    drawn = time_bench.cases(1, 40, 14)
    assert {case.topology for case in drawn} == {*time_bench.MESHES}
    assert {case.mesh.count("=") for case in drawn} == {1, 2, 3}
    idle = [case for case in drawn if any(axis not in _subscripts(case.text) for axis in _axes(case))]
    assert 10 < len(idle) < 44
    products = [case for case in drawn if case.section == time_bench.PRODUCTS]
    assert all(4096 <= size <= 32768 for case in products for size in case.dims.values())


def test_of_few_rows_all_have_few(time_bench):
    for case in time_bench.cases(1, 20, 7, few_rows=True):
        rows = case.dims["I" if case.section == time_bench.PRODUCTS else "B"]
        assert rows in time_bench.ROWS


@pytest.mark.exhaustive
@pytest.mark.parametrize("few_rows", [False, True])
def test_every_case_is_legal(time_bench, few_rows):
    for case in time_bench.cases(3, 5, 5, few_rows):
        shardc.check(case.text, mesh=case.mesh, dims=case.dims, topology=case.topology)


def _axes(case):
    return [part[0] for part in case.mesh.split(",")]


def _subscripts(text):
    return "".join(part.split("]")[0].split(",")[0] for part in text.split("_")[1:])
