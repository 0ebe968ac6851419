"""How a ReduceScatter is written: which form for which share, and over which groups, worked out by hand."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import shardc
from shardc.ir.dtypes import DTYPES
from shardc.lowering.scatters import Along, LocalBlock, Round, depends_on_share, scatterings
from shardc.lowering.target import Target

PLANE = ("X=4,Y=4", "v5e:4x4")
CUBE = ("X=4,Y=4,Z=4", "v5p:4x4x4")


def target(mesh, topology=None):
    return Target.of(shardc.parse("A[I] → A[I]", mesh=mesh, dims={"I": 1}, topology=topology))


def form(share, dtype, topology="v5e:4x4"):
    """Of four devices, along the first dim."""
    local = (4 * share[0], *share[1:])
    return only(((0, ("X",)),), local, dtype, target("X=4,Y=4", topology)).along


def only(parts, local, dtype, target):
    (found,) = scatterings(parts, LocalBlock(local, DTYPES[dtype]), target)
    return found


@pytest.mark.instant
@pytest.mark.parametrize(
    ("share", "dtype", "wanted"),
    [
        ((1024, 1024), "bf16", Along.APART),
        ((32, 256), "bf16", Along.APART),  # four tiles by two
        ((16, 256), "f32", Along.PLAIN),  # two tiles by two
        ((8, 512), "f32", Along.EXCHANGED),  # one tile by four
        ((4096, 128), "bf16", Along.APART),
        ((4096, 192), "bf16", Along.STACKED),
        ((4096, 64), "bf16", Along.TURNED),  # fewer lanes than a tile has
        ((3, 512, 16), "f32", Along.TURNED),
        ((2048, 8), "bf16", Along.EXCHANGED),  # of which half a pair of tiles would be empty
        ((3, 16, 256), "bf16", Along.PLAIN),
        ((3, 5, 16, 256), "bf16", Along.PLAIN),  # along the first dim
        ((256, 2, 1024), "bf16", Along.STACKED),
        ((4, 2, 128), "bf16", Along.EXCHANGED),
        ((255, 8, 128), "bf16", Along.PLAIN),
        ((3, 8, 128), "f32", Along.PLAIN),
        ((3, 8, 192), "bf16", Along.EXCHANGED),
        ((128, 256 - 1), "f32", Along.STACKED),
        ((64, 256 - 1), "f32", Along.EXCHANGED),  # less than 64 KiB
        ((2048,), "f32", Along.FOLDED),
        ((1024,), "f32", Along.EXCHANGED),
        ((4096, 4096), "int32", Along.EXCHANGED),
        ((4096, 4096), "f16", Along.EXCHANGED),
    ],
)
def test_the_form_is_by_share_and_dtype(share, dtype, wanted):
    assert form(share, dtype) is wanted
    assert form(share, dtype, "H100:16") is Along.PLAIN


@pytest.mark.instant
@pytest.mark.parametrize(
    ("share", "dtype", "wanted"),
    [
        ((1024, 1024), "bf16", Along.PLAIN),
        ((4096, 128), "bf16", Along.STACKED),
        ((4096, 64), "bf16", Along.STACKED),
        ((256, 8, 128), "f32", Along.STACKED),
        ((8, 512), "f32", Along.PLAIN),  # small
        ((2048,), "f32", Along.FOLDED),
        ((1024,), "f32", Along.PLAIN),
        ((4096, 4096), "int32", Along.PLAIN),
    ],
)
def test_where_no_slice_is_named_none_is_exchanged_or_turned(share, dtype, wanted):
    assert form(share, dtype, None) is wanted


@pytest.mark.instant
@pytest.mark.parametrize(
    ("mesh", "topology", "axes", "wanted"),
    [
        (*CUBE, "XYZ", (Round(("X", "Y")), Round(("Z",)))),
        (*CUBE, "ZXY", (Round(("Z", "X")), Round(("Y",)))),  # major to minor, as the blocks are
        (*CUBE, "XY", (Round(("X", "Y")),)),
        (*PLANE, "XY", (Round(("X",)), Round(("Y",)))),
        ("X=16", "v5e:4x4", "X", (Round(("X",), (4, 4), True), Round(("X",), (4, 4)))),
        ("X=64", "v5p:4x4x4", "X", (Round(("X",), (16, 4), True), Round(("X",), (16, 4)))),
        ("X=64", None, "X", (Round(("X",)),)),
        ("X=8,Y=8", None, "XY", (Round(("X",)), Round(("Y",)))),  # as many as that: the slice is not named
        ("X=4,Y=4", None, "XY", (Round(("X", "Y")),)),
        ("X=8", "v5e:2x4", "X", (Round(("X",)),)),  # no two sides are equal
        ("X=2,Y=4,Z=1", "v5p:2x2x2", "XYZ", (Round(("X",)), Round(("Y", "Z")))),
        ("X=2,Y=2", "v5p:2x2x1", "XY", (Round(("X", "Y")),)),
    ],
)
def test_the_rounds_are_by_slice(mesh, topology, axes, wanted):
    found = only(((0, tuple(axes)),), (2**16, 1024), "bf16", target(mesh, topology))
    assert (found.along, found.rounds) == (Along.PLAIN if topology is None else Along.APART, wanted)
    other = only(((1, tuple(axes)),), (1024, 2**16), "bf16", target(mesh, topology))
    assert (other.along, other.rounds) == (Along.PLAIN, wanted)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("mesh", "topology", "parts", "wanted"),
    [
        (*CUBE, "X ZY", ["ZY", "X"]),  # 15/16 of the bytes over the links of two axes
        (*CUBE, "ZY X", ["ZY", "X"]),
        (*PLANE, "Y X", ["Y", "X"]),
        ("X=2,Y=4", "v5p:2x2x2", "X Y", ["Y", "X"]),  # Y has two sides of the slice
        ("X=4,Y=4,Z=1", "v5e:4x4", "X YZ", ["X", "YZ"]),
        ("X=2,Y=2,Z=4", "v5e:4x4", "Z XY", ["XY", "Z"]),  # as many devices, over two axes
        ("X=2,Y=4", "v5e:2x4", "X Y", ["X Y"]),  # in one: no two sides are equal
        (*CUBE, "X Z", ["X Z"]),  # not the whole slice
    ],
)
def test_of_several_dims_over_a_whole_slice_the_one_over_most_links_is_first(mesh, topology, parts, wanted):
    places = {axes: dim for dim, axes in enumerate(parts.split())}
    rounds = [tuple((places[axes], tuple(axes)) for axes in each.split()) for each in wanted]
    given = tuple((dim, tuple(axes)) for axes, dim in places.items())
    found = scatterings(given, LocalBlock((2**16, 2**16), DTYPES["bf16"]), target(mesh, topology))
    assert [stage.dims for stage in found] == rounds


@pytest.mark.instant
@given(
    st.sampled_from([CUBE, PLANE, ("X=64", "v5p:4x4x4"), ("X=16", "v5p:2x2x4"), ("X=8,Y=8", None)]),
    st.data(),
    st.sampled_from(["bf16", "f32", "int32", "int8"]),
    st.lists(st.integers(1, 512), min_size=1, max_size=4),
)
def test_the_rounds_together_share_out_among_all(slice_, data, dtype, share):
    within = target(*slice_)
    axes = tuple(data.draw(st.permutations(within.mesh.names)))[: data.draw(st.integers(1, len(within.mesh.names)))]
    dim, parts = data.draw(st.integers(0, len(share) - 1)), within.mesh.product(axes)
    local = tuple(size * parts if place == dim else size for place, size in enumerate(share))
    found = only(((dim, axes),), local, dtype, within)
    assert math.prod(each.parts(within.mesh) for each in found.rounds) == parts
    assert not found.is_exchanged or len(found.rounds) == 1
    if dtype.startswith("int"):
        assert found.along is Along.EXCHANGED or slice_[1] is None


@pytest.mark.instant
@given(
    st.lists(st.sampled_from([8, 16, 32, 100, 128, 512]), min_size=1, max_size=3),
    st.lists(st.integers(0, 3), min_size=1, max_size=2),
    st.sampled_from(["bf16", "f32"]),
    st.data(),
)
def test_dims_of_one_element_change_no_form(share, ones, dtype, data):
    """But where shares are exchanged nothing is gained by leaving them out."""
    dim = data.draw(st.integers(0, len(share) - 1))
    local = [8 * size if place == dim else size for place, size in enumerate(share)]
    names = list(range(len(share)))
    for at in ones:
        local.insert(min(at, len(local)), 1)
        names.insert(min(at, len(names)), None)
    over = target("X=8,Y=2", "v5p:4x4x1")
    without = only(((dim, ("X",)),), tuple(size for size in local if size > 1), dtype, over)
    found = only(((names.index(dim), ("X",)),), tuple(local), dtype, over)
    assert (found.along, found.rounds) == (without.along, without.rounds)
    left_out = tuple(place for place, name in enumerate(names) if name is None)
    assert found.left_out == (() if found.along is Along.EXCHANGED else left_out)


@pytest.mark.instant
@pytest.mark.parametrize("ones", [(0,), (1,), (2,), (0, 1), (0, 2), (0, 3), (1, 2), (0, 1, 2)])
def test_without_dims_of_one_element_it_is_along_the_same_dim(ones):
    """Of whole tiles along either dim: `[1, 1024, 1, 1024]` along its second as `[1024, 1024]` along the first."""
    over, sizes = target("X=4,Y=4", "v5e:4x4"), [1024, 1024]
    for dim in (0, 1):
        local, names = list(sizes), [0, 1]
        for at in ones:
            local.insert(at, 1)
            names.insert(at, None)
        found = only(((names.index(dim), ("X",)),), tuple(local), "bf16", over)
        assert found.left_out == tuple(place for place, name in enumerate(names) if name is None)
        assert found.without_ones == only(((dim, ("X",)),), tuple(sizes), "bf16", over)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("share", "wanted"),
    [((4096, 64), Along.TURNED_APART), ((4096, 32), Along.TURNED_APART), ((4096, 48), Along.TURNED)],
)
def test_shares_of_few_lanes_are_turned_and_told_apart(share, wanted):
    """Else with a halo: 4096 × 64 of 64 devices on v5p:4x4x4 in 117 µs, of which the links take 78."""
    local = (share[0], 4 * share[1])
    assert only(((1, ("X",)),), local, "bf16", target("X=4,Y=4", "v5e:4x4")).along is wanted


@pytest.mark.instant
@pytest.mark.parametrize(
    ("share", "dim", "wanted"),
    [
        ((2, 2, 16, 256), 1, Along.EXCHANGED),  # a small share
        ((3, 5, 160, 256), 1, Along.STACKED),
        ((3, 5, 160, 256), 2, Along.PLAIN),
        ((3, 5, 160, 256), 3, Along.PLAIN),
        ((3, 5, 7, 16, 256), 2, Along.STACKED),
        ((3, 5, 512, 16), 1, Along.STACKED),  # not the last two dims in turn
        ((1, 5, 160, 256), 1, Along.PLAIN),  # the first, without the dim of one element
        ((3, 5, 1, 160, 256), 1, Along.STACKED),
        ((3, 5, 1, 256), 1, Along.EXCHANGED),
    ],
)
def test_along_a_dim_between_others_none_is_plain(share, dim, wanted):
    local = tuple(4 * size if place == dim else size for place, size in enumerate(share))
    assert only(((dim, ("X",)),), local, "bf16", target("X=4,Y=4", "v5p:2x2x4")).along is wanted


@pytest.mark.instant
@given(
    st.sampled_from([PLANE, CUBE, ("X=8,Y=2", "v5p:4x4x1"), ("X=4,Y=4", "H100:16"), ("X=8,Y=8", None)]),
    st.lists(st.sampled_from([1, 4, 5, 16, 64, 256, 512, 1024, 4096, 16384]), min_size=1, max_size=5),
    st.sampled_from(["bf16", "f32", "int32"]),
    st.data(),
)
def test_whether_a_form_depends_on_the_share_is_known_before(slice_, shape, dtype, data):
    """Searches price arrays of which no share does as large whole tiles; `[8, 64, 256, 256]` along 64 is stacked.

    Of eight times 4,096, by 16 devices: some share has fewer lanes than two tiles.
    """
    within = target(*slice_)
    over, *others = data.draw(st.permutations(within.mesh.names))
    dim, cut = data.draw(st.tuples(*[st.integers(0, len(shape) - 1)] * 2))
    before = within.mesh.product(data.draw(st.sampled_from([(), tuple(others)])))
    local = tuple(size // before if place == cut else size for place, size in enumerate(shape))
    assume(shape[cut] % before == 0 and local[dim] % within.mesh.size(over) == 0)
    if not depends_on_share(tuple(shape), DTYPES[dtype], within):
        parts = ((dim, (over,)),)
        found = only(parts, local, dtype, within)
        (plain,) = scatterings(parts, None, within)
        assert within.sides is None or found.along in (Along.PLAIN, Along.APART)
        assert (found.rounds, found.is_exchanged, found.left_out) == (plain.rounds, plain.is_exchanged, ())


@pytest.mark.instant
@pytest.mark.parametrize(
    ("shape", "dtype", "depends"),
    [
        ((4096, 8192), "bf16", False),  # by 16 devices 256 × 512 at least, whole pairs of tiles
        ((16384, 4096), "f32", False),
        ((256, 4096), "bf16", False),
        ((128, 4096), "bf16", True),  # half of a pair
        ((4096, 2048), "bf16", True),
        ((4096, 4096 + 8), "bf16", True),  # not a share for each
        ((32, 4096, 4096), "bf16", False),
        ((16, 4096, 4096), "bf16", True),  # of one element
        ((32, 32, 4096, 4096), "bf16", True),  # along a dim between others
        ((65536,), "bf16", True),
        ((4096, 8192), "int32", True),
    ],
)
def test_a_form_depends_on_the_share_unless_all_are_large_whole_tiles(shape, dtype, depends):
    assert depends_on_share(shape, DTYPES[dtype], target(*PLANE)) == depends
    assert not depends_on_share(shape, DTYPES[dtype], target("X=4,Y=4"))
