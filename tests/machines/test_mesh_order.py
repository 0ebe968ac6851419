"""A program is compiled on the mesh that `jax.make_mesh` makes of a slice's chips, device by device."""

import sys
from functools import cache
from pathlib import Path

import jax
import pytest

import shardc
from shardc.compiled import compilers
from shardc.cost import topology
from shardc.machines import tpu

sys.path.insert(0, str(Path(__file__).parents[1] / "cost"))
from test_orders import made_by_jax

pytestmark = pytest.mark.tpu


@cache
def described(name):
    on = topology(name)
    return tpu._chips(on.chip.name, on.shape)


MESHES = [
    ("v4:2x2x1", {"X": 4}),
    ("v4:4x4x4", {"X": 16, "Y": 4}),
    ("v5e:2x2", {"X": 2, "Y": 2}),
    ("v5e:2x4", {"X": 8}),
    ("v5e:4x2", {"X": 2, "Y": 4}),
    ("v5e:4x4", {"X": 16}),
    ("v5e:4x4", {"X": 4, "Y": 4}),
    ("v5e:4x8", {"X": 2, "Y": 2, "Z": 8}),
    ("v5p:2x2x2", {"X": 2, "Y": 2, "Z": 2}),
    ("v5p:4x4x4", {"X": 8, "Y": 8}),
    ("v5p:4x4x8", {"X": 8, "Y": 16}),
    ("v6e:2x4", {"X": 4, "Y": 2}),
    ("v6e:4x4", {"X": 16}),
    ("tpu7x:2x2x1", {"X": 2, "Y": 2}),
    ("tpu7x:2x2x2", {"X": 4, "Y": 2}),
    ("tpu7x:2x2x4", {"X": 16}),
]


@pytest.mark.skipif(not tpu.is_installed(), reason="no libtpu")
@pytest.mark.parametrize(("name", "sizes"), MESHES, ids=[f"{name} {sizes}" for name, sizes in MESHES])
def test_a_program_is_compiled_on_the_mesh_that_jax_makes(name, sizes):
    """The devices that libtpu describes, and what JAX makes of them; the replay reads places from the same object."""
    plan = shardc.plan("A[I_X, J] → A[I, J]", mesh=sizes, dims={"I": 64, "J": 64}, topology=name)
    found = compilers.slice_mesh(plan.schedule.given_mesh, plan._asked.model)
    chips, laid = list(described(name).values()), plan._asked.model.network.links.fabric.laid
    try:
        wanted = jax.make_mesh(tuple(sizes.values()), tuple(sizes), devices=chips).devices
    except NotImplementedError:
        wanted = made_by_jax(tuple(sizes.values()), chips)
    places = [tuple(device.coords) for device in found.devices.flat]
    assert places == [tuple(device.coords) for device in wanted.flat]
    rank = len(topology(name).shape)
    assert [place[:rank] for place in places] == [laid.place(device) for device in range(len(chips))]
