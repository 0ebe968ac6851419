"""The laws of shardings and moves (6, 7 and 10 to 17), on the simulator."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.ir.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    ReduceScatter,
    Slice,
    apply,
)
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Sharding
from shardc.simulate import expected_blocks, gather, scatter, step
from shardc.testing import all_moves, all_shardings, assert_equal_on_every_device, meshes, shardings

SETTINGS = settings(max_examples=80, deadline=None)


def array(sharding, shape):
    return Array("A", tuple("IJKL"[: len(shape)]), shape, sharding, DTYPES["int32"])


def numbered(shape):
    return np.arange(math.prod(shape)).reshape(shape) - 7


RANKS = st.integers(1, 3)


@st.composite
def laid_out(draw, unreduced=0, sharded=0, rank=RANKS, partial=True):
    """A mesh, a sharding and a shape that every sharding of that rank divides.

    At least so many axes are unreduced, and so many shard a dim; with `partial` more may be unreduced.
    """
    mesh = draw(meshes(max_axes=3, max_size=3, min_axes=max(1, unreduced + sharded)))
    chosen = draw(shardings(mesh, draw(rank), unreduced=partial))
    forced = draw(st.permutations(mesh.names))[: unreduced + sharded]
    dims = [tuple(axis for axis in axes if axis not in forced) for axes in chosen.dims]
    for axis in forced[unreduced:]:
        dims[draw(st.integers(0, len(dims) - 1))] += (axis,)
    chosen = Sharding(tuple(dims), chosen.unreduced.difference(forced).union(forced[:unreduced]))
    return mesh, chosen, tuple(mesh.devices * factor for factor in (1, 2, 1)[: chosen.rank])


def do(moves, blocks, before, mesh, shape):
    """The blocks and the sharding that a list of moves leaves."""
    for move in moves:
        after = apply(move, before, mesh)
        blocks = step(move, [blocks], [array(before, shape)], array(after, shape), mesh)
        before = after
    return blocks, before


def same(left, right):
    """Equal blocks on every device, and the same sharding."""
    assert left[1] == right[1]
    np.testing.assert_array_equal(left[0], right[0])


@pytest.mark.instant
@SETTINGS
@given(laid_out())
def test_law_6_local_shape_times_axis_sizes_is_the_global_shape(case):
    mesh, sharding, shape = case
    blocks = scatter(numbered(shape), array(sharding, shape), mesh)
    local = blocks.shape[len(mesh.axes) :]
    assert tuple(n * mesh.product(axes) for n, axes in zip(local, sharding.dims, strict=True)) == shape


@SETTINGS
@given(laid_out(), st.data())
def test_law_7_no_axis_twice_after_any_moves(case, data):
    mesh, sharding, _ = case
    for _ in range(4):
        axes = [*sharding.sharded, *sharding.unreduced]
        assert len(axes) == len(set(axes))
        choices = list(all_moves(sharding, mesh))
        if not choices:
            return
        sharding = apply(data.draw(st.sampled_from(choices)), sharding, mesh)


@pytest.mark.instant
@SETTINGS
@given(laid_out(rank=st.integers(1, 2), sharded=1), st.data())
def test_law_10_every_move_is_the_identity_on_the_whole_array(case, data):
    mesh, sharding, shape = case
    choices = list(all_moves(sharding, mesh))
    move = data.draw(st.sampled_from(choices))
    blocks, after = do([move], scatter(numbered(shape), array(sharding, shape), mesh), sharding, mesh, shape)
    assert_equal_on_every_device(blocks, numbered(shape), array(after, shape), mesh)


@pytest.mark.instant
@SETTINGS
@given(laid_out(unreduced=1), st.data())
def test_law_11_all_reduce_is_reduce_scatter_then_all_gather(case, data):
    mesh, sharding, shape = case
    axes = tuple(data.draw(st.permutations(sorted(sharding.unreduced))))
    dim = data.draw(st.integers(0, sharding.rank - 1))
    start = scatter(numbered(shape), array(sharding, shape), mesh)
    reduced = do([AllReduce(axes)], start, sharding, mesh, shape)
    same(reduced, do([ReduceScatter(axes, dim), AllGather(axes, dim)], start, sharding, mesh, shape))


@SETTINGS
@given(laid_out(sharded=1), st.data())
def test_law_12_all_gather_then_slice_is_the_identity(case, data):
    mesh, sharding, shape = case
    dims = [dim for dim, axes in enumerate(sharding.dims) if axes]
    dim = data.draw(st.sampled_from(dims))
    axes = sharding.dims[dim][data.draw(st.integers(0, len(sharding.dims[dim]) - 1)) :]
    start = scatter(numbered(shape), array(sharding, shape), mesh)
    same((start, sharding), do([AllGather(axes, dim), Slice(axes, dim)], start, sharding, mesh, shape))


@pytest.mark.instant
@SETTINGS
@given(laid_out(sharded=1, rank=st.integers(2, 3)), st.data())
def test_law_13_all_to_all_and_its_inverse_are_the_identity(case, data):
    mesh, sharding, shape = case
    sources = [dim for dim, axes in enumerate(sharding.dims) if axes]
    source = data.draw(st.sampled_from(sources))
    dim = data.draw(st.sampled_from([d for d in range(sharding.rank) if d != source]))
    axes = sharding.dims[source][data.draw(st.integers(0, len(sharding.dims[source]) - 1)) :]
    start = scatter(numbered(shape), array(sharding, shape), mesh)
    moves = [AllToAll(axes, source, dim), AllToAll(axes, dim, source)]
    same((start, sharding), do(moves, start, sharding, mesh, shape))


@SETTINGS
@given(laid_out(unreduced=2), st.data())
def test_law_14_all_reduce_over_two_axes_is_one_after_the_other(case, data):
    mesh, sharding, shape = case
    first, second = data.draw(st.permutations(sorted(sharding.unreduced)))[:2]
    start = scatter(numbered(shape), array(sharding, shape), mesh)
    together = do([AllReduce((first, second))], start, sharding, mesh, shape)
    same(together, do([AllReduce((first,)), AllReduce((second,))], start, sharding, mesh, shape))
    same(together, do([AllReduce((second, first))], start, sharding, mesh, shape))


@SETTINGS
@given(laid_out(partial=False), st.data())
def test_law_15_a_reshard_and_its_inverse_give_back_the_same_bits(case, data):
    mesh, source, shape = case
    values = np.random.default_rng(0).integers(-(2**62), 2**62, size=shape)
    start = expected_blocks(values, array(source, shape), mesh)
    blocks, sharding = start, source
    for _ in range(data.draw(st.integers(1, 3))):
        choices = list(all_moves(sharding, mesh))
        if not choices:
            break
        blocks, sharding = do([data.draw(st.sampled_from(choices))], blocks, sharding, mesh, shape)
    back = [AllGather(axes, dim) for dim, axes in enumerate(sharding.dims) if axes]
    back += [Slice(axes, dim) for dim, axes in enumerate(source.dims) if axes]
    same((start, source), do(back, blocks, sharding, mesh, shape))


def test_law_16_the_order_of_axes_matters_wherever_both_exceed_1():
    for x in range(1, 5):
        for y in range(1, 5):
            mesh = Mesh.of({"X": x, "Y": y})
            shape = (x * y,)
            orders = [expected_blocks(numbered(shape), array(Sharding.of([o]), shape), mesh) for o in ("XY", "YX")]
            assert np.array_equal(*orders) == (min(x, y) == 1)


@pytest.mark.instant
@SETTINGS
@given(laid_out(), st.integers(0, 3), st.data())
def test_law_17_an_axis_of_size_1_may_be_removed(case, place, data):
    mesh, sharding, shape = case
    place = min(place, len(mesh.axes))
    padded = Mesh((*mesh.axes[:place], ("One", 1), *mesh.axes[place:]))
    dim = data.draw(st.integers(0, sharding.rank - 1))
    spot = data.draw(st.integers(0, len(sharding.dims[dim])))
    axes = sharding.dims[dim]
    wider = sharding.with_dim(dim, (*axes[:spot], "One", *axes[spot:]))
    values = numbered(shape)
    plain = scatter(values, array(sharding, shape), mesh)
    np.testing.assert_array_equal(scatter(values, array(wider, shape), padded).squeeze(axis=place), plain)
    np.testing.assert_array_equal(gather(plain, array(sharding, shape), mesh), values)


def test_law_17_a_move_over_an_axis_of_size_1_is_free_and_changes_no_block():
    mesh = Mesh.of({"X": 3, "One": 1})
    shape = (6, 12)
    for before in all_shardings(mesh, 2):
        start = scatter(numbered(shape), array(before, shape), mesh)
        for move in all_moves(before, mesh):
            if move.axes == ("One",):
                assert move.wire_bytes(before, mesh, 96) == 0
                np.testing.assert_array_equal(do([move], start, before, mesh, shape)[0], start)


def test_a_move_changes_a_block_where_it_should():
    """The laws compare with the identity: here a wrong order, dim or axis is seen to break them."""
    mesh = Mesh.of({"X": 2, "Y": 3})
    shape, before = (12, 24), Sharding.of(["XY", ""])
    start = expected_blocks(numbered(shape), array(before, shape), mesh)
    whole = array(Sharding.replicated(2), shape)
    right = step(AllGather(("X", "Y"), 0), [start], [array(before, shape)], whole, mesh)
    wrong = step(AllGather(("Y", "X"), 0), [start], [array(before, shape)], whole, mesh)
    assert not np.array_equal(right, wrong)
    swapped = Sharding.of(["YX", ""])
    moved = do([CollectivePermute(("X", "Y"), swapped.dims)], start, before, mesh, shape)
    assert not np.array_equal(moved[0], start)
    np.testing.assert_array_equal(moved[0], expected_blocks(numbered(shape), array(swapped, shape), mesh))
