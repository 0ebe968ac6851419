"""No mesh lies otherwise on its hardware, and no group has more or less of its links, unnoticed.

What is meant to change: `python tests/benchmark/known_links.py --write`, which prints what differs. That a mesh lies as
JAX lays it is for `tests/cost/test_orders.py`, that links carry what is priced for `tests/cost/test_carried.py`.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from known_links import key, known, layouts, said

AT_ONCE = 10
KNOWN, LAYOUTS = known(), layouts()


def marked(place):
    return pytest.param(place, id=str(place), marks=[pytest.mark.exhaustive] if place // AT_ONCE % 4 else [])


@pytest.mark.parametrize("place", [marked(place) for place in range(0, len(LAYOUTS), AT_ONCE)])
def test_layouts_are_as_known(place):
    for mesh, options in LAYOUTS[place : place + AT_ONCE]:
        assert said(mesh, options) == KNOWN[key(mesh, options)], (mesh, options)


def test_some_are_refused_and_most_are_not():
    refused = [lines for lines in KNOWN.values() if lines[0].startswith("SHC")]
    assert 20 < len(refused) < len(KNOWN) / 4
