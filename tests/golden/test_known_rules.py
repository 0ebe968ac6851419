"""Of drawn shardings each rule says what it said.

A rule says more, or is meant to say something else: `python tests/benchmark/known_rules.py --write`. That what the
rules say is right is for `tests/planner/test_moves.py`, `test_routes.py`, `test_unequal.py` and `test_written.py`.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from known_rules import RULES, SEEDS, known, said

KNOWN = known()


@pytest.mark.instant
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("rule", RULES)
def test_the_rules_say_what_they_said(rule, seed):
    assert said(rule, seed) == KNOWN[rule][seed]
