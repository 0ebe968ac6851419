"""No move's price, form, formula or memory changes unnoticed.

What is meant to change: `python tests/benchmark/known_prices.py --write`, which prints what differs.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from known_prices import HARDWARE, key, known, prices

KNOWN = known()


@pytest.mark.parametrize(("mesh", "options"), HARDWARE, ids=range(len(HARDWARE)))
def test_moves_cost_what_they_did(mesh, options):
    assert prices(mesh, options) == KNOWN[key(mesh, options)]
