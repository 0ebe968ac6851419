"""Plans with axes cut, inside ordinary JAX: arguments and results on the mesh as given, the steps on a finer one."""

import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.machines.run import run

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from traced import called_otherwise

pytestmark = pytest.mark.devices

EXPLICIT, AUTO = jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto
RNG = np.random.default_rng(3)
DIMS = {"I": 16, "J": 32, "K": 24}
A = RNG.integers(-3, 4, (16, 32)).astype(np.float32)
B = RNG.integers(-3, 4, (32, 24)).astype(np.float32)
TEXT = "A[I_X, J] · B[J, K_X] → C[I_X, K]"
TWO = "A[I_X, J] · B[J, K_X] → C[I_X, K]; C[I_X, K] ⊙ C[I_X, K] → D[I_X, K]; A[I_X, J] → E[I, J_X]"
SPECS = jax.P("X", None), jax.P(None, "X")


def planned(text=TEXT, mesh=(("X", 8),)):
    found = shardc.plan(text, mesh=dict(mesh), dims=DIMS, dtype="f32", objective="bytes")
    assert found.schedule.by is not None
    return found


def mesh_of(kind, sizes=(8,), names=("X",), devices=None):
    if devices is None:
        return jax.make_mesh(sizes, names, axis_types=(kind,) * len(sizes))
    return jax.sharding.Mesh(np.array(devices).reshape(sizes), names, axis_types=(kind,) * len(sizes))


def shards_equal(result, whole, spec, mesh):
    assert result.sharding.is_equivalent_to(jax.NamedSharding(mesh, spec), whole.ndim)
    assert result.sharding.mesh.axis_names == mesh.axis_names
    for shard in result.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), whole[shard.index])


@pytest.fixture(params=[EXPLICIT, AUTO], ids=["explicit", "auto"])
def mesh(request):
    found = mesh_of(request.param)
    with jax.set_mesh(found):
        yield found


@pytest.fixture
def program():
    return planned().compile()


def put(mesh):
    return tuple(jax.device_put(x, jax.NamedSharding(mesh, spec)) for x, spec in zip((A, B), SPECS, strict=True))


def test_called(mesh, program):
    for call in (program, jax.jit(program)):
        shards_equal(call(*put(mesh)), A @ B, jax.P("X", None), mesh)


def test_between_other_operations(mesh, program):
    result = jax.jit(lambda a, b: program(2 * a, b) + 1)(*put(mesh))
    shards_equal(result, 2 * A @ B + 1, jax.P("X", None), mesh)


def test_gradients(mesh, program):
    def loss(a, b):
        return jnp.sum(program(a, b) ** 2) / 2

    for gradient in (jax.grad(loss, (0, 1)), jax.jit(jax.grad(loss, (0, 1)))):
        da, db = gradient(*put(mesh))
        shards_equal(da, A @ B @ B.T, SPECS[0], mesh)
        shards_equal(db, A.T @ A @ B, SPECS[1], mesh)


def test_forward_gradients(mesh, program):
    a, b = put(mesh)
    _, change = jax.jvp(lambda a: program(a, b), (a,), (2 * a,))
    shards_equal(change, 2 * A @ B, jax.P("X", None), mesh)


def test_vmapped_and_scanned(mesh, program):
    a, b = put(mesh)
    stacked = jnp.stack([a, 2 * a])
    result = jax.jit(jax.vmap(program, in_axes=(0, None)))(stacked, b)
    np.testing.assert_array_equal(np.asarray(result), np.stack([A @ B, 2 * A @ B]))
    _, result = jax.jit(lambda a, b: jax.lax.scan(lambda c, x: (c, program(a * x, b)), 0, jnp.arange(2.0)))(a, b)
    np.testing.assert_array_equal(np.asarray(result), np.stack([0 * A @ B, A @ B]))


def test_checkpointed(mesh, program):
    def loss(a, b):
        return jnp.sum(jax.checkpoint(program)(a, b))

    da = jax.jit(jax.grad(loss))(*put(mesh))
    np.testing.assert_array_equal(np.asarray(da), np.ones((16, 24)) @ B.T)


def test_the_border_moves_nothing(mesh, program):
    """Of collectives there are those of the plan and no others."""
    text = jax.jit(program).lower(*put(mesh)).compile().as_text()
    found = re.findall(r" (all-gather|all-to-all|reduce-scatter|all-reduce|collective-permute)\(", text)
    steps = {"AllGather": "all-gather", "AllToAll": "all-to-all", "ReduceScatter": "reduce-scatter"}
    assert sorted(found) == sorted(steps[step.op] for step in planned().steps if step.op in steps)


def test_einsum_by_bytes_is_not_asked_for(mesh):
    """`einsum` plans by time; on a mesh without a topology it leaves axes whole."""
    shards_equal(shardc.einsum(TEXT, *put(mesh)), A @ B, jax.P("X", None), mesh)


def test_without_a_mesh_in_force():
    program = planned().compile()
    result = program(A, B)
    assert result.sharding.mesh.axis_names == ("X",)
    np.testing.assert_array_equal(np.asarray(result), A @ B)


def test_arrays_that_are_not_traced_among_those_that_are(mesh):
    """A constant of a traced function has devices, its other arguments have none."""
    a, b = put(mesh)
    program = planned().compile()
    for constant in (b, B):
        shards_equal(jax.jit(lambda a, constant=constant: program(a, constant))(a), A @ B, jax.P("X", None), mesh)
        np.testing.assert_array_equal(
            np.asarray(jax.grad(lambda a, constant=constant: jnp.sum(program(a, constant)))(a)),
            np.ones((16, 24)) @ B.T,
        )


def test_numpy_arrays_are_placed(mesh):
    shards_equal(planned().compile()(A, B), A @ B, jax.P("X", None), mesh)


@pytest.mark.parametrize("kind", [EXPLICIT, AUTO])
def test_another_order_of_devices(kind):
    """What was traced for one order is not used for another."""
    program = planned().compile()
    for devices in (jax.devices(), jax.devices()[::-1]):
        mesh = mesh_of(kind, devices=devices)
        with jax.set_mesh(mesh):
            shards_equal(program(*put(mesh)), A @ B, jax.P("X", None), mesh)


@pytest.mark.parametrize("kinds", [(EXPLICIT, AUTO), (AUTO, EXPLICIT)])
def test_one_axis_explicit_and_one_auto(kinds):
    text = "A[I_X, J] · B[J, K_X] → C[I_Y, K]"
    plan = shardc.plan(text, mesh={"X": 4, "Y": 2}, dims={"I": 16, "J": 64, "K": 16}, dtype="f32", objective="bytes")
    assert plan.schedule.by is not None
    a, b = RNG.integers(-3, 4, (16, 64)).astype(np.float32), RNG.integers(-3, 4, (64, 16)).astype(np.float32)
    mesh = jax.make_mesh((4, 2), ("X", "Y"), axis_types=kinds)
    with jax.set_mesh(mesh):
        placed = jax.device_put(a, jax.P("X", None)), jax.device_put(b, jax.P(None, "X"))
        for program in (plan.compile(), jax.jit(plan.compile())):
            shards_equal(program(*placed), a @ b, jax.P("Y", None), mesh)


def test_several_results(mesh):
    squares, moved = planned(TWO).compile()(*put(mesh))
    shards_equal(squares, (A @ B) ** 2, jax.P("X", None), mesh)
    shards_equal(moved, A, jax.P(None, "X"), mesh)


def test_an_argument_that_lies_otherwise_is_refused():
    with jax.set_mesh(mesh_of(EXPLICIT)), pytest.raises(shardc.ShardcError) as error:
        planned().compile()(jax.device_put(A, jax.P(None, "X")), jax.device_put(B, jax.P(None, "X")))
    assert error.value.code == "SHC305"
    assert "A[I, J_X]" in str(error.value) and "A[I_X, J]" in str(error.value)


def test_the_wrong_mesh_is_refused():
    with jax.set_mesh(mesh_of(EXPLICIT, (2, 4), ("X0", "X1"))), pytest.raises(shardc.ShardcError) as error:
        planned().compile()(A, B)
    assert error.value.code == "SHC306"


CUT = [
    (TEXT, {"X": 8}, (48, 96, 72)),
    ("A[I_X, J] · B[J, K_X] → C[I, K_X]", {"X": 6}, (48, 96, 72)),
    ("A[I, J_X] · B[J_X, K] → C[I_X, K]", {"X": 8}, (48, 96, 72)),
    ("A[I_Y, J] · B[J, K_Y] → C[I, K_XY]", {"X": 2, "Y": 4}, (48, 192, 48)),
    (TWO, {"X": 8}, (48, 96, 72)),
]


def cut(text, mesh, shape):
    plan = shardc.plan(text, mesh=mesh, dims=dict(zip("IJK", shape, strict=True)), dtype="f32", objective="bytes")
    assert plan.schedule.by is not None
    return plan


def test_what_is_called_is_what_is_written():
    """On meshes of either kind, so that what is run here is true of the emitted file too."""
    for text, mesh, shape in CUT:
        plan, sizes = cut(text, mesh, shape), tuple(mesh.values())
        for kind in (EXPLICIT, AUTO):
            found = mesh_of(kind, sizes, tuple(mesh), jax.devices()[: np.prod(sizes)])
            assert not called_otherwise(plan.schedule, plan.source(), found)


@pytest.mark.parametrize(("text", "mesh", "shape"), CUT)
def test_every_shard_equals_numpy(text, mesh, shape):
    plan = cut(text, mesh, shape)
    report = run(plan.schedule)
    assert report.ok and report.devices == np.prod(list(mesh.values()))
    assert [output.sharding for output in report.outputs] == [array.sharding for array in plan.outputs]


def test_compared_with_xla():
    plan = planned()
    found = plan.compare(rounds=1)
    assert found.ours.wire_bytes == plan.cost.wire_bytes
    assert found.bound_wire_bytes == plan.bound.wire_bytes
