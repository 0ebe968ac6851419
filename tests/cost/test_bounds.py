"""A bound is what one move takes, where one move is all that is left to do; and more where more is."""

import pytest

from shardc.cost import LinkModel, chip
from shardc.cost.bounds import rate_bound
from shardc.cost.rate import Rate
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, ReduceScatter
from shardc.ir.mesh import Mesh

X = ("X",)
ONE_MOVE = [  # a move, and of how many devices a block before it, a block after it, and what is kept of that
    (AllGather(X, 0), lambda n: (n, 1, n), ()),
    (AllToAll(X, 0, 1), lambda n: (n, n, n * n), ()),
    (ReduceScatter(X, 0), lambda n: (1, n, None), X),
    (AllReduce(X), lambda n: (1, 1, None), X),
]


@pytest.mark.instant
@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("name", ["v5e", "v5p", "H100"])
@pytest.mark.parametrize(("move", "lies", "summed"), ONE_MOVE, ids=[move.facts.name for move, _, _ in ONE_MOVE])
def test_where_one_move_does_it_the_bound_is_its_price(move, lies, summed, name, count):
    model = LinkModel.of(Mesh.of({"X": count}), chip(name))
    before, block, kept = lies(count)
    bound = rate_bound(model, X, X, summed, block, kept, False)
    rate = model.rate(move)
    assert bound.s_per_byte * before / rate.s_per_byte == pytest.approx(1, rel=1e-9)
    assert bound.latency_s <= rate.latency_s * (1 + 1e-9)


def test_over_three_axes_one_share_is_brought_by_a_gather_over_one():
    """The module's own example: of eight devices, one share to come takes 1/W, and no exchange over all is enough."""
    model = LinkModel.of(Mesh.of({"X": 2, "Y": 2, "Z": 2}), chip("v5p"))
    bound = rate_bound(model, ("X", "Y", "Z"), (), (), 4, 8, False)
    assert bound.s_per_byte * 8 / model.rate(AllGather(X, 0)).s_per_byte == pytest.approx(1, rel=1e-9)


def test_nothing_to_bring_takes_its_hops_alone():
    model = LinkModel.of(Mesh.of({"X": 4}), chip("v5p"))
    nothing = rate_bound(model, X, (), (), 4, 4, False)
    assert nothing == Rate(0.0, 0.0)
    hop = rate_bound(model, X, X, (), 4, 4, False)
    assert hop.s_per_byte == 0
    assert hop.latency_s / model.rate(AllGather(X, 0)).latency_s == pytest.approx(1, rel=1e-9)
