"""Whole arrays to blocks and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.errors import ShardcError
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Sharding
from shardc.simulate import ReplicaMismatch, expected_blocks, gather, scatter
from shardc.testing import all_shardings, meshes, shardings

XY = Mesh.of({"X": 2, "Y": 4})
XYZ = Mesh.of({"X": 2, "Y": 3, "Z": 2})


def array(sharding, shape, dtype="f32"):
    return Array("A", tuple("IJKL"[: len(shape)]), shape, sharding, DTYPES[dtype])


def whole(shape):
    return np.arange(int(np.prod(shape))).reshape(shape).astype(float)


@pytest.mark.parametrize("mesh", [XY, XYZ], ids=str)
def test_every_device_holds_the_block_that_block_of_names(mesh):
    shape = (24, 48)
    for sharding in all_shardings(mesh, 2, unreduced=False):
        blocks = expected_blocks(whole(shape), array(sharding, shape), mesh)
        local = sharding.local_shape(shape, mesh)
        for place in mesh.coordinates():
            rows, columns = sharding.block_of(place, mesh)
            expected = whole(shape)[rows * local[0] :, columns * local[1] :][: local[0], : local[1]]
            np.testing.assert_array_equal(blocks[tuple(place.values())], expected)


@pytest.mark.parametrize("mesh", [XY, XYZ], ids=str)
def test_gather_undoes_scatter_for_every_sharding(mesh):
    shape = (24, 48)
    for sharding in all_shardings(mesh, 2):
        blocks = scatter(whole(shape), array(sharding, shape), mesh, seed=5)
        np.testing.assert_array_equal(gather(blocks, array(sharding, shape), mesh), whole(shape))


def test_the_parts_along_an_unreduced_axis_differ_and_add_up():
    sharding = Sharding.of(["X", ""], "Y")
    blocks = scatter(whole((4, 6)), array(sharding, (4, 6)), XY)
    assert len({blocks[0, y].tobytes() for y in range(4)}) == 4
    np.testing.assert_array_equal(blocks[0].sum(axis=0), whole((4, 6))[:2])


@pytest.mark.parametrize("dtype", ["f32", "int32"])
def test_parts_differ_even_of_one_element_on_many_devices(dtype):
    mesh = Mesh.of({"X": 16})
    a = array(Sharding((), frozenset("X")), (), dtype)
    blocks = scatter(np.array(3), a, mesh)
    assert len(set(blocks.tolist())) == 16
    assert blocks.sum() == 3 and np.abs(blocks).max() < 2**12


def test_parts_are_small_whatever_the_number_of_devices():
    mesh = Mesh.of({"X": 512})
    blocks = scatter(np.zeros((8, 8)), array(Sharding.of(["", ""], "X"), (8, 8)), mesh)
    assert np.abs(blocks).max() <= 8


def test_parts_are_the_same_for_a_seed_and_others_for_another():
    a = array(Sharding.of(["", ""], "X"), (4, 6))
    first, again, other = (scatter(whole((4, 6)), a, XY, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_copies_that_differ_are_found_and_named():
    a = array(Sharding.of(["X", ""]), (4, 6))
    blocks = scatter(whole((4, 6)), a, XY).copy()
    blocks[1, 2, 0, 3] += 1
    with pytest.raises(ReplicaMismatch, match=r"device \(X=1, Y=2\) has 16.0 at \(0, 3\) .* has 15.0"):
        gather(blocks, a, XY)
    assert issubclass(ReplicaMismatch, ValueError)


@pytest.mark.instant
@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-30, 1.0, 1e30]))
def test_copies_added_up_in_other_orders_are_copies(seed, size):
    """As around a ring, where each device begins with its own part; a part left out, or doubled, is none of that."""
    parts = np.random.default_rng(seed).normal(size=(4, 6, 8)) * size
    a, mesh = array(Sharding.of(["", ""]), (6, 8)), Mesh.of({"X": 4})
    copies = np.array([sum(np.roll(parts, place, axis=0)) for place in range(4)])
    np.testing.assert_array_equal(gather(copies, a, mesh), copies[0])
    for wrong in (copies[3] - parts[0], copies[3] + parts[2], copies[3] * (1 + 1e-6), np.full((6, 8), np.nan)):
        with pytest.raises(ReplicaMismatch):
            gather(np.array([*copies[:3], wrong]), a, mesh)
    for one in (np.inf, -np.inf, np.nan):
        copies[:, 0, 0] = one
        gather(copies, a, mesh)
        with pytest.raises(ReplicaMismatch, match=r"at \(0, 0\)"):
            gather(np.concatenate([copies[:3], np.where(copies[3:] == copies[3:], -copies[3:], 0)]), a, mesh)


def test_copies_of_whole_numbers_are_equal():
    a, mesh = array(Sharding.of(["", ""]), (4, 6)), Mesh.of({"X": 2})
    blocks = np.full((2, 4, 6), 2**40)
    blocks[1, 0, 0] += 1
    with pytest.raises(ReplicaMismatch):
        gather(blocks, a, mesh)


def test_copies_of_nan_are_copies():
    values = whole((4, 6))
    values[0, 0] = np.nan
    a = array(Sharding.of(["X", ""]), (4, 6))
    np.testing.assert_array_equal(gather(scatter(values, a, XY).copy(), a, XY), values)


def test_unreduced_taken_for_replicated_is_found():
    partial = Sharding.of(["X", ""], "Y")
    blocks = scatter(whole((4, 6)), array(partial, (4, 6)), XY)
    with pytest.raises(ReplicaMismatch):
        gather(blocks, array(Sharding.of(["X", ""]), (4, 6)), XY)


def test_replicated_taken_for_unreduced_is_found():
    blocks = scatter(whole((4, 6)), array(Sharding.of(["X", ""]), (4, 6)), XY)
    found = gather(blocks, array(Sharding.of(["X", ""], "Y"), (4, 6)), XY)
    np.testing.assert_array_equal(found, 4 * whole((4, 6)))


def test_blocks_of_the_wrong_shape_and_unreduced_expectations_are_refused():
    a = array(Sharding.of(["X", ""]), (4, 6))
    with pytest.raises(ValueError, match="have the shape"):
        gather(np.zeros((2, 4, 4, 6)), a, XY)
    with pytest.raises(ValueError, match="any parts that add up"):
        expected_blocks(whole((4, 6)), array(Sharding.of(["X", ""], "Y"), (4, 6)), XY)


@pytest.mark.instant
@pytest.mark.parametrize(
    "value, dtype, code",
    [
        (np.zeros((4, 5)), "f32", "SHC303"),
        (np.zeros((4, 6)), "int8", "SHC304"),
        (np.zeros((4, 6), complex), "f32", "SHC304"),
        (np.full((4, 6), "a"), "f32", "SHC304"),
    ],
)
def test_wrong_arguments_are_coded_errors(value, dtype, code):
    with pytest.raises(ShardcError) as caught:
        scatter(value, array(Sharding.of(["X", ""]), (4, 6), dtype), XY)
    assert caught.value.code == code and caught.value.help


@pytest.mark.instant
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_gather_undoes_scatter(data):
    mesh = data.draw(meshes())
    rank = data.draw(st.integers(0, 3))
    sharding = data.draw(shardings(mesh, rank))
    shape = tuple(mesh.product(axes) * n for axes, n in zip(sharding.dims, (2, 1, 3), strict=False))
    blocks = scatter(whole(shape), array(sharding, shape), mesh, seed=data.draw(st.integers(0, 9)))
    assert blocks.shape == mesh.sizes + sharding.local_shape(shape, mesh)
    np.testing.assert_array_equal(gather(blocks, array(sharding, shape), mesh), whole(shape))
