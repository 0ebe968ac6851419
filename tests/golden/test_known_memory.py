"""No program takes more or less memory, and no array of a training step is of another kind, unnoticed.

What is meant to change: `python tests/benchmark/known_memory.py --write`, which prints what differs. That it is what
the compiler takes is for `tests/compiled/`, that kinds are told apart rightly for `tests/cost/test_kinds.py`.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from known_memory import as_one, cases, key, known, said, ways

AT_ONCE = 4
KNOWN, CASES, AS_ONE = known(), [*cases()], [*as_one()]


def marked(place):
    return pytest.param(place, id=str(place), marks=[pytest.mark.exhaustive] if place // AT_ONCE % 4 else [])


@pytest.mark.parametrize("place", [marked(place) for place in range(0, len(CASES), AT_ONCE)])
def test_memory_is_as_known(place):
    for case in CASES[place : place + AT_ONCE]:
        assert said(*case) == KNOWN[key(*case)], case


@pytest.mark.parametrize("place", [marked(place) for place in range(0, len(AS_ONE), AT_ONCE)])
def test_what_is_done_as_one_takes_what_it_did(place):
    for case in AS_ONE[place : place + AT_ONCE]:
        assert ways(*case) == KNOWN[key(*case, False)], case


def test_there_are_steps_with_an_optimizer_and_programs_that_are_none():
    found = [KNOWN[key(*case)] for case in CASES]
    steps = [lines for lines in found if len(lines) > 1]
    assert len(steps) > len(found) / 5 and len(found) - len(steps) > len(found) / 4
    optimizer = [line for lines in steps for line in lines if line.startswith("optimizer: ")]
    assert sum(not line.startswith("optimizer: 0,") for line in optimizer) > 5
