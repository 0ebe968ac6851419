"""No move's price, form, formula or memory changes unnoticed.

What is meant to change: `python tests/benchmark/known_prices.py --write`, which prints what differs.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from known_prices import HARDWARE, chips, key, known, prices, products

KNOWN = known()


def marked(place, case):
    return pytest.param(*case, id=str(place), marks=[pytest.mark.exhaustive] if place % 2 else [])


@pytest.mark.parametrize(("mesh", "options"), [marked(*each) for each in enumerate(HARDWARE)])
def test_moves_cost_what_they_did(mesh, options):
    assert prices(mesh, options) == KNOWN[key(mesh, options)]


def test_chips_are_as_their_sources_have_them():
    assert chips() == KNOWN["chips"]


def test_products_take_what_they_did():
    assert products() == KNOWN["products"]
