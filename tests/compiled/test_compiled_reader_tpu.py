"""JAX's own collectives, compiled for a slice of TPUs that is not there, are read back.

The compiler fuses a ReduceScatter of floats over some of the slice's physical axes; of integers, or over all axes, it
makes an AllReduce, of which each device keeps its slice.
"""

import sys
from math import prod
from pathlib import Path

import pytest

pytest.importorskip("libtpu")

from hypothesis import given, settings
from numpy import ndindex

from shardc.compiled import collectives
from shardc.ir.mesh import Mesh
from shardc.machines import tpu

sys.path.insert(0, str(Path(__file__).parent))
from lax_calls import Call, calls, facts, lowered

pytestmark = pytest.mark.tpu

CUBE = {"X": 2, "Y": 2, "Z": 2}


def devices(mesh, chip="v5p"):
    sizes = Mesh.of(mesh)
    return tpu.slice_mesh(sizes, chip, sizes.sizes, list(ndindex(sizes.sizes)).__getitem__)


def compiled(call, mesh, chip="v5p"):
    return collectives(lowered(call, mesh, devices(mesh, chip)).compile(), Mesh.of(mesh))


@given(calls(CUBE, dtypes=("float32", "int32", "bfloat16")))
@settings(max_examples=25, deadline=None)
def test_what_is_compiled_is_what_was_called(call):
    """Wider types: of eight bits, the compiler sums whole tiles with their padding."""
    found = compiled(call, CUBE)
    if call.kind == "ReduceScatter":
        return is_a_scatter(found, call)
    (found,) = found
    assert facts(found) == call.foreseen(CUBE)
    assert found.is_async == (call.kind == "CollectivePermute")
    assert is_named(found)


def is_a_scatter(found, call):
    scatter, *halos = found
    kind, axes, size, wire = call.foreseen(CUBE)
    fused = call.dtype in ("float32", "bfloat16") and len(call.axes) < len(CUBE)
    if scatter.kind == "AllReduce":
        assert not fused or size < 2**20, "the compiler sums small arrays whole"
        assert facts(scatter) == facts_of_sum(call)
    else:
        assert facts(scatter) == (kind, axes, size, wire)
    assert bool(halos) == scatter.padded
    assert all(halo.kind == "CollectivePermute" and halo.part_of == scatter.name for halo in halos)
    assert sum(halo.wire_bytes for halo in halos) < wire
    assert all(is_named(each) for each in found)


def facts_of_sum(call):
    return Call("AllReduce", call.axes, call.shape, call.dtype, 0, 0).foreseen(CUBE)


def is_named(found):
    return "here/" in found.scope and Path(found.source.rpartition(":")[0]).name == "lax_calls.py"


SLICES = [("v5p", {"X": 4, "Y": 2, "Z": 2}), ("v5e", {"X": 4, "Y": 2}), ("v6e", {"X": 4, "Y": 2})]
SLICES += [("v4p", CUBE), ("v7x", {"X": 2, "Y": 2})]


@pytest.mark.parametrize("chip, mesh", SLICES, ids=lambda x: x if isinstance(x, str) else "")
@pytest.mark.parametrize("dim", [0, 1])
def test_scatters_on_every_chip(chip, mesh, dim):
    """Rows are padded to whole tiles and so need halos; columns are not."""
    call = Call("ReduceScatter", ("X",), (8192, 8192), "bfloat16", dim, 0)
    scatter, *halos = compiled(call, mesh, chip)
    assert facts(scatter) == call.foreseen(mesh)
    assert (scatter.padded, bool(halos)) == (dim == 0, dim == 0)
    assert is_named(scatter)
    assert prod(call.shape) * 2 == scatter.local_bytes


@pytest.mark.parametrize("chip, mesh", SLICES, ids=lambda x: x if isinstance(x, str) else "")
@pytest.mark.parametrize("kind", ["AllGather", "AllReduce", "AllToAll", "CollectivePermute"])
def test_calls_on_every_chip(chip, mesh, kind):
    call = Call(kind, ("X", "Y"), (256, 1024), "bfloat16", 0, 1)
    (found,) = compiled(call, mesh, chip)
    assert facts(found) == call.foreseen(mesh)
