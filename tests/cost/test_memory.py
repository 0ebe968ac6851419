"""One figure of memory: what the table says, a limit means, a refusal advises and `verify` predicts is the same."""

import json
import math
import re
import sys
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc.cli import main
from shardc.cost.allocation import allocation
from shardc.cost.memory import peak_bytes
from shardc.errors import ShardcError
from shardc.testing import assert_schedule_legal

MESHES = ({"X": 2, "Y": 2}, {"X": 4}, {"X": 2, "Y": 4})


@st.composite
def texts(draw, axes, most):
    """One statement to `most`: reshards and matmuls, what is between left open, inputs and results now and then."""

    def array(name, dims, open_part):
        free, found = list(axes), []
        for dim in dims:
            if draw(st.integers(0, 9)) < open_part:
                found.append(f"{dim}_?")
                continue
            picked = draw(st.sampled_from([None, *free])) if free else None
            if picked:
                free.remove(picked)
            found.append(dim + (f"_{picked}" if picked else ""))
        return f"{name}[{', '.join(found)}]"

    count = draw(st.integers(1, most))
    if draw(st.integers(0, 2)) == 0:
        return f"{array('A', 'IJ', 0)} → {array('A', 'IJ', 0)}"
    dims = "IJKLM"[: count + 2]
    lines, held = [], array("A", "IJ", 1)
    for n in range(count):
        inner, outer = dims[n + 1], dims[n + 2]
        last = n == count - 1
        result = array(f"T{n}", f"I{outer}", 1) if last or draw(st.booleans()) else f"T{n}"
        lines.append(f"{result} = {held} · {array(f'W{n}', inner + outer, 1)}")
        held = f"T{n}"
    return "; ".join(lines)


@st.composite
def questions(draw):
    """Up to three statements on four devices; one on eight, where three take a minute to plan under four limits."""
    mesh = draw(st.sampled_from(MESHES))
    text = draw(texts(list(mesh), 3 if math.prod(mesh.values()) == 4 else 1))
    dims = {dim: draw(st.sampled_from((64, 256, 1024))) for dim in "IJKLM" if dim in text}
    sides = [*mesh.values(), 1, 1][:3]
    topology = draw(st.sampled_from([None, "v5p:" + "x".join(map(str, sides))]))
    objective = draw(st.sampled_from(("time", "bytes")))
    return {"text": text, "mesh": mesh, "dims": dims, "topology": topology, "objective": objective, "dtype": "bf16"}


def advised(error):
    """The limit that a refusal advises."""
    assert error.code == "SHC410", error
    named, told = re.search(r"found is (\d+)$", error.message), re.match(r"--memory (\d+),", error.help)
    assert named[1] == told[1]
    return int(told[1])


def planned(question, **options):
    """A plan, or what the refusal advises instead."""
    try:
        return shardc.plan(**question, **options)
    except ShardcError as error:
        return advised(error)


def total(plan):
    schedule = plan.schedule
    if plan._asked.program.topology is not None:
        return allocation(schedule).total_bytes
    return peak_bytes(schedule.block, schedule.mesh)


HOLES = {
    "text": "T0 = A[I_?, J_X] · W0[J_?, K_Y]; T1[I_X, L] = T0 · W1[K_?, L_Y]",
    "mesh": {"X": 2, "Y": 2},
    "dims": {"I": 256, "J": 1024, "K": 1024, "L": 64},
    "topology": None,
    "objective": "time",
    "dtype": "bf16",
}


def assert_one_figure(question, part, other):
    free = shardc.plan(**question)
    peak = free.cost.peak_bytes
    assert peak == total(free)
    again = planned(question, memory=peak)
    assert not isinstance(again, int) and again.cost.peak_bytes <= peak
    limits = sorted({int(part * peak), int(other * peak), peak - 1})
    found = [planned(question, memory=limit) for limit in limits]
    for limit, plan in zip(limits, found, strict=True):
        if isinstance(plan, int):
            assert plan > limit
            follows = planned(question, memory=plan)
            assert not isinstance(follows, int), f"{limit} advises {plan}, {plan} advises {follows}"
            plan, limit = follows, plan
        assert plan.cost.peak_bytes == total(plan) <= limit
        assert_schedule_legal(plan.schedule)
    for lean, wide in pairwise(found):
        assert isinstance(lean, int) or not isinstance(wide, int), "a larger limit is refused, a smaller is not"
    refused = [plan for plan in found if isinstance(plan, int)]
    kept = [plan.cost.peak_bytes for plan in found if not isinstance(plan, int)]
    assert all(least <= min([peak, *kept]) for least in refused)


AT_ONCE = {  # gather, then slice: done at once they need less than either's result
    "text": "T0[I, K] = A[I, J_?] · W0[J_X, K]; T1[I_X, L] = T0 · W1[K, L]; T2[I_X, M] = T1 · W2[L_X, M]",
    "mesh": {"X": 4},
    "dims": {"I": 1024, "J": 1024, "K": 1024, "L": 1024, "M": 64},
    "topology": None,
    "objective": "bytes",
    "dtype": "bf16",
}


@pytest.mark.exhaustive
@settings(max_examples=3, deadline=None)
@given(questions(), st.floats(0.3, 1.0), st.floats(0.3, 1.0))
@example(HOLES, 0.5, 0.9)
@example(AT_ONCE, 0.46, 0.73)
def test_a_limit_is_kept_or_refused_and_what_a_refusal_advises_works(question, part, other):
    assert_one_figure(question, part, other)


@pytest.mark.long
@settings(max_examples=10, deadline=None)
@given(questions(), st.floats(0.2, 1.0), st.floats(0.2, 1.0))
def test_every_advice_works(question, part, other):
    assert_one_figure(question, part, other)


LARGE = {"text": "A[I_X, J] · B[J, K] → C[I_X, K]", "mesh": {"X": 4}, "dims": dict.fromkeys("IJK", 131072)}


@pytest.mark.instant
@pytest.mark.parametrize(("chip", "capacity"), [("v5e", "16.0 GB"), ("v5p", "96.0 GB")])
def test_the_table_and_the_json_say_whether_a_plan_fits(chip, capacity):
    """51.5 GB: 34.4 GB of B, and 8.59 GB each of A and C."""
    plan = shardc.plan(**LARGE, chip=chip, dtype="bf16")
    fields = json.loads(plan.to_json())
    assert f"peak memory    51.5 GB of {capacity} per device" in str(plan)
    assert fields["capacity_bytes"] == plan.capacity_bytes == {"v5e": 16e9, "v5p": 96e9}[chip]
    lines = [line for line in str(plan).splitlines() if line.startswith("warning: ")]
    assert [f"warning: {text}" for text in fields["warnings"]] == lines and list(plan.warnings) == fields["warnings"]
    assert len(lines) == (chip == "v5e") and all("51.5 GB" in line and capacity in line for line in lines)


def test_a_front_says_which_rows_do_not_fit():
    few = str(shardc.plan(**LARGE, chip="v5e").pareto())
    assert few.endswith("warning: no row fits: chip v5e has 16.0 GB")
    assert "warning" not in str(shardc.plan(**LARGE, chip="v5p").pareto())
    text, dims = "A[I_Y, J_X] · B[J, K_YX] → C[I, K_Y]", dict.fromkeys("IJK", 81920)
    some = shardc.plan(text, mesh={"X": 4, "Y": 2}, dims=dims, chip="v5e").pareto()
    over = sum(bool(point.warnings) for point in some)
    assert 0 < over < len(some) and f"warning: the first {over} do not fit" in str(some)


@pytest.mark.instant
@pytest.mark.parametrize(("chip", "fits"), [("v5e", False), ("v5p", True)])
def test_emit_says_that_what_it_writes_does_not_fit(chip, fits, capsys, monkeypatch):
    command = ["emit", LARGE["text"], "--mesh", "X=4", "--dims", "I=131072,J=131072,K=131072", "--chip", chip]
    monkeypatch.setattr(sys, "argv", ["shardc", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert not ended.value.code and [f"warning: {text}" for text in shardc.plan(**LARGE, chip=chip).warnings] == said
    assert (not said) == fits
