"""The books' expressions: accepted or refused, the case of each axis, and the book's plan among ours."""

import json
import re
from pathlib import Path

import pytest

import shardc
from shardc.errors import SEMANTICS, SYNTAX, ShardcError
from shardc.ir.sharding import spell_axes

ENTRIES = json.loads((Path(__file__).parents[1] / "data" / "book.json").read_text(encoding="utf-8"))
GOOD = [entry for entry in ENTRIES if entry["expect"] == "ok"]
BAD = [entry for entry in ENTRIES if entry["expect"] == "error"]

# The book leaves a choice in words; these are the choices.
IN_WORDS = {
    "AllGather_X C or A": [["AllGather_X C"], ["AllGather_X A"]],
    "AllGather of A and B, or of C": [["AllGather_X A", "AllGather_Y B"], ["AllGather_XY C"]],
}


def spelled(step):
    """A collective as the book's plans write it: `ReduceScatter_X,K C`."""
    place = f",{step.dim}" if step.op in ("ReduceScatter", "AllToAll") else ""
    axes = "" if step.op == "CollectivePermute" else f"_{spell_axes(step.axes)}"
    return f"{step.op}{axes}{place} {re.match(r'[A-Za-z]+', step.operands[0])[0]}"


def collectives(alternative):
    return sorted(spelled(step) for step in alternative.steps if step.op not in ("Einsum", "Slice"))


@pytest.mark.parametrize("entry", GOOD, ids=lambda entry: entry["text"])
@pytest.mark.parametrize("objective", ["time", "bytes"])
def test_an_accepted_expression_has_its_cases_and_the_books_plan(entry, objective):
    plan = shardc.plan(entry["text"], mesh=entry["mesh"], dims=entry["dims"], objective=objective)
    (statement,) = plan.statements
    assert set(entry.get("cases", ())) <= set(statement.cases.values())
    assert max(entry.get("cases", [0])) == max(statement.cases.values(), default=0) or "cases" not in entry
    if "book_plan" in entry:
        found = [collectives(alternative) for alternative in statement.alternatives]
        wanted = IN_WORDS.get(" ".join(entry["book_plan"]), [sorted(entry["book_plan"])])
        for choice in wanted:
            assert sorted(choice) in found


@pytest.mark.instant
@pytest.mark.parametrize("entry", BAD, ids=lambda entry: entry["text"])
def test_a_refused_expression_has_a_code_and_a_remedy(entry):
    with pytest.raises(ShardcError) as caught:
        shardc.plan(entry["text"], mesh=entry["mesh"], dims=entry["dims"])
    assert caught.value.exit_code in (SYNTAX, SEMANTICS)
    assert caught.value.help


def test_there_are_as_many_entries_as_the_books_have():
    assert (len(GOOD), len(BAD)) == (55, 12)
