"""No bound falls, and none rises unnoticed: of programs, of products, and from one sharding to all others.

A bound rose: `python tests/benchmark/known_bounds.py --write`, which prints what differs. That none is too high is for
`tests/planner/test_bounds.py`.
"""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from known_bounds import bounds, known, searched

from shardc.planner import Objective

AT_ONCE = 20
QUICK = 12  # of a plain run, so many times
KNOWN = known()
PROGRAMS = KNOWN["programs"][::2] + KNOWN["programs"][1::2]  # of each kind some are quick


def marked(place):
    marks = [pytest.mark.exhaustive] if place >= QUICK else []
    return pytest.param(place * AT_ONCE, id=str(place), marks=marks)


@pytest.mark.parametrize("first", [marked(place) for place in range(-(-len(PROGRAMS) // AT_ONCE))])
def test_a_programs_bounds_are_as_known(first):
    for case in PROGRAMS[first : first + AT_ONCE]:
        found = json.loads(json.dumps(bounds(case["text"], case["mesh"], case["dims"])))
        assert case | found == case


@pytest.mark.instant
@pytest.mark.parametrize("case", KNOWN["searched"], ids=lambda case: f"{case['chip']} {case['objective']}")
def test_what_no_path_is_cheaper_than_is_as_known(case):
    assert searched(case["mesh"], case["chip"], Objective[case["objective"]]) == case["sums"]
