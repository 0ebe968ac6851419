"""A mesh lies on a slice as `jax.make_mesh` lays it on the slice's chips, device by device."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax.experimental import mesh_utils

from shardc.cost import LinkModel, topology
from shardc.cost.layout import Layout
from shardc.cost.topology import lay
from shardc.errors import ShardcError
from shardc.ir.mesh import Mesh

# A chip, what JAX calls it, and slices of it.
CHIPS = {
    "v3": ("TPU v3", ["2x2", "2x4", "4x4", "4x8", "8x8"]),
    "v4": ("TPU v4", ["2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8"]),
    "v5e": ("TPU v5 lite", ["1x1", "2x2", "2x4", "4x2", "1x8", "4x4", "4x8", "8x8", "8x16", "16x16"]),
    "v5p": ("TPU v5", ["2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "8x8x8"]),
    "v6e": ("TPU v6 lite", ["1x1", "2x2", "2x4", "4x2", "4x4", "4x8", "8x8", "8x16", "16x16"]),
    "tpu7x": ("TPU7x", ["2x2x1", "2x2x2", "2x2x4", "2x2x8", "2x4x4", "4x4x4", "4x4x8"]),
}


def as_jax_has_them(name):
    """A slice's chips in the order in which a TPU's runtime lists them: host by host, 2×2 chips each."""
    kind, shape = CHIPS[name.partition(":")[0]][0], topology(name).shape
    padded = shape + (1,) * (3 - len(shape))
    every = [(x, y, z) for x in range(padded[0]) for y in range(padded[1]) for z in range(padded[2])]
    every.sort(key=lambda at: (at[2], at[1] // 2, at[0] // 2, at[1], at[0]))
    return [SimpleNamespace(coords=at, core_on_chip=0, device_kind=kind, platform="tpu", slice_index=0) for at in every]


def made_by_jax(sizes, devices):
    """`jax.make_mesh`, less the object that it puts them into; where it refuses, what its refusal says to do."""
    lite = devices[0].device_kind in ("TPU v5 lite", "TPU v5e")
    try:
        return mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=lite)
    except NotImplementedError:
        return mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)


@st.composite
def sizes_of(draw, devices):
    found = [1] * draw(st.integers(0, 1))
    while devices > 1:
        size = draw(st.sampled_from([size for size in range(2, devices + 1) if devices % size == 0]))
        found.append(size)
        devices //= size
    return tuple(found + [1] * draw(st.integers(0 if found else 1, 1)))


@settings(max_examples=150)
@given(st.data())
def test_a_mesh_lies_as_jax_lays_it(data):
    chip = data.draw(st.sampled_from(list(CHIPS)))
    name = f"{chip}:{data.draw(st.sampled_from(CHIPS[chip][1]))}"
    on = topology(name)
    sizes = data.draw(sizes_of(on.chips))
    assume(len(sizes) <= 8)
    laid = lay(Mesh.of(dict(zip("ABCDEFGH", sizes, strict=False))), on, {})
    wanted = [device.coords[: len(on.shape)] for device in made_by_jax(sizes, as_jax_has_them(name)).flat]
    assert [laid.place(device) for device in range(on.chips)] == wanted


def test_a_walk_round_4x4():
    """Worked by hand: neighbours are neighbours, the last and the first too."""
    laid = lay(Mesh.of({"X": 16}), topology("v5e:4x4"), {})
    places = [laid.place(device) for device in range(16)]
    assert places[:6] == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (2, 1)] and len(set(places)) == 16
    assert all(abs(a - c) + abs(b - d) == 1 for (a, b), (c, d) in pairwise([*places, places[0]]))


def test_a_map_wins():
    laid = lay(Mesh.of({"X": 16}), topology("v5e:4x4"), {"X": (0, 1)})
    assert [laid.place(device) for device in range(16)] == [(x, y) for x in range(4) for y in range(4)]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("name", "sizes", "closed"),
    [
        ("v5e:4x4", {"X": 16}, "X"),  # a walk
        ("v5e:4x4", {"X": 4, "Y": 4}, ""),  # no side of 4 wraps around
        ("v5e:16x16", {"X": 16, "Y": 16}, "XY"),
        ("v5p:4x4x4", {"X": 4, "Y": 16}, "XY"),
        ("v5p:2x2x4", {"X": 2, "Y": 2, "Z": 4}, "Z"),  # of two devices each is beside the other
    ],
)
def test_an_axis_closes_where_its_last_device_is_beside_its_first(name, sizes, closed):
    on = topology(name)
    network = LinkModel.of(Mesh.of(sizes), on.chip, Layout(on)).network
    assert "".join(filter(network.closes, sizes)) == closed


def test_a_mesh_that_does_not_go_is_refused():
    with pytest.raises(ShardcError, match="cannot be laid") as caught:
        lay(Mesh.of({"X": 4, "Y": 3}), topology("v5p:2x2x3"), {"X": (2,)})
    assert caught.value.code == "SHC224"
