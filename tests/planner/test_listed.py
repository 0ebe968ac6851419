"""Which strategies of a statement are listed, and in which order: each of the order as written, and one of each other
order, by price."""

from itertools import count

import pytest

import shardc
from shardc.cost import LinkModel, chip
from shardc.errors import ShardcError
from shardc.ir.collectives import JointScatter, ReduceScatter
from shardc.planner import Objective
from shardc.planner.problem import Problem
from shardc.planner.statement.orders import all_orders
from shardc.planner.statement.strategies import (
    _Strategies,
    cheapest,
    cheapest_first,
    fixed_if_asked,
    table_as_written,
)

TEXTS = (
    "C[I_X, K] = A[I, J_X] · B[J, K]",
    "C[I_Y, K_X] = A[I_X, J] · B[J_Y, K]",
    "C[I, K_?] = A[I_X, J_Y] · B[J_Y, K]",
    "D[I_X, L] = A[I, J_X] · B[J, K] · C[K, L_X]",
    "D[I, L] = A[I_X, J] · B[J, K_Y] · C[K_Y, L]",
    "D[I_Y, L_?] = A[I, J_X] · B[J_Y, K] · C[K, L]",
    "C[I, K] = relu(A[I_X, J]) · exp(B[J, K_Y])",
    "C[I_X, K] = relu(A[I, J_X] · B[J, K])",
    "C[I, K]{U_X} = A[I, J_X] ·_LOCAL B[J_X, K]",
    "C[I_Y, K] = AllGather(exp(A[I_X, J])) · B[J_Y, K]",
    "C[I_Y, K_X] = exp(A[I_X, J]) · AllGather(relu(B[J_Y, K_X]))",
    "D[I_X, K] = (A[I, J_X] · B[J, K]) ⊙ C[I_Y, K]",
)


def problem_of(text, objective):
    program = shardc.parse(text, mesh="X=2,Y=2", dims=dict(I=64, J=128, K=32, L=256), dtype="bf16")
    model = LinkModel.of(program.mesh, chip("v5e"))
    return Problem(program, model, objective, program.mesh.names), program.statements[0]


def priced(root, statement):
    try:
        goal = cheapest(root, statement)
    except ShardcError:
        return None
    return root.paths(goal).price[goal]


@pytest.mark.instant
@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("text", TEXTS)
def test_strategies_are_found_the_cheapest_first(text, objective):
    problem, statement = problem_of(text, objective)
    own, *others = all_orders(statement.expr)
    found = [priced(root, statement) for root, _ in cheapest_first(problem, own, others, statement)]
    strategies = _Strategies(problem, own, statement.pattern.exact)
    every = [each[1] for each in iter(map(strategies.strategy, count()).__next__, None)]
    every += [table_as_written(problem, other) for other in others]
    prices = [priced(fixed_if_asked(each), statement) for each in every]
    assert found == sorted(price for price in prices if price is not None)


@pytest.mark.instant
@pytest.mark.parametrize("text", ["C[I_X, K_Y] = A[I, J_XY] · B[J_XY, K]", "A[I, J, K]{U_XYZ} → A[I_X, J_Y, K_Z]"])
def test_what_scatters_over_several_dims_at_once_is_listed_one_dim_at_a_time_too(text):
    plan = shardc.plan(text, mesh="X=2,Y=2,Z=2", dims="I=64,J=64,K=64", chip="v5e")
    (statement,) = plan._found.statements
    every = [[step.op for step in each.steps] for each in statement.alternatives]
    joint = [ops for ops in every if any(isinstance(op, JointScatter) for op in ops)]
    assert joint and all([*one_dim_each(ops)] in every for ops in joint)


def one_dim_each(ops):
    for op in ops:
        yield from (ReduceScatter(axes, dim) for dim, axes in op.parts) if isinstance(op, JointScatter) else [op]
