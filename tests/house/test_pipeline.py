"""Every pass leaves a legal form behind, and what it leaves can be read."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

import shardc
from shardc.notation import parse
from shardc.pipeline import stages
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
    with pytest.raises(AssertionError, match="is never written"):
        next(stages(TEXT, plan.program, broken, plan.chip))


@settings(max_examples=30, deadline=None)
@given(programs())
def test_every_form_of_a_drawn_program_is_legal_and_says_each_step(case):
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims)
    text = print_schedule(plan.schedule)
    assert text.count(" = ") == len(plan.steps) and text.count("given ") == len(plan.inputs)
    assert len(list(stages(case.text, plan.program, plan.schedule, plan.chip))) == 7
