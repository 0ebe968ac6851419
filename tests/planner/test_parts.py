"""Small parts of the planner, by hand."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.errors import ShardcError
from shardc.ir.expressions import Pattern
from shardc.ir.mesh import Mesh
from shardc.ir.program import For
from shardc.ir.sharding import Sharding
from shardc.planner import Idle, Objective
from shardc.planner.options import Method, Options
from shardc.planner.paths.few import few_choices, fitted
from shardc.planner.planned import Gap, Planning
from shardc.planner.problem import Problem
from shardc.planner.program.plan import planned_at_once
from shardc.planner.whole import plan
from shardc.planner.whole.arrays import is_accumulated
from shardc.planner.whole.eliminate import Solved, solve
from shardc.planner.whole.plan import _Task
from shardc.planner.whole.prices import NEVER
from shardc.planner.whole.rewrites import Rewritten
from shardc.testing import matmuls

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program
from test_whole import model_of, parsed


@pytest.mark.parametrize(("price", "bound", "ratio"), [(6, 4, 1.5), (4, 4, 1.0), (0, 0, 1.0), (5, 0, None)])
def test_a_gap_is_price_over_bound_and_unknown_where_none_is_proved(price, bound, ratio):
    gap = Gap("S", price, bound)
    assert gap.ratio == ratio and ("unknown" in str(gap)) == (ratio is None)


def test_an_open_dim_lies_on_no_axis_or_on_all_that_are_left():
    mesh, pattern = Mesh.of({"X": 2, "Y": 2, "Z": 2}), Pattern((("X",), None, None))
    found = [str(each.dims) for each in few_choices(pattern, mesh, ("X", "Y", "Z"))]
    wanted = [Sharding.of([["X"], [], []]), Sharding.of([["X"], ["Y", "Z"], []]), Sharding.of([["X"], [], ["Y", "Z"]])]
    assert found == [str(each.dims) for each in wanted]
    assert fitted(pattern, Sharding.of([["Y"], ["X", "Z"], []])) == Sharding.of([["X"], ["Z"], []])


@pytest.mark.parametrize(("middle", "bytes_"), [(1, 128), (2, 128), (64, 4096)])
def test_what_is_summed_limits_the_rank_of_a_product_and_its_bound(middle, bytes_):
    """All of S on each of two devices, that have half of A's rows and half of C's: half of A · B is 32 · 64 numbers of
    two bytes; through a thin J less is enough."""
    text, dims = "S[I, L] = (A[I_X, J] · B[J, K]) · C[K_X, L]", {"I": 64, "J": middle, "K": 64, "L": 64}
    found = shardc.plan(text, mesh="X=2,Y=2", dims=dims, objective="bytes")
    assert found.bound.wire_bytes == bytes_ <= found.cost.wire_bytes


def test_what_cannot_be_unreduced_is_refused_with_the_reason_and_the_remedy():
    with pytest.raises(ShardcError) as caught:
        shardc.plan("A[I, J] → A[I, J]{U_X}", mesh="X=2", dims={"I": 8, "J": 8})
    assert caught.value.note == "nothing makes the value unreduced over X"
    assert caught.value.help == "drop the `{U_…}`, or contract a dim that this axis shards"


@pytest.mark.parametrize("objective", Objective)
def test_a_pruned_graph_has_the_same_least_price_and_none_below_what_is_known(objective, monkeypatch):
    mesh = Mesh.of({"X": 2, "Y": 2})
    program = parsed(
        "T = A[I_X, J_Y] · B[J, K]; U = relu(T); S[I, L_Y] = U · C[K_X, L]", mesh, dict.fromkeys("IJKL", 64)
    )
    task = _Task.of(
        Problem(program, model_of(mesh), objective, mesh.names), Planning(objective, Idle.USE, planned_at_once)
    )
    graph = task._graph(Rewritten.of(program))
    least = solve(graph.nodes.sizes, graph.nodes.factors).price
    monkeypatch.setattr(plan, "FEW", 0)
    assert plan._solved(graph).price == plan._solved(graph, known=least + 1).price == least
    assert plan._solved(graph, known=least // 2) == Solved((), NEVER, NEVER)


@pytest.mark.parametrize(
    ("inner", "is_linear"), [("G = G + W[L, M, I]", True), ("G = G + relu(G)", False), ("G = W[L, M, I]", True)]
)
def test_what_a_loop_in_a_loop_only_adds_to_is_accumulated(inner, is_linear):
    text = f"G[I] = A[I]; for L {{ for M {{ {inner} }} }}; S[I] = G"
    program = parsed(text, Mesh.of({"X": 2}), {"I": 8, "L": 2, "M": 2})
    (loop,) = (each for each in program.statements if isinstance(each, For))
    assert is_accumulated(program.inside(loop), "G") == is_linear


def test_under_a_limit_below_the_plans_peak_each_statement_is_leaner_or_all_is_refused():
    text = "T[I_X, K] = A[I_X, J_Y] · B[J, K]; S[I, L_Y] = T · C[K_X, L]"
    asked = {"mesh": "X=2,Y=2", "dims": {"I": 64, "J": 32, "K": 128, "L": 64}, "objective": "bytes"}
    free = shardc.plan(text, **asked)
    limits, found = [free.cost.peak_bytes], []
    while limits:
        try:
            found.append(shardc.plan(text, memory=limits.pop() - 1, **asked).cost)
            limits.append(found[-1].peak_bytes)
        except ShardcError as error:
            assert error.code == "SHC410"
    peaks, wires = [[free.cost.peak_bytes, *(cost.peak_bytes for cost in found)], [cost.wire_bytes for cost in found]]
    assert found and peaks == sorted(peaks, reverse=True) and wires == sorted(wires)


@settings(max_examples=10)
@given(matmuls(max_axes=2), st.sampled_from(Objective))
def test_without_a_search_a_plan_means_the_program_and_costs_no_less(case, objective):
    program = shardc.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="bf16")
    model = model_of(case.mesh)
    asked = (Options(method=how, idle=False) for how in (Method.SEARCH, Method.ROUTES))
    searched, routed = (planned_at_once(program, model, objective, options) for options in asked)
    assert objective.first(routed.price(objective)) >= objective.first(searched.price(objective))
    assert_means_the_program(routed.schedule)


@pytest.mark.parametrize(
    "text",
    [
        "S[I_X, J] = A[I, J_Y] + B[I_X, J]",
        "S[I_?, J_?] = A[I, J_Y] + B[I_X, J]",
        "S[I_?, K] = A[I_X, J_Y] · B[J_Y, K]",
        "T = A[I_X, J] · B[J, K_Y]; S[I, K] = relu(T) + C[I, K_Y]",
    ],
)
def test_without_a_search_functions_and_open_shardings_are_planned_too(text):
    mesh = Mesh.of({"X": 2, "Y": 2})
    program = parsed(text, mesh, dict.fromkeys("IJK", 8))
    found = planned_at_once(program, model_of(mesh), Objective.BYTES, Options(method=Method.ROUTES, idle=False))
    assert_means_the_program(found.schedule)
