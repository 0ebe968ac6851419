"""Small parts of the planner, by hand."""

import pytest

import shardc
from shardc.ir.expressions import Pattern
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.planner.paths.few import few_choices, fitted
from shardc.planner.planned import Gap


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
    plan = shardc.plan(text, mesh="X=2,Y=2", dims=dims, objective="bytes")
    assert plan.bound.wire_bytes == bytes_ <= plan.cost.wire_bytes
