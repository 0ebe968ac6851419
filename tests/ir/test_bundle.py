"""A mesh seen as a coarser one: the first of the axes that move as one stands for all of them."""

import itertools
from typing import get_args

import pytest

from shardc.ir.bundle import Bundle
from shardc.ir.collectives import Move, apply
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.rules.moves import masks, moves
from shardc.rules.placements import placements

MESH = Mesh((("X", 2), ("S", 2), ("T", 4), ("V", 3)))


@pytest.mark.instant
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


@pytest.mark.instant
@pytest.mark.parametrize("dim", [("S", "X", "T"), ("T", "S"), ("T",)])
def test_axes_that_do_not_stand_together_are_not_one(dim):
    assert Bundle(MESH, ("S", "T")).coarsened(Sharding((dim,))) is None


def test_a_move_of_the_coarse_mesh_is_the_same_move_on_the_mesh_itself():
    """Of every kind, from every sharding over three axes of which one stands for two."""
    bundle = Bundle(Mesh((("X", 2), ("S", 2), ("T", 2), ("Y", 4))), ("S", "T"))
    coarse, kinds = bundle.coarse, set()
    for dims, axes in itertools.product(placements(coarse.names, 2), ("", "S", "XS")):
        if {*axes} & {axis for own in dims for axis in own}:
            continue
        before = Sharding(dims, frozenset(axes))
        for move in (*moves(before, coarse, coarse.names), *masks(before, coarse.names)):
            fine = bundle.move(move)
            left = apply(fine, bundle.refined(before), bundle.mesh)
            assert type(fine) is type(move) and left == bundle.refined(apply(move, before, coarse))
            assert fine.wire_bytes(bundle.refined(before), bundle.mesh, 960) == move.wire_bytes(before, coarse, 960)
            kinds.add(type(move))
    assert kinds == {*get_args(Move)}
