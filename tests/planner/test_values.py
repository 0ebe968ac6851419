"""What planning hands on are values: a plan so far, what is left of a budget, why a step is done."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import LinkModel, chip
from shardc.ir.expressions import operands
from shardc.planner import Objective
from shardc.planner.budget import PLAN, Budget, Meter, Spent
from shardc.planner.idle import Idle
from shardc.planner.planned import Planning, budget_of
from shardc.planner.problem import Environment, Problem
from shardc.planner.program.loops import add_next, planned_at_once
from shardc.planner.program.partial import PartialPlan
from shardc.testing import matmuls, programs

LOOP = """
mesh X=2, Y=2
dims L=3, B=8, D=8, E=8
dtype f32
y[B_X, D] = x[B_X, D_Y] + x
for L {
    h[B, E] = y · W[L, D, E_Y]
    y = relu(h · V[E_X, D]) + y
}
z[B, D_Y] = y
"""


def start(program, objective=Objective.BYTES):
    model = LinkModel.of(program.mesh, chip("v5p"))
    return PartialPlan(Problem(program, model, objective, program.mesh.names))


def said(plan):
    """All that a plan so far says, as text, so that nothing of it is shared with the plan."""
    return repr((plan.values, plan.steps, plan.given, plan.results, plan.sources, plan.problem.environment))


def check_left_alone(program):
    """Each statement is added twice to the same plan: that stays as it is, and gives the same both times."""
    plan = start(program)
    for number, statement in enumerate(program.statements):
        before = said(plan)
        once, _ = add_next(plan, number, statement)
        first = said(once)
        again, _ = add_next(plan, number, statement)
        assert said(plan) == before
        assert said(once) == said(again) == first
        plan = once


@pytest.mark.instant
@settings(max_examples=15, deadline=None)
@given(programs())
def test_to_add_a_statement_leaves_the_plan_before_as_it_is(case):
    check_left_alone(shardc.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="f32"))


def test_to_add_a_loop_leaves_the_plan_before_as_it_is():
    check_left_alone(shardc.parse(LOOP))


def test_what_is_shared_by_mistake_is_seen(monkeypatch):
    def into_the_same(self, name, values):
        self.held[name] = values
        return self

    monkeypatch.setattr(Environment, "holding", into_the_same)
    with pytest.raises(AssertionError):
        check_left_alone(shardc.parse(LOOP))


def test_a_budget_is_what_an_attempt_leaves_of_it():
    """The same budget gives the same plan and leaves the same, however often it is asked."""
    program = shardc.parse("A[I_X, J] · B[J, K_Y] → C[I, K_X]", mesh={"X": 2, "Y": 2}, dims=dict.fromkeys("IJK", 64))
    model, planning = LinkModel.of(program.mesh, chip("v5p")), Planning(Objective.BYTES, Idle.USE, planned_at_once)
    budget = budget_of(program)
    options = shardc.planner.options.Options()
    first, again = (planning.attempt(program, model, options, budget) for _ in range(2))
    assert first.budget == again.budget and first.planned.schedule == again.planned.schedule
    assert 0 < first.budget.total < budget.total
    none = planning.attempt(program, model, dataclasses.replace(options, must_plan=False), Budget(1))
    assert none.planned is None and none.budget.total < 1, "what was begun is paid for"


def test_a_meter_counts_down_and_its_budget_is_the_rest():
    meter = Budget(100).meter()
    meter.begin(PLAN)
    meter.spend(60)
    assert meter.budget == Budget(40)
    with pytest.raises(Spent):
        meter.spend(41)
    assert Meter.unlimited().left > PLAN


@pytest.mark.instant
def test_a_budget_has_as_much_for_each_statement_and_is_less_what_was_spent():
    assert [Budget.of(count).total for count in range(4)] == [count * Budget.of(1).total for count in range(4)]
    assert Budget(100).less(60) == Budget(40) and Budget(100).meter() == Meter(100)


def test_a_meter_is_spent_where_less_than_nothing_is_left():
    for left in range(6):
        for units in range(8):
            meters = [Meter(10, left) for _ in range(3)]
            assert raises(meters[0].spend, units) == (units > left) == meters[0].is_spent
            assert raises(meters[1].begin_on, units) == (2 * units > left) == meters[1].is_spent
            meters[2].pay(units)
            assert (meters[2].left, meters[2].total, meters[2].is_spent) == (left - units, 10 - units, units > left)
            soft = Meter(10, left, is_soft=True)
            assert not raises(soft.spend, units) and not raises(soft.begin_on, units)
            assert soft.left == left - 2 * units
    for units in (9, 10, 11):
        meter = Meter(10)
        meter.begin(units)
        assert (meter.left, meter.total, meter.budget) == (min(units, 10), 10, Budget(10))


def raises(spend, units):
    try:
        spend(units)
    except Spent:
        return True
    return False


# --- rules


def case_by_hand(axis, given, result):
    """The book's case of one axis, from the dims that it shards: `given` are dims and sharding of each operand."""
    on = [next((d for d, axes in zip(dims, lies.dims, strict=True) if axis in axes), None) for dims, lies in given]
    shards = [dim for dim in on if dim is not None]
    if any(dim not in result for dim in shards):
        return 3 if len(shards) == 2 and len(set(shards)) == 1 else 2
    return 4 if len(set(shards)) == 2 else 1


@pytest.mark.instant
@settings(max_examples=40, deadline=None)
@given(matmuls(), st.sampled_from(["time", "bytes"]))
def test_the_case_of_a_rule_is_that_of_an_axis_of_its_move(case, objective):
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims, dtype="f32", chip="v5p", objective=objective)
    statement, whole = plan.schedule.program.statements[0], plan.schedule.by
    given = [(use.dims, use.pattern.exact) for use in operands(statement.expr)]
    for step in plan.schedule.steps:
        if step.rule.case is not None and whole is None:
            found = {case_by_hand(axis, given, statement.dims) for axis in step.op.axes}
            assert step.rule.case in found, (str(step.rule), found)
    for axis, number in plan._found.statements[0].cases.items():
        assert whole is not None or number == case_by_hand(axis, given, statement.dims)


CHAINS = [
    # Of A · B the axis is case 4, of (A · B) · C case 2: each product's moves say its own.
    ("(A[I_X, J] · B[J, K_X]) · C[K, L] → D[I, L]", "case 4: gather one operand; case 2: gather the contracted dim"),
    ("(A[I_X, J] · B[J, K_X]) · C[K, L] → D[I, L]", "case 4: gather one operand; gather before the product"),
    # What is summed in the end came of A · B.
    (
        "A[I, J_X] · B[J_X, K] · C[K, L_X] → D[I, L_X]",
        "gather before the product; case 3: reduce and scatter the result",
    ),
]


@pytest.mark.instant
@pytest.mark.parametrize("text, rules", CHAINS)
def test_in_a_chain_a_move_is_told_by_the_product_that_it_is_for(text, rules):
    plan = shardc.plan(text, mesh={"X": 4}, dims=dict.fromkeys("IJKL", 512))
    moves = [[str(s.rule) for s in each.steps if s.is_collective] for each in plan._found.statements[0].alternatives]
    assert rules in ["; ".join(each) for each in moves]
