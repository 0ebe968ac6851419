"""No plan is dearer than the best known, no bound falls, and no price or work changes unnoticed.

A plan got cheaper, or is found with less work: `python tests/benchmark/best_known.py --write`, which prints what
differs; the diff of `best_known.json` shows it again. The work is counted, in the plan's budget and in calls of
functions, so that what takes longer to plan is seen without a clock.
"""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from best_known import TABLE, differences, found
from counted import COUNTED, MORE, SUMMED

CASES = json.loads(TABLE.read_text(encoding="utf-8"))


def marked(case):
    return pytest.param(case, id=case["name"], marks=[pytest.mark.exhaustive] if case["exhaustive"] else [])


@pytest.mark.parametrize("case", list(map(marked, CASES)))
def test_nothing_differs_from_the_best_known(case):
    lines = differences(case["found"], found(case["text"], case["options"]), case["options"].get("objective", "time"))
    assert not lines, "\n  ".join((f"{case['text']!r} {case['options']}", *lines))


def test_what_differs_is_named():
    known = next(case["found"] for case in CASES if case["found"].get("wire_bytes", 0) > 1 and case["found"]["steps"])
    work = known["work"]
    more, few = work | {"tables": work["tables"] + 1}, work | {"calls": int(work["calls"] * (1 + MORE))}
    for objective, other, said in (
        ("bytes", {"wire_bytes": known["wire_bytes"] + 1}, "wire_bytes DEARER:"),
        ("bytes", {"wire_bytes": known["wire_bytes"] - 1}, "wire_bytes cheaper:"),
        ("time", {"bound_bytes": -1}, "bound_bytes fell:"),
        ("time", {"steps": known["steps"][:-1]}, f"  known {known['steps'][-1]}"),
        ("time", {"work": more}, "MORE work: tables,"),
    ):
        lines = differences(known, known | other, objective)
        assert any(line.startswith(said) for line in lines) and len(lines) <= 3
    assert not differences(known, known | {"work": few}, "time")


def test_all_that_is_counted_is_met():
    met = {name for case in CASES for name in case["found"]["work"]}
    assert met >= COUNTED.keys() | SUMMED.keys(), (COUNTED.keys() | SUMMED.keys()) - met
