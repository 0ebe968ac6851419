"""A mesh seen as a coarser one: the first of the axes that move as one stands for all of them."""

import pytest

from shardc.ir.bundle import Bundle
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding

MESH = Mesh((("X", 2), ("S", 2), ("T", 4), ("V", 3)))


@pytest.mark.parametrize("axes", [("S", "T"), ("S", "T", "V")])
def test_the_first_stands_for_all(axes):
    bundle = Bundle(MESH, axes)
    assert bundle.coarse.names == tuple(name for name in MESH.names if name not in axes[1:])
    assert bundle.coarse.product(("S",)) == MESH.product(axes)
    for fine, coarse in (
        (Sharding((("X", *axes), ())), Sharding((("X", "S"), ()))),
        (Sharding(((), ("X",)), frozenset(axes)), Sharding(((), ("X",)), frozenset("S"))),
    ):
        assert bundle.coarsened(fine) == coarse
        assert bundle.refined(coarse) == fine


@pytest.mark.parametrize("dim", [("S", "X", "T"), ("T", "S"), ("T",)])
def test_axes_that_do_not_stand_together_are_not_one(dim):
    assert Bundle(MESH, ("S", "T")).coarsened(Sharding((dim,))) is None
