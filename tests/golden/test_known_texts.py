"""No text of what is done as one, or left to XLA, changes unnoticed, and no callable does anything else.

What is meant to change: `python tests/benchmark/known_texts.py --write`, which prints what differs. That a text is
right is for the proof: `tests/emit/test_together.py`.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from known_texts import cases, known, said

AT_ONCE = 5
KNOWN, CASES = known(), [*cases()]


def marked(place):
    return pytest.param(place, id=str(place), marks=[pytest.mark.exhaustive] if place // AT_ONCE % 4 else [])


@pytest.mark.parametrize("place", [marked(place) for place in range(0, len(CASES), AT_ONCE)])
def test_texts_are_as_known(place):
    for text, options in CASES[place : place + AT_ONCE]:
        assert said(text, options) == KNOWN[f"{text} {options}"], (text, options)


def test_every_way_is_met():
    ways = Counter(line.partition(": ")[0] for lines in KNOWN.values() for line in lines)
    said = ("as a ring", "by number", "as two rings", "in chunks", "left to XLA", "by XLA", "each product as one")
    assert all(sum(count for way, count in ways.items() if way.endswith(words)) >= 4 for words in said), ways
