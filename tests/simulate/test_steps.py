"""Every step against a loop over devices: a dict from coordinates to blocks, with explicit groups."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from shardc.ir.collectives import AllGather, AllReduce, AllToAll, CollectivePermute, ReduceScatter, Slice, apply
from shardc.ir.dtypes import DTYPES
from shardc.ir.masks import Mask
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove
from shardc.ir.plan import Apply, Einsum
from shardc.ir.sharding import Array, Sharding, spell
from shardc.simulate import IllegalStep, expected_blocks, gather, scatter, step
from shardc.testing import all_moves, all_shardings

XY = Mesh.of({"X": 2, "Y": 4})
XYZ = Mesh.of({"X": 2, "Y": 3, "Z": 2})


def array(sharding, shape=(24, 48), name="A", dims=None, dtype="int32"):
    return Array(name, tuple(dims or "IJKL"[: len(shape)]), shape, sharding, DTYPES[dtype])


def devices(mesh):
    return [tuple(place[axis] for axis in mesh.names) for place in mesh.coordinates()]


def group(device, axes, mesh):
    """The devices that differ from this one over the axes only, numbered major to minor."""
    found = []
    for numbers in itertools.product(*(range(mesh.size(axis)) for axis in axes)):
        place = dict(zip(mesh.names, device, strict=True)) | dict(zip(axes, numbers, strict=True))
        found.append(tuple(place[axis] for axis in mesh.names))
    return found


def chunk(block, dim, number, count):
    size = block.shape[dim] // count
    index = [slice(None)] * block.ndim
    index[dim] = slice(number * size, (number + 1) * size)
    return block[tuple(index)]


def naive(move, held, before, mesh):
    """What each device holds after a move, one device at a time."""
    after = {}
    for device in held:
        members = group(device, move.axes, mesh)
        me, count = members.index(device), len(members)
        match move:
            case AllGather(_, dim):
                after[device] = np.concatenate([held[d] for d in members], axis=dim)
            case AllReduce():
                after[device] = sum(held[d] for d in members)
            case ReduceScatter(_, dim):
                after[device] = chunk(sum(held[d] for d in members), dim, me, count)
            case AllToAll(_, source, dim):
                received = [chunk(held[d], dim, me, count) for d in members]
                after[device] = np.concatenate(received, axis=source)
            case Slice(_, dim):
                after[device] = chunk(held[device], dim, me, count)
            case CollectivePermute(_, dims):
                named = dict(zip(mesh.names, device, strict=True))
                wanted = Sharding(dims).block_of(named, mesh)
                holders = [
                    d
                    for d in members
                    if before.block_of(dict(zip(mesh.names, d, strict=True)), mesh) == wanted
                    and all(
                        a == b for a, b, axis in zip(d, device, mesh.names, strict=True) if axis not in before.sharded
                    )
                ]
                assert len(holders) == 1
                after[device] = held[holders[0]]
    return after


def check(move, blocks, before, mesh, shape=(24, 48)):
    after = apply(move, before, mesh)
    found = step(move, [blocks], [array(before, shape)], array(after, shape), mesh)
    expected = naive(move, {d: blocks[d] for d in devices(mesh)}, before, mesh)
    for device in devices(mesh):
        np.testing.assert_array_equal(found[device], expected[device], err_msg=f"{move} at {device}")
    return found


def arbitrary(before, mesh, shape, seed=0):
    """Blocks that no two devices agree on: a step must do what it is told whatever they hold."""
    local = before.local_shape(shape, mesh)
    return np.random.default_rng(seed).integers(-1000, 1000, size=mesh.sizes + local)


@pytest.mark.instant
@pytest.mark.parametrize("before", [s for s in all_shardings(XY, 2)], ids=lambda s: spell("IJ", s))
def test_every_move_on_two_axes_is_what_the_devices_do(before):
    blocks = arbitrary(before, XY, (64, 128))
    for move in all_moves(before, XY):
        check(move, blocks, before, XY, (64, 128))


@pytest.mark.instant
@pytest.mark.parametrize("axes", [("X",), ("Y",), ("X", "Y"), ("Y", "X")])
def test_of_copies_one_is_kept_among_zeros(axes):
    """The sum over the devices is the copy; a mask that every device, or none, leaves as it is would give another."""
    before, shape = Sharding.of(["", ""]), (4, 6)
    whole = np.random.default_rng(0).integers(1, 1000, size=shape)
    blocks = np.broadcast_to(whole, XY.sizes + shape)
    after = apply(Mask(axes), before, XY)
    found = step(Mask(axes), [blocks], [array(before, shape)], array(after, shape), XY)
    along = tuple(XY.names.index(axis) for axis in axes)
    assert (found.sum(axis=along) == whole).all() and (found.any(axis=(2, 3)).sum(axis=along) == 1).all()
    with pytest.raises(IllegalMove):
        apply(Mask(axes), after, XY)


@pytest.mark.parametrize("seed", range(12))
def test_sampled_moves_on_three_unequal_axes(seed):
    shape = (24, 48)
    generator = np.random.default_rng(seed)
    every = [s for s in all_shardings(XYZ, 2) if s.divides(shape, XYZ)]
    for number in generator.choice(len(every), size=6, replace=False):
        before = every[number]
        for move in all_moves(before, XYZ):
            if apply(move, before, XYZ).divides(shape, XYZ):
                check(move, arbitrary(before, XYZ, shape, seed), before, XYZ)


@pytest.mark.parametrize("axes", [("X", "Y"), ("Y", "X")])
def test_groups_of_two_axes_run_major_to_minor(axes):
    whole = np.arange(24 * 48).reshape(24, 48)
    before = Sharding.of([axes, ()])
    blocks = expected_blocks(whole, array(before), XY)
    found = check(AllGather(axes, 0), blocks, before, XY)
    np.testing.assert_array_equal(found[1, 2], whole)


def test_an_all_gather_in_the_other_order_is_wrong_and_not_refused():
    whole = np.arange(24 * 48).reshape(24, 48)
    before, after = Sharding.of(["XY", ""]), Sharding.of(["", ""])
    blocks = expected_blocks(whole, array(before), XY)
    found = step(AllGather(("Y", "X"), 0), [blocks], [array(before)], array(after), XY)
    assert not np.array_equal(found[0, 0], whole)
    assert sorted(found[0, 0].flat) == sorted(whole.flat)


def test_a_permute_carries_the_parts_of_an_unreduced_value():
    before = Sharding.of(["XZ", ""], "Y")
    whole = np.arange(24 * 48).reshape(24, 48)
    blocks = scatter(whole, array(before), XYZ, seed=3)
    after = Sharding.of(["ZX", ""], "Y")
    moved = check(CollectivePermute(("X", "Z"), after.dims), blocks, before, XYZ)
    np.testing.assert_array_equal(gather(moved, array(after), XYZ), whole)


@pytest.mark.instant
@pytest.mark.parametrize(
    "axes, dims",
    [(("X",), (("Y", "X"), ())), (("X", "Y"), (("X",), ("Y",))), (("X", "Z"), (("X", "Z"), ()))],
    ids=["too few axes move", "another local shape", "another axis"],
)
def test_a_permute_that_is_no_bijection_over_its_axes_is_refused(axes, dims):
    mesh = Mesh.of({"X": 2, "Y": 2, "Z": 2})
    before = Sharding.of(["XY", ""])
    blocks = expected_blocks(np.arange(24 * 48).reshape(24, 48), array(before), mesh)
    with pytest.raises(IllegalStep):
        step(CollectivePermute(axes, dims), [blocks], [array(before)], array(Sharding(dims)), mesh)


def test_blocks_of_another_shape_than_the_result_are_refused():
    before = Sharding.of(["X", ""])
    blocks = expected_blocks(np.zeros((24, 48), int), array(before), XY)
    with pytest.raises(IllegalStep, match=r"leaves blocks of shape \(2, 4, 24, 48\)"):
        step(AllGather(("X",), 0), [blocks], [array(before)], array(before), XY)
    with pytest.raises(IllegalStep, match="do not share"):
        step(Slice(("Y",), 0), [blocks[:, :, :3]], [array(before)], array(before), XY)


def local_einsum(subscripts, *operands, mesh):
    """One np.einsum a device."""
    return {d: np.einsum(subscripts, *(operand[d] for operand in operands)) for d in devices(mesh)}


@pytest.mark.instant
@pytest.mark.parametrize(
    "left, right, result, subscripts",
    [
        ("IJ", "JK", "IK", "ij,jk->ik"),
        ("IJ", "JK", "KI", "ij,jk->ki"),
        ("LIJ", "LJK", "ILK", "lij,ljk->ilk"),
        ("IJ", "IJ", "JI", "ij,ij->ji"),
        ("IJ", "KL", "KI", "ij,kl->ki"),
        ("J", "JK", "K", "j,jk->k"),
        ("IJ", "IJ", "", "ij,ij->"),
        ("IJ", "", "JI", "ij,->ji"),
    ],
)
def test_a_local_product_is_an_einsum_on_each_device(left, right, result, subscripts):
    sizes = {"I": 4, "J": 6, "K": 8, "L": 2}
    made = []
    for number, dims in enumerate((left, right)):
        shape = tuple(sizes[d] for d in dims)
        made.append(np.random.default_rng(number).integers(-9, 9, size=(*XY.sizes, *shape)))
    arrays = [
        array(Sharding.replicated(len(d)), tuple(sizes[x] for x in d), dims=d)
        if d
        else array(Sharding(()), (), dims=())
        for d in (left, right, result)
    ]
    found = step(Einsum(), made, arrays[:2], arrays[2], XY)
    for device, expected in local_einsum(subscripts, *made, mesh=XY).items():
        np.testing.assert_array_equal(found[device], expected)


@pytest.mark.instant
@pytest.mark.parametrize("result, subscripts", [("I", "ij->i"), ("JI", "ij->ji"), ("", "ij->")])
def test_an_einsum_of_one_operand_sums_and_transposes(result, subscripts):
    sizes = {"I": 4, "J": 6}
    blocks = np.random.default_rng(0).integers(-9, 9, size=(2, 4, 4, 6))
    shape = tuple(sizes[d] for d in result)
    output = Array("C", tuple(result), shape, Sharding.replicated(len(shape)), DTYPES["int32"])
    found = step(Einsum(), [blocks], [array(Sharding.replicated(2), (4, 6))], output, XY)
    for device, expected in local_einsum(subscripts, blocks, mesh=XY).items():
        np.testing.assert_array_equal(found[device], expected)


def test_a_product_whose_local_sizes_differ_is_refused():
    a, b = array(Sharding.of(["", "X"]), (4, 6)), array(Sharding.replicated(2), (6, 8), dims="JK")
    c = array(Sharding.replicated(2), (4, 8), dims="IK")
    blocks = [expected_blocks(np.ones(x.shape, int), x, XY) for x in (a, b)]
    with pytest.raises(IllegalStep, match="`J` has 3 elements on one operand and 6 on the other"):
        step(Einsum(), blocks, [a, b], c, XY)


def test_a_mesh_axis_and_a_dim_of_the_same_name_are_told_apart():
    a = array(Sharding.of(["X", ""]), (4, 6), dims="XJ")
    b = array(Sharding.of(["", "Y"]), (6, 8), dims="JY")
    c = array(Sharding.of(["X", "Y"]), (4, 8), dims="XY")
    wholes = [np.arange(24).reshape(4, 6), np.arange(48).reshape(6, 8)]
    blocks = [scatter(w, x, XY) for w, x in zip(wholes, (a, b), strict=True)]
    found = step(Einsum(), blocks, [a, b], c, XY)
    np.testing.assert_array_equal(gather(found, c, XY), wholes[0] @ wholes[1])


def test_functions_of_one_and_two_arrays_meet_by_dim_name():
    generator = np.random.default_rng(0)
    a = array(Sharding.of(["X", ""]), (4, 6), dtype="f64")
    b = array(Sharding.of(["", "X"]), (6, 4), dims="JI", dtype="f64")
    bias = array(Sharding.replicated(1), (6,), dims="J", dtype="f64")
    wholes = [generator.standard_normal(x.shape) for x in (a, b, bias)]
    blocks = [scatter(w, x, XY) for w, x in zip(wholes, (a, b, bias), strict=True)]
    results = [
        (Apply("relu"), [0], a, np.maximum(wholes[0], 0)),
        (Apply("sub"), [0, 1], a, wholes[0] - wholes[1].T),
        (Apply("add"), [2, 0], a, wholes[0] + wholes[2]),
        (Apply("max", ("J",)), [0], array(Sharding.of(["X"]), (4,), dtype="f64"), wholes[0].max(axis=1)),
    ]
    for op, numbers, result, expected in results:
        found = step(op, [blocks[i] for i in numbers], [(a, b, bias)[i] for i in numbers], result, XY)
        np.testing.assert_array_equal(found, expected_blocks(expected, result, XY))
    soft = step(Apply("softmax", ("J",)), blocks[:1], [a], a, XY)
    # In f64, where weights over a wrong dim, or a part of it, are off by their own size; and they are those of a
    # whole row, not merely weights: equal values would add up to 1 as well.
    weights = np.exp(wholes[0] - wholes[0].max(axis=1, keepdims=True))
    np.testing.assert_allclose(gather(soft, a, XY), weights / weights.sum(axis=1, keepdims=True), rtol=1e-14)


def test_a_function_with_another_shape_is_refused():
    a = array(Sharding.replicated(2), (4, 6), dtype="f64")
    blocks = [scatter(np.ones((4, 6)), a, XY)]
    with pytest.raises(IllegalStep, match="does not give"):
        step(Apply("max", ("J",)), blocks, [a], a, XY)
