"""Prices that break a law at any number of bytes are found, and the move that is wrong is named."""

import math
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest

from shardc.cost import CHIPS, LinkModel
from shardc.ir.collectives import AllGather, AllReduce, AllToAll, Move, ReduceScatter, Slice
from shardc.ir.mesh import Mesh
from shardc.testing import assert_cost_model

pytestmark = pytest.mark.instant
MESHES = [Mesh.of({"X": 2}), Mesh.of({"X": 3}), Mesh.of({"X": 4, "Y": 2})]


def linear(mesh, chip="v5p"):
    model = LinkModel.of(mesh, CHIPS[chip])
    return lambda move, size: model.rate(move).seconds(size)


def failure(price, mesh):
    with pytest.raises(AssertionError) as caught:
        assert_cost_model(price, mesh)
    return str(caught.value)


FALLS = [n * 2**at // 16 for at in (5, 10, 16, 20, 27, 30) for n in (16, 17, 19, 23, 24, 29, 31)]


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("times", [0.5, 1e-4, 0.0])
def test_a_price_that_falls_at_any_number_of_bytes_is_found(times, mesh):
    """Halved it is at twice the bytes what it was, so that powers of two alone see nothing."""

    base = linear(mesh)
    for bytes_there in FALLS:

        def price(move, size, most=bytes_there):
            """Of the kind of which no other law wants it to be as high."""
            low = 1e-15 * size * (times if size > most else 1)
            return low if isinstance(move, AllToAll) else base(move, size)

        assert "more bytes take no less time: AllToAll" in failure(price, mesh), bytes_there


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("times", [2.5, 1e4])
def test_a_price_that_leaps_at_any_number_of_bytes_is_found(times, mesh):
    base = linear(mesh)
    for bytes_there in FALLS[14:]:
        said = failure(lambda move, size, at=bytes_there: base(move, size) * (times if size > at else 1), mesh)
        assert "takes" in said or "at most twice as long" in said, bytes_there


@pytest.mark.parametrize(
    ("number", "said"), [(math.nan, "NaN"), (math.inf, "inf"), (-math.inf, "-inf"), (10**400, "inf")]
)
@pytest.mark.parametrize("kind", [kind for kind in get_args(Move) if kind in (Slice, AllGather, AllToAll, AllReduce)])
def test_what_is_not_finite_is_called_what_it_is_and_of_which_move(kind, number, said):
    mesh = MESHES[2]
    base = linear(mesh)
    found = failure(lambda move, size: number if isinstance(move, kind) else base(move, size), mesh)
    assert f"a price is a finite number of seconds: {kind.__name__}(" in found and found.endswith(f"has {said}")


def test_a_price_that_is_infinite_for_all_but_slices_is_none():
    mesh = MESHES[0]
    assert "has inf" in failure(lambda move, size: 0.0 if isinstance(move, Slice) else math.inf, mesh)


@pytest.mark.parametrize("number", [Fraction(0), np.float32(0), 0])
def test_every_kind_of_number_is_a_price(number):
    assert_cost_model(lambda move, size: number, MESHES[0])


KINDS = (AllToAll, AllReduce, AllGather, ReduceScatter)


@pytest.mark.parametrize(("kind", "times"), [*((kind, 9) for kind in KINDS), *((kind, 0.1) for kind in KINDS[1:])])
def test_the_move_that_is_wrong_is_named(kind, times):
    mesh = MESHES[2]
    base = linear(mesh)
    said = failure(lambda move, size: base(move, size) * (times if isinstance(move, kind) else 1), mesh)
    assert f"{kind.__name__}(" in said
    if kind in (AllToAll, AllReduce):  # of which alone there are laws that no other is wrong by
        assert f": {kind.__name__}(axes=" in said
