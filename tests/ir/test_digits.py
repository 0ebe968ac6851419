"""Dims in digits: the law that says which arrays are the digits of another, and what digits are called."""

import itertools

import numpy as np
import pytest

from shardc.ir.digits import Reshape, names_after, places_of, size_at
from shardc.ir.dtypes import DTYPES
from shardc.ir.laws import reshape_law
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Sharding
from shardc.rules.placements import placements

MESH = Mesh.of({"X": 2, "Y": 2})


def elements(array):
    """The numbers of the elements that each device holds, in the order in which it holds them."""
    numbers = np.arange(np.prod(array.shape)).reshape(array.shape)
    local = array.local_shape(MESH)
    blocks = (array.sharding.block_of(place, MESH) for place in MESH.coordinates())
    return [
        numbers[tuple(slice(n * size, (n + 1) * size) for n, size in zip(block, local, strict=True))].ravel().tolist()
        for block in blocks
    ]


def arrays(sizes, names):
    """Of these sizes, over the axes of the mesh in every way that divides them."""
    every = (Sharding(dims) for dims in placements(MESH.names, len(sizes)))
    return [Array("A", names, sizes, each, DTYPES["f32"]) for each in every if each.divides(sizes, MESH)]


@pytest.mark.instant
@pytest.mark.parametrize("upper", [1, 2, 4])
def test_digits_are_those_of_a_dim_where_each_device_holds_the_same_in_the_same_order(upper):
    """Of two digits of any sizes, of a dim of eight elements: as many, cut as it is said, and none from elsewhere."""
    shapes = itertools.product((1, 2, 4, 8), repeat=2)
    digits = [each for shape in shapes for each in arrays(shape, ("I0", "I1"))]
    for whole, split in itertools.product(arrays((8,), ("I",)), digits):
        same = split.shape == (upper, 8 // upper) and elements(split) == elements(whole)
        assert (reshape_law(whole, split, ((upper,),), MESH) is None) == same, (str(whole), str(split), split.shape)


def test_digits_are_partial_sums_over_the_same_axes():
    whole = Array("A", ("I",), (8,), Sharding.of(["X"], "Y"), DTYPES["f32"])
    for unreduced, is_same in (("Y", True), ("", False)):
        split = Array("A", ("I0", "I1"), (2, 4), Sharding.of(["X", ""], unreduced), DTYPES["f32"])
        assert (reshape_law(whole, split, ((2,),), MESH) is None) == is_same


@pytest.mark.instant
@pytest.mark.parametrize("taken", ["I0", "I1", "I2", "I3", "I", "J0", "Id1"])
def test_digits_have_the_names_of_their_dim_unless_one_of_these_is_taken(taken):
    """`Id1` is, if they were to be called so."""
    split = Reshape(((2, 2), ()), joins=False)
    stem = "Id" if taken in ("I0", "I1", "I2") else "I"
    assert names_after(split, ("I", "J"), (taken,)) == (*(f"{stem}{number}" for number in range(3)), "J")
    assert names_after(split, ("I", "J"), ("I2", "Id2"))[:3] == ("Idd0", "Idd1", "Idd2")


@pytest.mark.instant
@pytest.mark.parametrize("sizes", list(itertools.product([(), (2,), (3, 2)], repeat=2)), ids=str)
def test_an_array_in_digits_has_at_each_place_what_a_reshape_has_there(sizes):
    """The sizes that are told, and of each dim the rest."""
    shape, split = (12, 18), Reshape(sizes, joins=False)
    found = [size_at(place, shape) for place in places_of(split)]
    rests = [size // int(np.prod(digits)) for size, digits in zip(shape, sizes, strict=True)]
    assert found == [each for digits, rest in zip(sizes, rests, strict=True) for each in (*digits, rest)]
