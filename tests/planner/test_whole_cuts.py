"""Where statements end changes no price: the same operations in one statement, in one each, cut anywhere between."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardc.ir.mesh import Mesh
from shardc.ir.plan import Block
from shardc.ir.sharding import spell
from shardc.planner import Objective, plan_program, plan_with_subaxes
from shardc.planner.problem import Problem
from shardc.planner.whole import local
from shardc.planner.whole.rewrites import joined
from shardc.planner.whole.spaces import spaces_of
from shardc.testing import shardings

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program
from test_whole import model_of, parsed

DIMS = {"I": 64, "J": 32, "K": 128, "L": 16, "M": 256, "Q": 64, "R": 32, "U": 128, "V": 16, "W": 64}


@st.composite
def operations(draw, mesh, count):
    """Each operation's expression, `@` for what the one before left; and the dims of the result."""
    arrays, others = iter("ABCDEFGHNOP"), iter("KLMQRUVW")

    def array(dims):
        return next(arrays) + spell(dims, draw(shardings(mesh, len(dims), unreduced=False)))

    dims, found = ("I", "J"), []
    start = array(dims)
    for _ in range(count):
        kind = draw(st.sampled_from(("product", "sum", "times", "function", "reduction")))
        if kind == "product":
            other = next(others)
            found.append(f"@ · {array((dims[-1], other))}")
            dims = (*dims[:-1], other)
        elif kind == "reduction" and len(dims) > 1:
            found.append(f"{draw(st.sampled_from(('sum', 'max')))}_{dims[-1]}(@)")
            dims = dims[:-1]
        elif kind in ("sum", "times"):
            found.append(f"@ {'+' if kind == 'sum' else '⊙'} {array(dims)}")
        else:
            found.append(f"{draw(st.sampled_from(('relu', 'neg')))}(@)")
    return start, found, dims


@st.composite
def cuts(draw, meshes=({"X": 2}, {"X": 4}, {"X": 2, "Y": 2}), most=4):
    """The same program cut in two ways: in one statement, or in few; and with one for each operation."""
    mesh = Mesh.of(draw(st.sampled_from(meshes)))
    start, found, dims = draw(operations(mesh, draw(st.integers(2, most))))
    out = "S" + spell(dims, draw(shardings(mesh, len(dims), unreduced=False)))
    ends = [draw(st.booleans()) for _ in found[:-1]]
    return mesh, [_text(start, found, out, own) for own in ([False] * len(ends), ends, [True] * len(ends))]


def _text(start, found, out, ends):
    lines, expr = list[str](), start
    for number, operation in enumerate(found):
        expr = operation.replace("@", expr if "(@)" in operation else f"({expr})")
        if number < len(ends) and ends[number]:
            lines.append(f"T{number} = {expr}")
            expr = f"T{number}"
    return "; ".join([*lines, f"{out} = {expr}"])


def assert_cuts_change_no_price(case, objective):
    mesh, texts = case
    prices = [plan_program(parsed(text, mesh, DIMS), model_of(mesh), objective).price(objective) for text in texts]
    assert len({objective.first(price) for price in prices}) == 1, texts


@settings(max_examples=15, deadline=None)
@given(cuts(), st.sampled_from(Objective))
def test_where_statements_end_changes_no_price(case, objective):
    assert_cuts_change_no_price(case, objective)


LONG = [  # of the orders of its five factors the cheapest is not among the first sixteen
    "S[M] = (((((max_K(relu((A[I_Y, J]) · B[J_XZ, K_Y]))) · C[I_X, L_Y]) · D[L_Y, M_ZX]) ⊙ E[M_Y]) ⊙ F[M]) + G[M]",
    "T1 = relu((A[I_Y, J]) · B[J_XZ, K_Y]); T2 = max_K(T1); T3 = (T2) · C[I_X, L_Y]; T4 = (T3) · D[L_Y, M_ZX]; "
    "T5 = (T4) ⊙ E[M_Y]; S[M] = ((T5) ⊙ F[M]) + G[M]",
]


SEVEN = [  # in turn, pairs turned as long as one costs less, it stays at 43,156 ps, and 38,035 are enough
    "S[I, U] = ((((((A[I, J]) · B[J, K]) · C[K, L]) · D[L, M]) · E[M, Q]) · F[Q, R]) · G[R, U]",
    "T0 = (A[I, J]) · B[J, K]; T1 = (T0) · C[K, L]; T2 = (T1) · D[L, M]; T3 = (T2) · E[M, Q]; T4 = (T3) · F[Q, R]; "
    "S[I, U] = (T4) · G[R, U]",
]


@pytest.mark.exhaustive
@example((Mesh.of({"X": 2, "Y": 2, "Z": 2}), SEVEN), Objective.TIME)
@example((Mesh.of({"X": 2, "Y": 2, "Z": 2}), LONG), Objective.TIME)
@settings(max_examples=15, deadline=None)
@given(cuts(({"X": 2, "Y": 2}, {"X": 4, "Y": 2}, {"X": 2, "Y": 2, "Z": 2}), 8), st.sampled_from(Objective))
def test_where_statements_end_changes_no_price_over_more(case, objective):
    assert_cuts_change_no_price(case, objective)


ON_X0_X1 = [  # 2,816 bytes in one statement, and 3,072 where it ended anywhere, since in turn a cut gained nothing
    "S[I, L] = neg(((A[I, J_X]) · B[J_X, K]) · C[K, L])",
    "T0 = (A[I, J_X]) · B[J_X, K]; T1 = (T0) · C[K, L]; S[I, L] = neg(T1)",
]


def test_statements_are_planned_together_on_a_finer_mesh_too():
    """And what only one statement is comes to the same."""
    programs, model = [parsed(text, Mesh.of({"X": 4}), DIMS) for text in ON_X0_X1], model_of(Mesh.of({"X": 4}))
    found = [plan_with_subaxes(program, model, Objective.BYTES) for program in programs]
    assert [(each.cost.wire_bytes, str(each.schedule.by)) for each in found] == [(2816, "X = X0·X1 (4 = 2·2)")] * 2


@pytest.mark.exhaustive
@example((Mesh.of({"X": 4}), ON_X0_X1))
@settings(max_examples=20, deadline=None)
@given(cuts(({"X": 4}, {"X": 8}, {"X": 4, "Y": 2})))
def test_where_statements_end_changes_no_bytes_where_axes_are_cut(case):
    mesh, texts = case
    programs, model = [parsed(text, mesh, DIMS) for text in texts], model_of(mesh)
    found = {plan_with_subaxes(program, model, Objective.BYTES).cost.wire_bytes for program in programs}
    assert len(found) == 1, texts


def test_only_chains_of_more_orders_than_tables_go_through_are_joined_beside_them():
    """A layer's chains of three took two thirds of its planning, for orders that the tables know."""
    mesh = Mesh.of({"X": 2})
    short = parsed("T = A[I, J] · B[J, K]; S[I, L] = T · C[K, L]", mesh, DIMS)
    assert joined(short, with_short=False) is None
    (statement,) = joined(short, with_short=True).program.statements
    assert statement.expr == parsed("S[I, L] = (A[I, J] · B[J, K]) · C[K, L]", mesh, DIMS).statements[0].expr
    assert len(joined(parsed(SEVEN[1], mesh, DIMS), with_short=False).program.statements) == 1


@pytest.mark.instant
@pytest.mark.parametrize(
    "text", ["C[I, K] = A[I, J_X] · B[J, K_Y]", "C[I] = sum_J(A[I, J_X])", "C[B, K] = A[B_X, J] · D[B, K, J_Y]"]
)
def test_of_many_ways_those_without_partial_sums_are_left(monkeypatch, text):
    """Of operands; and they cost what they did."""
    program = parsed(text, Mesh.of({"X": 2, "Y": 2}), DIMS | {"B": 8})
    problem = Problem(program, model_of(program.mesh), Objective.BYTES, program.mesh.names)
    expr = program.statements[0].expr
    below = [(problem.search(each), frozenset("XY")) for each in expr.operands]
    around, spaces = problem.search(expr), spaces_of(program, program.mesh.names)
    every, _ = local._products(expr, problem.work(expr), around, below, spaces)
    monkeypatch.setattr(local, "MOST_WAYS", len(every) - 1)
    few, partial = local._products(expr, problem.work(expr), around, below, spaces)
    whole = [(way, price) for way, price in every if not any(map(_is_partial, [one for one, _ in below], way.at))]
    assert [*few] == whole and 0 < len(few) < len(every) and partial == frozenset("XY")
    monkeypatch.setattr(local, "MOST_WAYS", len(every))
    assert local._products(expr, problem.work(expr), around, below, spaces)[0] == every


def _is_partial(search, number):
    return bool(search.graph.shardings[number].unreduced)


@pytest.mark.instant
@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize(
    "text",
    [
        "T[I_?, K_?] = A[I_X, J] · B[J, K]; S[I, L] = relu(T · C[K_X, L]) ⊙ D[I, L]; return S",
        "T = A[I_X, J] · B[J_Y, K]; S[I, L_X] = (relu(T) · C[K_X, L]) ⊙ D[I, L] + T · E[K, L]; return S",
    ],
)
def test_what_one_of_many_operations_could_do_instead_leaves_what_the_others_take(text, objective):
    program = parsed(text, Mesh.of({"X": 2, "Y": 2}), dict.fromkeys("IJKL", 16))
    found = plan_program(program, model_of(program.mesh), objective)
    schedule, before = found.schedule, [step for step in found.schedule.steps if step.statement == 0]
    others = found.statements[1].cheapest(12)
    assert len({len(other.steps) for other in others}) > 1
    for other in others:
        block = Block(other.values, schedule.inputs, (other.steps[-1].result,), (*before, *other.steps))
        assert_means_the_program(replace(schedule, block=block))
