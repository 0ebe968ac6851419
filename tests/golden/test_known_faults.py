"""Of plans and programs with one thing changed, `ir.legal` says what it said.

What it says got better: `python tests/benchmark/known_faults.py --write`, which prints what differs.
"""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from known_faults import TABLE, TEXTS, said

KNOWN = json.loads(TABLE.read_text(encoding="utf-8"))


@pytest.mark.instant
@pytest.mark.parametrize("seed", range(len(TEXTS)))
def test_the_same_is_said_of_each_change(seed):
    text, options = TEXTS[seed]
    assert said(text, options, seed) == KNOWN[text]


def test_many_changes_are_faults():
    assert sum(len(lines) for lines in KNOWN.values()) > 40 * len(TEXTS)
