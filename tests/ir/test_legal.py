"""What is legal of each form: every program and plan is, and every check of the table is seen to find its fault."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

import shardc
from shardc.errors import ShardcError
from shardc.ir.collectives import AllGather
from shardc.ir.expressions import Pattern
from shardc.ir.legal import PROGRAM, SCHEDULE, faults_of
from shardc.ir.plan import How, Together
from shardc.ir.sharding import Sharding
from shardc.testing import programs

NOTATION = json.loads((Path(__file__).parents[1] / "data" / "notation.json").read_text(encoding="utf-8"))
PLAN = shardc.plan("A[I_X, J] · B[J, K_Y] → C[I, K_Y]", mesh="X=2,Y=2", dims="I=8,J=8,K=8")
GATHERS = shardc.plan("A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]", mesh="X=2,Y=2", dims="I=8,J=8,K=8")


def with_block(**changes):
    return replace(PLAN.schedule, block=replace(PLAN.schedule.block, **changes))


def with_value(number, **changes):
    values = list(PLAN.schedule.values)
    values[number] = replace(values[number], **changes)
    return with_block(values=tuple(values))


def with_step(number, **changes):
    steps = list(PLAN.schedule.steps)
    steps[number] = replace(steps[number], **changes)
    return with_block(steps=tuple(steps))


def with_statement(**changes):
    (statement,) = PLAN.program.statements
    return replace(PLAN.program, statements=(replace(statement, **changes),))


def with_group(first, last, schedule=PLAN.schedule):
    return replace(schedule, together=(Together(first, last, How.PARTITIONER),))


LAST = len(PLAN.schedule.steps) - 1
OUTPUT = PLAN.schedule.outputs[0]
ILLEGAL = {
    "an axis twice": ("arrays", with_value(0, sharding=Sharding((("X",), ("X",)))), "axis X is used twice"),
    "an axis of no mesh": ("arrays", with_value(0, sharding=Sharding((("Z",), ()))), "axis Z is not of the mesh"),
    "a dim twice": ("arrays", with_value(0, dims=("I", "I")), "a dim occurs twice"),
    "a size not divided": ("arrays", with_value(0, shape=(7, 8)), "do not divide the shape (7, 8)"),
    "a subscript too many": ("arrays", with_value(0, dims=("I",)), "1 dims, 2 sizes, 2 subscripts"),
    "read too early": ("order", with_step(0, operands=(OUTPUT,)), f"reads value {OUTPUT} before it is written"),
    "no such value": ("order", with_step(0, operands=(99,)), "there is no value 99"),
    "written twice": ("order", with_step(LAST, results=(0,)), "is written twice"),
    "another sharding": ("steps", with_value(OUTPUT, sharding=Sharding((("X",), ("Y",)))), "the step leaves"),
    "not the minor axes": ("steps", with_step(LAST, op=AllGather(("Y",), 0)), "are not the minor axes"),
    "no output": ("interface", with_block(outputs=()), "0 of the schedule, 1 of the program"),
    "another output": ("interface", with_block(outputs=(0,)), "has the dims"),
    "as one behind the end": ("together", with_group(0, 99), f"go on behind step {LAST}"),
    "a step as one": ("together", with_group(1, 1), "are one"),
    "moves alone as one": ("together", with_group(0, 1, GATHERS.schedule), "one of them must be a product"),
}
PROGRAMS = {
    "an axis of no mesh": (with_statement(pattern=Pattern((("Z",), ()))), "axis Z is not of the mesh"),
    "an axis twice": (with_statement(pattern=Pattern((("X",), ()), frozenset("X"))), "axis X is used twice"),
    "a name that is not known": (replace(PLAN.program, inputs=PLAN.program.inputs[:1]), "B is neither an input"),
}


@pytest.mark.parametrize(("check", "schedule", "reason"), ILLEGAL.values(), ids=ILLEGAL)
def test_each_check_of_a_schedule_finds_its_fault(check, schedule, reason):
    found = [str(fault) for fault in faults_of(schedule)]
    assert found and any(reason in fault for fault in found), found
    assert found == [str(fault) for fault in SCHEDULE[check](schedule)], "another check found it first"


@pytest.mark.parametrize(("program", "reason"), PROGRAMS.values(), ids=PROGRAMS)
def test_each_check_of_a_program_finds_its_fault(program, reason):
    assert any(reason in str(fault) for fault in faults_of(program))


def test_no_check_is_left_untried():
    assert {check for check, _, _ in ILLEGAL.values()} == set(SCHEDULE)
    assert set(PROGRAM) == {"shardings", "names"}


@settings(max_examples=60, deadline=None)
@given(programs())
def test_drawn_programs_and_their_plans_are_legal(case):
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims)
    assert not list(faults_of(plan.program))
    assert not list(faults_of(plan.schedule))


def test_every_expression_of_the_books_is_legal_or_refused():
    legal = 0
    for entry in NOTATION:
        try:
            program = shardc.parse(entry["text"], mesh=entry["mesh"])
        except ShardcError:
            continue
        assert not list(faults_of(program)), entry
        legal += 1
    assert legal >= 20
