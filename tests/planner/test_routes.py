"""Closed routes: each leads where it should, in digits where it is said to, and by shape only where it is said to."""

import itertools
import math

import pytest

from shardc.ir.collectives import AllGather, JointGather, UnevenExchange, apply
from shardc.ir.digits import Reshape, reshaped
from shardc.ir.exchange import Tail, pieces
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Sharding
from shardc.rules.placements import placements
from shardc.rules.routes import _pieces, depends_on_shape, needs_digits, plainly, route

MESHES = [Mesh.of({"X": 2, "Y": 2, "Z": 2}), Mesh.of({"X": 2, "Y": 4}), Mesh.of({"X": 2, "Y": 3, "Z": 4})]
LARGE, UNEVEN = (48, 48), (12, 8)


def shardings(mesh, unreduced=("",)):
    every = itertools.product(placements(mesh.names, 2), unreduced)
    return [Sharding(dims, frozenset(axes)) for dims, axes in every if not {*axes} & {a for d in dims for a in d}]


def pairs(mesh):
    """From every sharding, of partial sums too, to every one; over three axes one in three."""
    every = itertools.product(shardings(mesh, ("", "X", "XY")), shardings(mesh, ("", "X")))
    return itertools.islice(every, 0, None, 1 if len(mesh.axes) < 3 else 3)


def end_of(found, source, mesh):
    for op in found:
        source = reshaped(op, source, mesh) if isinstance(op, Reshape) else apply(op, source, mesh)
    return source


@pytest.mark.instant
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_a_route_leads_from_one_to_the_other(mesh):
    known = 0
    for source, target in pairs(mesh):
        found = route(source, target, LARGE, mesh)
        known += found is not None
        assert found is None or end_of(found, source, mesh) == target, (source, target)
        for plain in plainly(source, target, mesh):
            assert end_of(plain, source, mesh) == target, (source, target)
            assert not any(isinstance(op, Reshape | UnevenExchange) for op in plain)
    assert known > 100


@pytest.mark.instant
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_it_is_in_digits_where_it_is_said_to_be_and_goes_by_the_shape_where_it_is_said_to(mesh):
    of_shape = 0
    for source, target in pairs(mesh):
        found, other = (route(source, target, shape, mesh) for shape in (LARGE, UNEVEN))
        if found is not None:
            assert needs_digits(source, target, mesh) == isinstance(next(iter(found), None), Reshape), (source, target)
        of_shape += found != other
        assert found == other or depends_on_shape(source, target, mesh)
    assert of_shape


@pytest.mark.instant
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_there_are_plain_routes_unless_sums_are_wanted_that_do_not_arrive(mesh):
    for source, target in pairs(mesh):
        assert bool([*plainly(source, target, mesh)]) == (source.unreduced >= target.unreduced)


def gathered(found):
    return sum(len(op.axes) for op in found if isinstance(op, AllGather | JointGather))


@pytest.mark.instant
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_blocks_change_devices_first_where_less_is_to_be_gathered_then(mesh):
    """`A[I_X, J_Y] → A[I_Y, J_Z]`: permute `A[I_Y, J_X]`, then gather X, slice Z: one axis in the place of two."""
    less = 0
    for source, target in itertools.product(shardings(mesh), repeat=2):
        plain, *others = plainly(source, target, mesh)
        less += sum(gathered(other) < gathered(plain) for other in others)
    assert less > 10


@pytest.mark.instant
def test_pieces_are_counted_as_an_exchange_counts_them():
    """Of all blocks of three dims, as many after as before."""
    counts = list(itertools.product((1, 2, 3, 4, 6), repeat=3))
    for held, wanted in itertools.product(counts, repeat=2):
        if math.prod(held) == math.prod(wanted):
            parts = tuple(Tail((), (), *each) for each in zip(held, wanted, strict=True))
            assert _pieces(held, wanted) == (pieces(parts) or 0)
