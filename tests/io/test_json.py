"""JSON is finite, whatever is asked: it is written in one place, which is seen to refuse infinity."""

from __future__ import annotations

import io
import json
import math
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardc import cli
from shardc.io.text import json_text
from shardc.testing import programs

ROOT = Path(__file__).parents[2] / "shardc"
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
VALUES = st.recursive(
    LEAVES, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3)
)


def strictly(text):
    """What a reader that knows no NaN and no Infinity reads."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


@given(VALUES)
@example({"a": [math.inf, {"b": math.nan}], "c": -math.inf})
def test_json_is_finite_and_else_what_was_given(value):
    found = strictly(json_text(value))

    def same(one, other):
        match other:
            case float() if not math.isfinite(other):
                return one is None
            case dict():
                return all(same(one[key], each) for key, each in other.items())
            case list():
                return len(one) == len(other) and all(map(same, one, other))
            case _:
                return one == other

    assert same(found, value)


def test_a_number_that_is_left_out_has_its_reason():
    fields = strictly(json_text({"ratio": math.inf, "low": -math.inf, "mean": math.nan, "fine": 1.5}))
    assert fields["ratio"] is None and fields["ratio_reason"] == "infinite"
    assert fields["low_reason"] == "negative and infinite" and fields["mean_reason"] == "not a number"
    assert fields["fine"] == 1.5 and "fine_reason" not in fields


def test_json_is_written_in_one_place():
    writers = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if re.search(r"\bjson\.dumps?\(", path.read_text(encoding="utf-8"))
    }
    assert writers == {"io/text.py"}


def printed(*arguments):
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        status = cli._status(list(arguments))
    assert status == 0, arguments
    return out.getvalue()


@settings(max_examples=15, deadline=None)
@given(
    programs(), st.sampled_from([["check"], ["plan"], ["plan", "--pareto"], ["emit"]]), st.sampled_from(["bf16", "f32"])
)
def test_every_command_prints_finite_json(case, command, dtype):
    mesh = ",".join(f"{axis}={size}" for axis, size in case.mesh.axes)
    dims = ",".join(f"{dim}={size}" for dim, size in case.dims.items())
    strictly(printed(*command, case.text, "--mesh", mesh, "--dims", dims, "--dtype", dtype, "--json"))


@pytest.mark.parametrize("text", ["A[I] → A[I]", "A[I_X] → A[I_X]", "C[I] = relu(A[I_X])"])
@pytest.mark.parametrize("mesh", ["X=1", "X=4"])
def test_plans_that_cost_nothing_print_finite_json(text, mesh):
    for command in (["plan"], ["plan", "--pareto"]):
        strictly(printed(*command, text, "--mesh", mesh, "--dims", "I=8", "--json"))


def test_the_table_of_chips_prints_finite_json():
    strictly(printed("chips", "--json"))
