"""Small parts of the planner, by hand."""

import sys
from pathlib import Path

import pytest

import shardc
from shardc.errors import ShardcError
from shardc.ir.expressions import Pattern
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.planner import Idle, Objective
from shardc.planner.paths.few import few_choices, fitted
from shardc.planner.planned import Gap, Planning
from shardc.planner.problem import Problem
from shardc.planner.program.plan import planned_at_once
from shardc.planner.whole import plan
from shardc.planner.whole.eliminate import Solved, solve
from shardc.planner.whole.plan import _Task
from shardc.planner.whole.prices import NEVER
from shardc.planner.whole.rewrites import Rewritten

sys.path.insert(0, str(Path(__file__).parent))
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
