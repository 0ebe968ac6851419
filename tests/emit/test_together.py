"""Products with their collectives as one, and programs left to XLA: on every shard what NumPy says, gradients too."""

import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import jax
import numpy as np
import pytest

import shardc
from shardc import simulate
from shardc.emit import source
from shardc.emit.call import placing
from shardc.emit.call.program import CompiledProgram
from shardc.ir.legal import faults_of
from shardc.ir.plan import How
from shardc.lowering.rings import ring_of
from shardc.lowering.together import all_of, apart, candidates
from shardc.proving.prove import prove

pytestmark = pytest.mark.devices

SIZES = {"I": 12, "J": 24, "K": 36, "B": 12, "D": 24, "F": 36}
PRODUCTS = [
    ("X=4,Y=2", "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]", 3),  # either gather, both
    ("X=3,Y=2", "A[I, J_X] · B[J_X, K_Y] → C[I_X, K_Y]", 1),  # scattered
    ("X=6", "A[I, J_X] · B[J_X, K] → C[I, K]", 1),  # summed
    ("X=2,Y=4", "A[I_X, J_Y] · B[J_XY, K] → C[I_X, K_Y]", 1),
    ("X=2,Y=2,Z=2", "A[I_XZ, J] · B[J_Z, K_Y] → C[I_X, K_YZ]", 1),
]
RINGS = [
    "A[I_X, J] · B[J, K_X] → C[I, K_X]",  # gathered, free
    "A[I, J_X] · B[J, K_X] → C[I, K_X]",  # gathered, summed
    "A[I, J_X] · B[J_X, K] → C[I_X, K]",  # scattered
    "A[I, J_X] · B[J_X, K] → C[I, K]",  # summed for all
]
# Of each size another text first, for what a quick run takes.
EVERY_RING = [(RINGS[(place + turn) % 4], size) for turn, size in enumerate((2, 3, 4, 7)) for place in range(4)]
# Over two axes at once, in either order.
OVER_TWO = [
    "A[I_XY, J] · B[J, K_XY] → C[I, K_XY]",
    "A[I, J_YX] · B[J, K_XY] → C[I, K_XY]",
    "A[I, J_XY] · B[J_XY, K] → C[I, K]",
    "C[I, K]{U_XY} = A[I, J_XY] · B[J_XY, K]; D[I_YX, K] = ReduceScatter(C[I, K]{U_XY})",
]
MESHES = ("X=2,Y=2", "X=2,Y=4", "X=4,Y=2", "X=3,Y=2")
TWO_AXES = [(OVER_TWO[(place + turn) % 4], mesh) for turn in range(4) for place, mesh in enumerate(MESHES)]
MLP = "H[B_Y, F_X] = In[B_Y, D_X] · W[D_Y, F_X]; Out[B_Y, F_X] = gelu(H)"


def planned(mesh, text, dtype="int32"):
    return shardc.plan(
        text,
        mesh=mesh,
        dims={dim: SIZES[dim] for dim in SIZES if f"{dim}_" in text or dim in text},
        dtype=dtype,
        idle="keep",
    )


def inputs(plan):
    wholes = simulate.sample_inputs(plan.program, seed=1)
    values = [plan.schedule.values[number] for number in plan.schedule.inputs]
    return [np.asarray(whole, jax.numpy.dtype(array.dtype.jax)) for whole, array in zip(wholes, values, strict=True)]


def holds_the_reference(found, plan, given):
    wanted = plan.reference(*given)
    for shard in found.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), wanted[shard.index])
    given = plan._found.whole or plan.schedule  # on the mesh as given
    lies = given.values[given.outputs[0]].sharding
    assert found.sharding.spec == placing.spec_of(lies)


@pytest.mark.parametrize("mesh, text, least", PRODUCTS)
def test_every_group_is_on_every_shard_what_numpy_says(mesh, text, least):
    plan = planned(mesh, text)
    given, groups = inputs(plan), list(candidates(plan.schedule))
    assert len(groups) >= least
    for ordered, group in groups:
        schedule = replace(ordered, together=(group,))
        assert not list(faults_of(schedule))
        holds_the_reference(CompiledProgram(schedule)(*given), plan, given)


@pytest.mark.parametrize("text, size", EVERY_RING)
def test_rings_of_odd_and_even_sizes(text, size):
    plan = shardc.plan(text, mesh={"X": size}, dims=dict.fromkeys("IJK", 4 * size), dtype="int32", idle="keep")
    given = inputs(plan)
    rings = [(ordered, group) for ordered, group in candidates(plan.schedule) if group.how is How.RING]
    assert rings
    for ordered, group in rings:
        holds_the_reference(CompiledProgram(replace(ordered, together=(group,)))(*given), plan, given)


@pytest.mark.parametrize("text, mesh", TWO_AXES)
def test_rings_over_two_axes(text, mesh):
    """By the mesh and by number; what is applied, and what is proved of the text."""
    plan = shardc.plan(text, mesh=mesh, dims={"I": 24, "J": 48, "K": 72}, dtype="int32", idle="keep", chip="v5e")
    given = inputs(plan)
    rings = [(ordered, group) for ordered, group in candidates(plan.schedule) if group.how is How.RING]
    assert any(group.numbered for _, group in rings)
    for ordered, group in rings:
        schedule = replace(ordered, together=(group,))
        assert not list(faults_of(schedule))
        assert prove(schedule, source(schedule, "v5e")).verdict.value == "proved"
        holds_the_reference(CompiledProgram(schedule)(*given), plan, given)


@pytest.mark.parametrize("text", ["C[I, K_X] = A[I, J_X] · B[J_X, K]", RINGS[2], RINGS[3]])
@pytest.mark.parametrize("size", [3, 4, 5, 8])
def test_blocks_of_both_turns_as_one_product(text, size, monkeypatch):
    """Whichever operand lacks the dim; of 2 there is one turn, and nothing to join."""
    monkeypatch.setattr("shardc.lowering.rings.multiplies_in_pairs", lambda rows, size, target: True)
    plan = shardc.plan(text, mesh={"X": size}, dims=dict.fromkeys("IJK", 4 * size), dtype="int32", idle="keep")
    given = inputs(plan)
    rings = [(ordered, group) for ordered, group in candidates(plan.schedule) if group.how is How.RING]
    assert any(ring_of(*found).in_pairs for found in rings)
    for ordered, group in rings:
        schedule = replace(ordered, together=(group,))
        assert not list(faults_of(schedule))
        written = source(schedule, "v5e")
        assert ("# of both sides" in written) == ring_of(ordered, group).in_pairs
        assert prove(schedule, written).verdict.value == "proved"
        holds_the_reference(CompiledProgram(schedule)(*given), plan, given)


def test_a_ring_whose_other_operand_is_gathered_waits_for_that():
    """Where its products are long: its permutes are sent before the gather otherwise, and hidden beside nothing."""
    text, sizes = "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]", {"I": 24, "J": 48, "K": 72}
    plan = shardc.plan(text, mesh="X=4,Y=2", dims=sizes, dtype="int32", idle="keep", topology="v5e:4x2", overlap="off")
    given, waits = inputs(plan), []
    for ordered, group in candidates(plan.schedule):
        if group.how is How.RING:
            short, schedule = (_taking(seconds, replace(ordered, together=(group,))) for seconds in (0.0, 1.0))
            written = source(schedule, "v5e")
            waits += ["right = jax.lax.optimization_barrier((" in each for each in (written, source(short, "v5e"))]
            assert prove(schedule, written).verdict.value == "proved"
            holds_the_reference(CompiledProgram(schedule)(*given), plan, given)
    assert waits == [True, False] * 2


def _taking(seconds, schedule):
    """The schedule with its last step, the product, priced so."""
    *others, product = schedule.steps
    steps = (*others, replace(product, cost=replace(product.cost, time_s=seconds)))
    return replace(schedule, block=replace(schedule.block, steps=steps))


MET = [("X=2,Y=2", 0), ("X=2,Y=4", 1), ("X=4,Y=2", 2), ("X=2,Y=3", None), ("X=2,Y=2,Z=2", 0)]
MEETING = [
    "A[I_X, J_Y] · B[J_X, K_Y] → C[I_X, K_Y]",
    "A[J_Y, I_X] · B[K_Y, J_X] → C[K_Y, I_X]",
    "A[N, I_X, J_Y] · B[J_X, N, K_Y] → C[I_X, N, K_Y]",
]


def as_two_rings(mesh, text, dtype="int32"):
    dims = {"I": 24, "J": 48, "K": 72, "N": 2}
    sizes = {dim: size for dim, size in dims.items() if f"{dim}_" in text or f"{dim}," in text}
    plan = shardc.plan(text, mesh=mesh, dims=sizes, dtype=dtype, idle="keep", overlap="off", chip="v5e")
    found = [(ordered, group) for ordered, group in candidates(plan.schedule) if group.how is How.RINGS]
    return plan, [replace(ordered, together=(group,)) for ordered, group in found]


@pytest.mark.parametrize("mesh, place", MET)
def test_two_rings_are_on_every_shard_what_numpy_says(mesh, place):
    """Of an operand over two devices and one over two, four or three, of which the last is none."""
    plan, found = as_two_rings(mesh, MEETING[place or 0])
    assert len(found) == (place is not None)
    for schedule in found:
        given = inputs(plan)
        assert not list(faults_of(schedule))
        assert prove(schedule, source(schedule, "v5e")).verdict.value == "proved"
        holds_the_reference(CompiledProgram(schedule)(*given), plan, given)


# Gathered behind: chunks of either free dim; before: of the dim that stays; over two axes; an outer product.
CHUNKS = [
    ("X=4,Y=2", "A[I_X, J] · B[J, K_Y] → C[I, K_Y]"),
    ("X=4,Y=2", "A[I_Y, J] · B[J, K_X] → C[I_Y, K]"),
    ("X=4,Y=2", "A[I_Y, J_X] · B[J, K_X] → C[I_Y, K_X]"),
    ("X=2,Y=4", "A[I, J_XY] · B[J, K_YX] → C[I, K_YX]"),
    ("X=4,Y=2", "A[I_X] · B[K_Y] → C[I, K_Y]"),
]


def done_as(how, mesh, text, size=64, dtype="int32"):
    plan = shardc.plan(text, mesh=mesh, dims=dict.fromkeys("IJK", size), dtype=dtype, idle="keep")
    found = [(ordered, group) for ordered, group in candidates(plan.schedule) if group.how is how]
    return plan, [replace(ordered, together=(group,)) for ordered, group in found]


@pytest.mark.parametrize("mesh, text", CHUNKS)
def test_chunks_are_on_every_shard_what_numpy_says(mesh, text):
    plan, found = done_as(How.CHUNKS, mesh, text)
    given = inputs(plan)
    assert found
    for schedule in found:
        assert not list(faults_of(schedule))
        assert prove(schedule, source(schedule, "v5e")).verdict.value == "proved"
        holds_the_reference(CompiledProgram(schedule)(*given), plan, given)


@pytest.mark.parametrize("text", ["A[I, J_X] · B[J_X, K] → C[I_X, K]", "A[I_X, J] · B[J, K_X] → C[I, K]"])
def test_groups_on_a_finer_mesh_are_on_every_shard_what_numpy_says(text):
    """A product of digits, gathered over a part of the axis or scattered; none is left to XLA, which knows X alone."""
    plan = shardc.plan(text, mesh="X=8", dims=dict.fromkeys("IJK", 64), dtype="int32", objective="bytes")
    given, groups = inputs(plan), list(candidates(plan.schedule))
    assert plan.schedule.by is not None and {group.how for _, group in groups} == {How.RING, How.CHUNKS}
    for ordered, group in groups[::2]:
        schedule = replace(ordered, together=(group,))
        assert not list(faults_of(schedule))
        assert prove(schedule, source(schedule, "v5e")).verdict.value == "proved"
        holds_the_reference(CompiledProgram(schedule)(*given), plan, given)


# A ring's result would cross a cut as one array for all; what is gathered again behind a cut waits there.
CROSSED = """G[J, K] = AllGather_X B[J, K_X]; T[I, K] = A[I, J] · G; H[K, F_X] = AllGather_Y D[K_Y, F_X]
C[I, F_X] = T · H"""
AGAIN = """B[J, K] = AllGather(B[J_X, K]); T[I_Y, K] = A[I_Y, J] · B[J, K]; H[K, F] = AllGather_X D[K_X, F]
C[I_Y, F] = T · H; E[I_Y, J] = C · V[F, J]; B[J, K] = AllGather(B[J_X, K]); R[I_Y, K] = E · B[J, K]"""


@pytest.mark.parametrize("text", [CROSSED, AGAIN])
def test_two_groups_at_once_are_on_every_shard_what_numpy_says(text):
    plan = planned("X=2,Y=2", text)
    schedule, given = plan.schedule, inputs(plan)
    pairs = [pair for pair in combinations(candidates(schedule), 2) if len(apart(pair, lambda each: each)) == 2]
    for pair in pairs:
        grouped = all_of(schedule, pair)
        assert not list(faults_of(grouped))
        holds_the_reference(CompiledProgram(grouped)(*given), plan, given)
    assert any(group.how is How.PARTITIONER for _, group in (each for pair in pairs for each in pair))


def test_what_does_not_divide_is_in_no_chunks():
    assert not done_as(How.CHUNKS, *CHUNKS[0], size=12)[1]


@pytest.mark.instant
@pytest.mark.parametrize("text, size", EVERY_RING)
def test_rings_are_proved_and_written_as_ruff_leaves_them(text, size, tmp_path):
    options = {"mesh": {"X": size}, "dims": dict.fromkeys("IJK", 4096 * size), "idle": "keep", "chip": "v5e"}
    plan = shardc.plan(text, overlap="on", **options)
    assert plan.schedule.together
    assert plan.prove().verdict.value == "proved"
    (tmp_path / "ring.py").write_text(plan.source(), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", "--check", tmp_path / "ring.py"]
    assert subprocess.run(ruff, capture_output=True).returncode == 0


def test_gradients_are_those_of_the_steps():
    plan = planned("X=4,Y=2", MLP, "f32")
    given = inputs(plan)
    groups = {(step_count(group), group.how): (ordered, group) for ordered, group in candidates(plan.schedule)}
    assert len(groups) == 4, "a ring; two; left to XLA with one gather; with two"
    grouped = [replace(ordered, together=(group,)) for ordered, group in groups.values()]
    schedules = [plan.schedule, *grouped, replace(plan.schedule, by_xla=True)]
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        values = [plan.schedule.values[number] for number in plan.schedule.inputs]
        placed = [jax.device_put(x / 8, placing.spec_of(v.sharding)) for x, v in zip(given, values, strict=True)]
        found = [jax.jit(jax.grad(_squared(schedule), argnums=(0, 1)))(*placed) for schedule in schedules]
    for gradients in found[1:]:
        for one, other in zip(gradients, found[0], strict=True):
            assert one.sharding.spec == other.sharding.spec
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * abs(other).max())


@pytest.mark.exhaustive
def test_gradients_of_chunks_and_of_rings_over_two_axes_are_those_of_the_steps():
    for mesh, text, how in (*((*CHUNKS[n], How.CHUNKS) for n in (0, 2)), ("X=4,Y=2", OVER_TWO[1], How.RING)):
        plan, (schedule, *_) = done_as(how, mesh, text, dtype="f32")
        given = inputs(plan)
        with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
            values = [plan.schedule.values[number] for number in plan.schedule.inputs]
            placed = [jax.device_put(x / 8, placing.spec_of(v.sharding)) for x, v in zip(given, values, strict=True)]
            of_steps, of_chunks = (
                jax.jit(jax.grad(_squared(each), argnums=(0, 1)))(*placed) for each in (plan.schedule, schedule)
            )
        for one, other in zip(of_chunks, of_steps, strict=True):
            assert one.sharding.spec == other.sharding.spec
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * abs(other).max())


def step_count(group):
    return group.last - group.first + 1


def _squared(schedule):
    program = CompiledProgram(schedule)
    return lambda *arrays: (program(*arrays) ** 2).sum()


def test_under_axes_that_are_taken_the_steps_are_done_one_by_one():
    plan = planned("X=4", "A[I, J_X] · B[J_X, K] → C[I_X, K]")
    given = inputs(plan)
    for ordered, group in candidates(plan.schedule):
        program = CompiledProgram(replace(ordered, together=(group,)))
        with jax.set_mesh(jax.make_mesh((2, 4), ("Z", "X"))):
            mapped = jax.shard_map(program, in_specs=(jax.P(), jax.P()), out_specs=jax.P(), axis_names={"Z"})
            placed = [jax.device_put(given[0], jax.P(None, "X")), jax.device_put(given[1], jax.P("X", None))]
            found = jax.jit(mapped)(*placed)
        np.testing.assert_array_equal(np.asarray(found), plan.reference(*given))
