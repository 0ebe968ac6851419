"""What is legal of each form: every program and plan is, and every check of the table is seen to find its fault."""

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

import shardc
from shardc.errors import ShardcError
from shardc.ir import legal
from shardc.ir.collectives import AllGather, CollectivePermute
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Pattern
from shardc.ir.legal import PROGRAM, SCHEDULE, faults_of
from shardc.ir.plan import Apply, How, Together
from shardc.ir.sharding import Sharding
from shardc.testing import programs

NOTATION = json.loads((Path(__file__).parents[1] / "data" / "notation.json").read_text(encoding="utf-8"))
PLAN = shardc.plan("A[I_X, J] · B[J, K_Y] → C[I, K_Y]", mesh="X=2,Y=2", dims="I=8,J=8,K=8")
LOOPED = shardc.plan("for L { x = relu(x[I_X]); S[L, I_X] = neg(x) }", mesh="X=2", dims="L=3,I=8")
SUMMED = shardc.plan("S[I_X, K] = relu(A[I_X, J_Y] · B[J_Y, K])", mesh="X=2,Y=2", dims="I=8,J=8,K=8")
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


def with_step_of_two():
    values, last = PLAN.schedule.values, PLAN.schedule.steps[-1]
    step = replace(last, results=(*last.results, len(values)))
    return with_block(values=(*values, values[last.result]), steps=(*PLAN.schedule.steps[:-1], step))


def partial_of(number):
    """A partial sum that is an array of one number, where there was a product's."""
    first, *others = SUMMED.schedule.steps
    assert SUMMED.schedule.values[first.result].sharding.unreduced
    steps = (replace(first, op=Apply("full", numbers=(number,)), operands=()), *others)
    return replace(SUMMED.schedule, block=replace(SUMMED.schedule.block, steps=steps))


def with_trip(**changes):
    (loop,) = LOOPED.schedule.steps
    step = replace(loop, op=replace(loop.op, **changes))
    return replace(LOOPED.schedule, block=replace(LOOPED.schedule.block, steps=(step,)))


def with_rows(number, **changes):
    """Of what a trip leaves."""
    body = LOOPED.schedule.steps[0].op.body
    values = list(body.values)
    values[body.outputs[number]] = replace(values[body.outputs[number]], **changes)
    return with_trip(body=replace(body, values=tuple(values)))


def with_statement(**changes):
    (statement,) = PLAN.program.statements
    return replace(PLAN.program, statements=(replace(statement, **changes),))


def with_use(**changes):
    (statement,) = PLAN.program.statements
    first, *others = statement.expr.operands
    return with_statement(expr=replace(statement.expr, operands=(replace(first, **changes), *others)))


def with_group(first, last, schedule=PLAN.schedule):
    return with_groups((first, last), schedule=schedule)


def with_groups(*groups, schedule=PLAN.schedule):
    return replace(schedule, together=tuple(Together(*places, How.PARTITIONER) for places in groups))


def with_input(**changes):
    first, *others = PLAN.program.inputs
    return replace(PLAN.program, inputs=(replace(first, **changes), *others))


CHAINED = shardc.plan("(A[I_X, J] · B[J, K]) · D[K, L] → C[I_X, L]", mesh="X=2,Y=2", dims="I=8,J=8,K=8,L=8")
TURNED, ONE_INPUT = with_input(dims=("J", "I")), replace(PLAN.program, inputs=PLAN.program.inputs[:1])
MORE = replace(PLAN.program, inputs=(*PLAN.program.inputs, replace(PLAN.program.inputs[0], name="Z")))
LAST = len(PLAN.schedule.steps) - 1
OUTPUT = PLAN.schedule.outputs[0]
ALL, TO_ITSELF = Pattern.exactly(Sharding.replicated(2)), CollectivePermute(("X",), (("X",), ("Y",)))
ILLEGAL = {
    "an axis twice": ("arrays", with_value(0, sharding=Sharding((("X",), ("X",)))), "axis X is used twice"),
    "an axis of no mesh": ("arrays", with_value(0, sharding=Sharding((("Z",), ()))), "axis Z is not of the mesh"),
    "a dim twice": ("arrays", with_value(0, dims=("I", "I")), "a dim occurs twice"),
    "a size not divided": ("arrays", with_value(0, shape=(7, 8)), "do not divide the shape (7, 8)"),
    "a subscript too many": ("arrays", with_value(0, dims=("I",)), "1 dims, 2 sizes, 2 subscripts"),
    "two values of one step": ("steps", with_step_of_two(), "leaves 2 values"),
    "dims that it has not": ("steps", with_step(LAST, seen=(("I",), ("J", "K"))), "its operands are not of the dims"),
    "a dim of two sizes": ("steps", with_value(OUTPUT, shape=(16, 8)), "dim I has the sizes 8 and 16"),
    "positions of an array": ("steps", with_step(0, op=Apply("index")), "made of no operand"),
    "one number in parts that are added up": (
        "steps",
        partial_of(1),
        "is no partial sum",
    ),
    "a move of another type": ("steps", with_value(OUTPUT, dtype=DTYPES["f32"]), "a move keeps the dims and the type"),
    "a move that is none": ("steps", with_step(LAST, op=TO_ITSELF), "the permute moves nothing"),
    "a trip too few": ("steps", with_trip(trips=0), "0 trips"),
    "a trip that leaves it elsewhere": ("steps", with_rows(0, sharding=Sharding(((),))), "outside or after a trip"),
    "a row of another size": ("steps", with_rows(1, shape=(4,)), "at an index of L"),
    "an output that nothing writes": ("order", with_block(steps=()), "is never written"),
    "an output elsewhere": (
        "interface",
        replace(PLAN.schedule, program=with_statement(pattern=ALL)),
        "does not lie as",
    ),
    "a function as one": ("together", with_group(0, 2, SUMMED.schedule), "beside the product there are moves alone"),
    "read too early": ("order", with_step(0, operands=(OUTPUT,)), f"reads value {OUTPUT} before it is written"),
    "no such value": ("order", with_step(0, operands=(99,)), "there is no value 99"),
    "written twice": ("order", with_step(LAST, results=(0,)), "is written twice"),
    "another sharding": ("steps", with_value(OUTPUT, sharding=Sharding((("X",), ("Y",)))), "the step leaves"),
    "not the minor axes": ("steps", with_step(LAST, op=AllGather(("Y",), 0)), "are not the minor axes"),
    "no output": ("interface", with_block(outputs=()), "0 of the schedule, 1 of the program"),
    "another output": ("interface", with_block(outputs=(0,)), "has the dims"),
    "as one behind the end": ("together", with_group(0, 99), f"go on behind step {LAST}"),
    "a step as one": ("together", with_group(1, 1), "are one"),
    "a step in two groups": ("together", with_groups((1, 2), (0, 2), schedule=GATHERS.schedule), "begin before step 3"),
    "two products as one": ("together", with_group(0, 1, CHAINED.schedule), "one of them must be a product"),
    "an input elsewhere": ("interface", replace(PLAN.schedule, program=with_input(pattern=ALL)), "does not lie as"),
    "an input of other dims": ("interface", replace(PLAN.schedule, program=TURNED), "has the dims"),
    "an input too few": ("interface", replace(PLAN.schedule, program=MORE), "2 of the schedule, 3 of the program"),
    "moves alone as one": ("together", with_group(0, 1, GATHERS.schedule), "one of them must be a product"),
}
PROGRAMS = {
    "an axis of no mesh": (with_statement(pattern=Pattern((("Z",), ()))), "axis Z is not of the mesh"),
    "an axis twice": (with_statement(pattern=Pattern((("X",), ()), frozenset("X"))), "axis X is used twice"),
    "a subscript too few": (with_statement(pattern=Pattern((None,))), "2 dims, 1 subscripts"),
    "a use in fewer dims": (with_use(dims=("I",), pattern=None), "A has the dims ('I', 'J'), not ('I',)"),
    "returned twice": (replace(PLAN.program, returns=("C", "C")), "C is named twice"),
    "returned from nowhere": (replace(PLAN.program, returns=("D",)), "there is no D"),
    "an unknown array of a loop": (replace(LOOPED.program, inputs=()), "x is not known before"),
    "a name that is not known": (ONE_INPUT, "B is neither an input"),
}


@pytest.mark.instant
@pytest.mark.parametrize(("check", "schedule", "reason"), ILLEGAL.values(), ids=ILLEGAL)
def test_each_check_of_a_schedule_finds_its_fault(check, schedule, reason):
    found = [str(fault) for fault in faults_of(schedule)]
    assert found and any(reason in fault for fault in found), found
    assert found == [str(fault) for fault in SCHEDULE[check](schedule)], "another check found it first"


@pytest.mark.instant
@pytest.mark.parametrize(("program", "reason"), PROGRAMS.values(), ids=PROGRAMS)
def test_each_check_of_a_program_finds_its_fault(program, reason):
    assert any(reason in str(fault) for fault in faults_of(program))


def reasons_written():
    """Of each reason that the module gives, the longest part that it says whatever is at fault."""
    for node in ast.walk(ast.parse(Path(legal.__file__).read_text(encoding="utf-8"))):
        match node:
            case (
                ast.Call(func=ast.Name("Fault"), args=[_, reason])
                | ast.Yield(reason)
                | ast.Return(ast.expr() as reason)
            ):
                parts = [part.value for part in ast.walk(reason) if isinstance(part, ast.Constant)]
                words = [part for part in parts if isinstance(part, str) and " " in part.strip()]
                yield from [max(words, key=len)] if words else []


def test_no_check_and_no_reason_is_left_untried():
    assert {check for check, _, _ in ILLEGAL.values()} == set(SCHEDULE)
    forms = [*(form for _, form, _ in ILLEGAL.values()), *(form for form, _ in PROGRAMS.values())]
    found = "; ".join(fault.reason for form in forms for fault in faults_of(form))
    assert [reason for reason in reasons_written() if reason not in found] == []
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


def test_zeros_are_partial_sums_as_they_are():
    assert list(faults_of(partial_of(0))) == []
