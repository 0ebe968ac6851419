"""The benchmark against the field: what it draws, how it counts, what it says; and the page's table of it."""

import re
from collections import Counter
from math import inf, isclose, prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

PAGE = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
SEEDS = st.integers(0, 2**32)
SIZES = st.integers(0, 10**9)


def of(cases, section):
    return [case for case in cases if case.section == section]


@given(seed=SEEDS)
def test_a_seed_means_the_same_cases_and_more_of_them_begin_with_fewer(field, seed):
    few, many = field.cases(seed, 3, 2), field.cases(seed, 40, 9)
    assert many == field.cases(seed, 40, 9)
    for section in (field.RESHARDS, field.MATMULS):
        short = of(few, section)
        assert short and short == of(many, section)[: len(short)]
    assert of(few, field.REPORTED) == of(many, field.REPORTED) == list(field.REPORTS)


@given(seed=SEEDS)
def test_quick_leaves_out_what_needs_many_devices(field, seed):
    every, quick = (field.cases(seed, 2, 2, quick=quick) for quick in (False, True))
    left = [case for case in every if case not in quick]
    assert left and all(case.devices > 8 for case in left)
    sections = {case.section for case in quick}
    assert sections == {field.RESHARDS, field.ELSEWHERE, field.REPORTED, field.MATMULS}


@settings(max_examples=5)
@given(seed=SEEDS)
def test_what_is_drawn_is_legal_at_both_sizes(field, seed):
    for case in field.cases(seed, 1, 1, quick=True):
        for found in (field.planned(case, "bytes")[0], field.to_run(case, "bytes")):
            assert found.schedule.mesh.devices == case.devices
            assert found.cost.wire_bytes >= found.bound_bytes


def test_every_sharding_is_as_likely(field):
    """49 of them, twice a case: within five standard deviations of the mean."""
    reshards = of(field.cases(0, 2450, 0), field.RESHARDS)
    drawn = Counter(side.removeprefix("A") for case in reshards for side in case.text.split(" → "))
    assert len(drawn) == 49
    assert all(abs(count - 100) < 50 for count in drawn.values())


@given(pairs=st.lists(st.tuples(SIZES, SIZES), max_size=8))
def test_ratios_are_counted_as_the_docstring_says(field, pairs):
    found = field.ratio_of(pairs)
    both = [a / b for a, b in pairs if a and b]
    assert found.cases == len(pairs)
    assert found.above >= sum(a > 0 == b for a, b in pairs)
    if both:
        assert min(both) * (1 - 1e-9) <= found.mean <= max(both) * (1 + 1e-9) and found.largest >= max(both)
        assert isclose(found.mean ** len(both), prod(both), rel_tol=1e-6)
    assert (found.largest == inf) == any(a > 0 == b for a, b in pairs)


@pytest.mark.parametrize(
    ("pairs", "counted"),
    [([(1, 4), (8, 2), (0, 6), (3, 3)], (4, 1.0, 4.0, 0.8, 1)), ([(0, 0)], (1, 1.0, 1.0, 1.0, 0))],
)
def test_a_ratio_by_hand(field, pairs, counted):
    assert field.ratio_of(pairs) == field.Ratio(*counted)


def row(field, ours, **more):
    side = {"planned": ours, "wire_bytes": ours, "temporary": ours, "largest": 10, "plan_s": 0.0, "steps": []}
    side |= {"priced_s": ours, "replayed_s": ours, "communication_s": ours, "collectives": []}
    case = {"section": field.RESHARDS, "text": "A[I_X] → A[I]", "mesh": "X=4", "dims": "I=8"}
    theirs = side | {"wire_bytes": 20, "replayed_s": 20, "communication_s": 20, "warns": False}
    return case | {"bound": 10, "cpu": 20, "bytes": side, "time": side, "xla": theirs} | more


def answers(field, rows):
    return {what: answer for what, _, _, answer in field.stated(rows)}


def test_a_broken_promise_is_named(field):
    kept = answers(field, [row(field, 30)])
    assert len(kept) == 7 and set(kept.values()) == {"NO"}
    unequal = answers(field, [row(field, 10, **{"run bytes": {"equal": False, "as planned": True}})])
    assert unequal.pop("plans executed that differ from NumPy") == "NO"
    assert set(unequal.values()) == {"yes"}
    fine = answers(field, [row(field, 10, **{"run bytes": {"equal": True, "as planned": True}})])
    assert len(fine) == 8 and set(fine.values()) == {"yes"}


def test_the_worst_cases_come_first_and_as_many_as_asked_for(field):
    rows = [row(field, ours, text=f"case {ours}") for ours in (25, 50, 10, 40)]

    def shown(rows, count):
        return [tuple(line.split()[:3:2]) for line in field.worst(rows, field.BYTES, count) if "case" in line]

    assert shown(rows, 2) == [("2.500", "50"), ("2.000", "40")]
    assert shown(rows, 9) == [("2.500", "50"), ("2.000", "40"), ("1.250", "25")]  # those above 1
    assert shown(rows[2:3], 9) == [("0.500", "10")]  # or, of none, the largest
    assert "worst" in "".join(field.report(rows, 1)) and "worst" not in "".join(field.report(rows, 0))


def test_the_page_shows_the_lines_that_are_printed(field):
    """The figures take many minutes to find, and are not found here."""
    (shown,) = re.findall(r"```text\n\$ python tests/benchmark/bench_field.py .*?```", PAGE, re.DOTALL)
    promises = {"matmuls": field.MATMULS, "reshards": field.RESHARDS}
    run = {"run bytes": {"equal": True, "as planned": True}}
    rows = [row(field, 10, section=section) | run for section in promises.values()]
    labels = {label for label, _ in field.RATIOS} | {what for what, *_ in field.stated(rows)}
    printed = {line.split("  ")[0] for line in shown.splitlines() if re.search(r"\s\d+\.\d{3}\s|  (yes|NO)$", line)}
    assert printed == labels
    assert all(f"\n{part}\n" in shown for part in (field.RESHARDS, field.REPORTED, field.MATMULS))
