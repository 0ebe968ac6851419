"""Every pass leaves a legal form behind, and what it leaves can be read."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

import shardc
from shardc import pipeline
from shardc.lowering.lower import lower
from shardc.notation import parse
from shardc.pipeline import PASSES, stages
from shardc.report.steps import print_schedule
from shardc.testing import programs

TEXT = "A[I, J_X] · B[J, K] → C[I, K_X]"


def passes(text, **options):
    unsized = parse(text)
    plan = shardc.plan(text, **options)
    return {stage.name: stage.text for stage in stages(text, unsized, plan.schedule, plan.chip)}


def test_one_statement_after_each_pass():
    found = passes(f"mesh X=4\n{TEXT}", dims="I=512,J=8192,K=1024", chip="v5e")
    assert list(found) == ["read", "resolve", "size", "plan", "lower", "emit", "write"]
    assert found["read"] == f"mesh X=4\n{TEXT}\n"
    assert "dims" not in found["resolve"] and "dims I=512, J=8192, K=1024" in found["size"]
    assert found["plan"].splitlines() == [
        "mesh X=4",
        "given A[I, J_X]",
        "given B[J, K]",
        "B[J_X, K] = Slice_X,J B[J, K]  # case 2: slice the other operand",
        "C[I, K]{U_X} = Einsum A[I, J_X], B[J_X, K]  # local product",
        "C[I, K_X] = ReduceScatter_X,K C[I, K]{U_X}  # case 2: reduce and scatter the result",
        "return C[I, K_X]",
    ]
    assert found["lower"].splitlines() == [
        "for no slice that is named",
        "B[J_X, K] = Slice: plain",
        "C[I, K]{U_X} = Einsum: plain",
        "C[I, K_X] = ReduceScatter: along the dim; over X of 1,048,576 B",
    ]
    assert "jax.lax.psum_scatter" in found["emit"] and found["emit"].startswith("given A, B\n")
    assert found["write"] == shardc.plan(TEXT, mesh="X=4", dims="I=512,J=8192,K=1024", chip="v5e").source()


def test_a_form_that_is_not_legal_is_no_stage():
    plan = shardc.plan(TEXT, mesh="X=4")
    block = replace(plan.schedule.block, steps=plan.schedule.steps[:-1])
    broken = replace(plan.schedule, block=block)
    found = stages(TEXT, plan.program, broken, plan.chip)
    assert [next(found).name for _ in range(3)] == ["read", "resolve", "size"]
    with pytest.raises(AssertionError, match="is never written"):
        next(found)


def test_a_lowering_that_is_not_legal_is_no_stage(monkeypatch):
    plan = shardc.plan(TEXT, mesh="X=4")
    broken = replace(lower(plan.schedule), again=((1, len(plan.schedule.values) - 1),))
    monkeypatch.setattr("shardc.pipeline.lower", lambda schedule: broken)
    found = stages(TEXT, plan.program, plan.schedule, plan.chip)
    assert [next(found).name for _ in range(4)] == ["read", "resolve", "size", "plan"]
    with pytest.raises(AssertionError, match="step 1: is done once more"):
        next(found)


@pytest.mark.instant
def test_the_passes_lead_from_text_to_text():
    """Each takes what the one before leaves."""
    ends = [each.forms.split(" → ") for each in PASSES]
    assert [left for _, left in ends[:-1]] == [taken for taken, _ in ends[1:]]
    assert (ends[0][0], ends[-1][1]) == ("text", "text")


@pytest.mark.instant
def test_the_passes_inside_plan_are_where_it_is_said():
    """Each file is there, and has what is named beside it, if it is named so."""
    rows = re.findall(r"^    (\w+) +(\w+\.py) ", pipeline.__doc__, re.MULTILINE)
    assert len(rows) == 9
    for name, file in rows:
        text = (Path(pipeline.__file__).parent / "planner" / "program" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(def|class) {name}\b", text, re.MULTILINE), (name, file)


@settings(max_examples=30, deadline=None)
@given(programs())
def test_every_form_of_a_drawn_program_is_legal_and_says_each_step(case):
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims)
    text = print_schedule(plan.schedule)
    assert text.count(" = ") == len(plan.steps) and text.count("given ") == len(plan.inputs)
    assert len(list(stages(case.text, plan.program, plan.schedule, plan.chip))) == 7
