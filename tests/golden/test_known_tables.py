"""What plans are chosen from is as it was: tables, prices between nodes, routes and bounds, groups of steps.

Meant to be another: `python tests/benchmark/known_tables.py --write`. That plans are no dearer is
for `test_best_known.py`; that tables are right for `tests/planner/test_laws.py`, `test_between.py` and `test_nodes.py`.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from known_tables import known, programs, said

QUICK = 8  # of so many programs one is in a plain run
KNOWN, PROGRAMS = known(), programs()


def marked(place, name):
    return pytest.param(name, id=name, marks=[pytest.mark.exhaustive] if place % QUICK else [])


@pytest.mark.parametrize("name", [marked(place, name) for place, name in enumerate(PROGRAMS)])
def test_what_is_chosen_from_is_as_known(name):
    assert said(PROGRAMS[name]) == KNOWN[name]
