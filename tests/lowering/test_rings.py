"""The way of a ring through the devices of several axes: each once, each beside the one before."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardc
from shardc.ir.mesh import Mesh
from shardc.ir.plan import How
from shardc.lowering.pairs import pairs_along
from shardc.lowering.rings import ring_of, way_round
from shardc.lowering.together import candidates


def links(sizes, one, other):
    """Between two devices on a mesh that is not closed."""
    found = 0
    for size in reversed(sizes):
        found += abs(one % size - other % size)
        one, other = one // size, other // size
    return found


@pytest.mark.instant
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(lambda sizes: 2 <= math.prod(sizes) <= 64))
def test_the_way_goes_once_through_every_device_from_neighbour_to_neighbour(sizes):
    way = way_round(sizes)
    assert sorted(way) == list(range(math.prod(sizes)))
    far = [links(sizes, one, other) for one, other in zip(way, (*way[1:], way[0]), strict=True)]
    several = sum(size > 1 for size in sizes) > 1
    assert set(far[:-1]) == {1}
    assert not several or math.prod(sizes) % 2 or far[-1] == 1, "closed, unless every size is odd"


def rings(text, mesh):
    plan = shardc.plan(text, mesh=mesh, dims=dict.fromkeys("IJK", 96), idle="keep")
    return [(ordered, group) for ordered, group in candidates(plan.schedule) if group.how is How.RING]


@pytest.mark.instant
@pytest.mark.parametrize(
    ("mesh", "ways"),
    [("X=2,Y=2", [(0, 1, 3, 2), (0, 1, 2, 3)]), ("X=4,Y=1", [(0, 1, 2, 3)]), ("X=8,Y=4", [])],
)
def test_a_ring_over_two_axes_goes_by_the_mesh_or_by_number(mesh, ways):
    """One of more than 16 devices is none."""
    found = [ring_of(ordered, group) for ordered, group in rings("A[I, J_XY] · B[J, K_XY] → C[I, K_XY]", mesh)]
    assert [ring.around for ring in found] == ways


def test_a_ring_leaves_devices_along_other_axes_apart():
    """Along Z and X of `X=2, Y=2, Z=2`: device (x, y, z) has number 4x + 2y + z, and block 2z + x."""
    assert pairs_along(("Z", "X"), ((0, 1), (1, 3)), Mesh.of({"X": 2, "Y": 2, "Z": 2})) == (
        *((0, 4), (4, 5)),
        *((2, 6), (6, 7)),
    )


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "sizes", "topology", "in_pairs"),
    [
        ("A[I, J_X] · B[J_X, K] → C[I_X, K]", (1024, 8192, 32768), "v5e:2x2", True),
        ("A[I, J_X] · B[J_X, K] → C[I, K_X]", (32768, 8192, 1024), "v5e:2x2", True),
        ("A[I, J_X] · B[J_X, K] → C[I, K]", (32768, 8192, 1024), "v5e:2x2", False),  # along I
        ("A[I, J_X] · B[J_X, K] → C[I_X, K]", (2048, 8192, 32768), "v5e:2x2", False),
        ("A[I, J_X] · B[J_X, K] → C[I_X, K]", (1024, 8192, 16384), "v5e:2x2", False),
        ("A[L, I, J_X] · B[L, J_X, K] → C[L_X, I, K]", (1024, 8192, 32768), "v5e:2x2", False),
        ("A[I, J_X] · B[J, K_X] → C[I, K_X]", (1024, 8192, 131072), "v5e:2x2", False),
        ("A[I, J_X] · B[J_X, K] → C[I_X, K]", (1024, 8192, 32768), None, False),
    ],
)
def test_which_rings_multiply_the_blocks_of_both_turns_at_once(text, sizes, topology, in_pairs):
    """Sums that go round, of few rows each, with an operand that has no room on the chip."""
    dims = dict(zip("IJKL", (*sizes, 16), strict=True))
    dims = {dim: size for dim, size in dims.items() if dim in text}
    plan = shardc.plan(text, mesh="X=4", dims=dims, topology=topology, dtype="bf16", idle="keep", overlap="off")
    found = [ring_of(*each) for each in candidates(plan.schedule) if each[1].how is How.RING]
    assert found and {ring.in_pairs for ring in found} == {in_pairs}
