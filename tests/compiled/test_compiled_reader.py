"""JAX's own collectives are read back, lowered and compiled for CPU devices: kind, axes, bytes, name, line.

The CPU compiler widens narrow floats before it moves them, and may turn a ReduceScatter into an AllReduce.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import P, lax

from shardc.compiled import collectives
from shardc.compiled.hlo import stablehlo
from shardc.ir.mesh import Mesh

sys.path.insert(0, str(Path(__file__).parent))
from lax_calls import Call, calls, facts, lowered

pytestmark = pytest.mark.devices

MESHES = [{"X": 2, "Y": 2, "Z": 2}, {"X": 4, "Y": 1, "Z": 2}]
SHARED = settings(max_examples=40, deadline=None)
CPU_MAY = {"ReduceScatter": ("ReduceScatter", "AllReduce")}


def devices(mesh):
    return jax.make_mesh(tuple(mesh.values()), tuple(mesh))


@given(st.sampled_from(MESHES).flatmap(lambda mesh: st.tuples(st.just(mesh), calls(mesh))))
@SHARED
def test_what_is_asked_is_what_was_called(drawn):
    mesh, call = drawn
    every = stablehlo.collectives(lowered(call, mesh, devices(mesh)), Mesh.of(mesh))
    if not every and call.members(mesh) == 1:  # JAX leaves out an exchange with nobody
        return
    (found,) = every
    assert facts(found) == call.foreseen(mesh)
    assert (found.count, found.count_known) == (1, True)
    assert "here/" in found.scope
    assert Path(found.source.rpartition(":")[0]).name == "lax_calls.py"


@given(st.sampled_from(MESHES).flatmap(lambda mesh: st.tuples(st.just(mesh), calls(mesh))))
@SHARED
def test_what_is_compiled_is_what_was_called(drawn):
    mesh, call = drawn
    every = collectives(lowered(call, mesh, devices(mesh)).compile(), Mesh.of(mesh))
    kind, axes, size, wire = call.foreseen(mesh)
    if not every and not wire:
        return
    (found,) = every
    widened = found.local_bytes // size
    assert found.kind in CPU_MAY.get(kind, (kind,))
    assert found.axes == axes
    assert found.local_bytes == size * widened
    assert widened == 1 or (call.dtype == "bfloat16" and widened == 2)
    assert found.wire_bytes == wire * widened or found.kind != kind
    assert "/here/" in found.scope
    assert Path(found.source.rpartition(":")[0]).name == "lax_calls.py"


BITS = {
    **{"bool": 8, "int8": 8, "uint16": 16, "float16": 16, "complex64": 64},
    **{"int4": 4, "float8_e4m3fn": 8, "float8_e5m2": 8, "float4_e2m1fn": 4},
}


@pytest.mark.parametrize("dtype", BITS)
def test_bytes_of_every_type(dtype):
    mesh = MESHES[0]
    call = Call("AllGather", ("X", "Z"), (16, 16), dtype, 0, 0)
    (found,) = stablehlo.collectives(lowered(call, mesh, devices(mesh)), Mesh.of(mesh))
    assert found.local_bytes == 16 * 16 * BITS[dtype] // 8


RING = [(0, 1), (1, 0)]


def traced(a, n):
    return lax.fori_loop(0, n, lambda i, c: lax.ppermute(c, "X", RING), a)


def downward(a, _):
    """The limit, 2, is handed on in the tuple: 20, 17, …, 2."""

    def turn(state):
        i, limit, a = state
        return i - 3, limit, lax.ppermute(a, "X", RING)

    return lax.while_loop(lambda state: state[0] >= state[1], turn, (20, 2, a))[2]


def backward(a, _):
    """The gradient of six layers, each done again on the way back."""

    def layer(c, _):
        return jax.checkpoint(lambda c: jnp.tanh(lax.psum(c, "Y")))(c), None

    return jax.grad(lambda a: jnp.sum(lax.scan(layer, a, None, length=6)[0]))(a)


@jax.jit
def helper(a):
    return lax.psum(a, "Y")


def called(a, _):
    return helper(lax.composite(helper, name="shardc.test")(helper(a)))


def branched(a, n):
    return lax.cond(n > 0, lambda a: lax.ppermute(a, "X", RING), lambda a: a, a)


def together(a, _):
    one, other = lax.psum((a, a[:8]), ("Y", "Z"))
    return one + jnp.sum(other)


def nothing(a, _):
    return a * 2


L = 32 * 16 * 4
PROGRAMS = [  # what is asked, and what is compiled: kind, axes, local bytes, count, whether it is known
    (traced, [("CollectivePermute", ("X",), L, 1, False)], None),
    (downward, [("CollectivePermute", ("X",), L, 7, True)], None),
    (called, 3 * [("AllReduce", ("Y",), L, 1, True)], None),
    (branched, [("CollectivePermute", ("X",), L, 1, True)], None),
    (
        together,
        [("AllReduce", ("Y", "Z"), L, 1, True), ("AllReduce", ("Y", "Z"), L // 4, 1, True)],
        [("AllReduce", ("Y", "Z"), L + L // 4, 1, True)],
    ),
    (nothing, [], None),
]


def program(function):
    mesh = devices(MESHES[0])
    with jax.set_mesh(mesh):
        a = jax.ShapeDtypeStruct((32 * 8, 16), "float32", sharding=jax.NamedSharding(mesh, P(("X", "Y", "Z"))))
        n = jax.ShapeDtypeStruct((), "int32", sharding=jax.NamedSharding(mesh, P()))
        specs = (P(("X", "Y", "Z")), P())
        return jax.jit(jax.shard_map(function, in_specs=specs, out_specs=specs[0], check_vma=False)).lower(a, n)


def counted(found):
    return [(c.kind, c.axes, c.local_bytes, c.count, c.count_known) for c in found]


@pytest.mark.parametrize("function, asked, compiled", PROGRAMS, ids=lambda x: getattr(x, "__name__", ""))
def test_programs(function, asked, compiled):
    mesh, found = Mesh.of(MESHES[0]), program(function)
    assert counted(stablehlo.collectives(found, mesh)) == asked
    assert counted(collectives(found.compile(), mesh)) == (asked if compiled is None else compiled)


def test_a_gradient_through_a_loop():
    """The compiler may merge a layer's two sums of the way back, never their bytes."""
    mesh, found = Mesh.of(MESHES[0]), program(backward)
    asked = stablehlo.collectives(found, mesh)
    assert {(c.kind, c.axes, c.count, c.count_known) for c in asked} == {("AllReduce", ("Y",), 6, True)}
    assert len(asked) == 3
    assert sum(c.total_bytes for c in collectives(found.compile(), mesh)) == sum(c.total_bytes for c in asked)


def test_groups_that_are_parts_of_axes_have_none():
    groups = [[0, 1], [2, 3]]
    mesh = jax.make_mesh((2, 4), ("X", "Y"))
    with jax.set_mesh(mesh):
        a = jax.ShapeDtypeStruct((64, 4), "float32", sharding=jax.NamedSharding(mesh, P("Y")))
        gather = jax.shard_map(
            lambda a: lax.all_gather(a, "Y", axis_index_groups=groups, tiled=True),
            in_specs=P("Y"),
            out_specs=P("Y"),
            check_vma=False,
        )
        found = jax.jit(gather).lower(a)
    named = Mesh.of({"X": 2, "Y": 4})
    for (read,) in (stablehlo.collectives(found, named), collectives(found.compile(), named)):
        assert (read.groups, read.axes, read.wire_bytes) == (((0, 1), (2, 3), (4, 5), (6, 7)), None, 256)


def test_ragged_exchanges():
    def exchange(a, sizes):
        return lax.ragged_all_to_all(a, a, sizes, sizes, sizes, sizes, axis_name="Y")

    mesh = jax.make_mesh((2, 4), ("X", "Y"))
    with jax.set_mesh(mesh):
        sharding = jax.NamedSharding(mesh, P("Y"))
        a = jax.ShapeDtypeStruct((64,), "float32", sharding=sharding)
        sizes = jax.ShapeDtypeStruct((16,), "int32", sharding=sharding)
        mapped = jax.shard_map(exchange, in_specs=(P("Y"), P("Y")), out_specs=P("Y"), check_vma=False)
        (found,) = stablehlo.collectives(jax.jit(mapped).lower(a, sizes), Mesh.of({"X": 2, "Y": 4}))
    assert facts(found) == ("AllToAll", ("Y",), 64, 48)
