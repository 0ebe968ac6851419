"""Exchanges in pieces of unequal sizes, compiled: every device's shard, and gradients, Explicit and Auto axes."""

import math
import random
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import shardc
from shardc.emit.call.placing import spec_of
from shardc.emit.call.program import CompiledProgram
from shardc.emit.text.source import source
from shardc.errors import ShardcError
from shardc.ir import uneven
from shardc.ir.collectives import UnevenExchange, uneven_exchange
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Pattern, Use
from shardc.ir.legal import faults_of
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Block, Schedule, Step, StepCost
from shardc.ir.program import Input, Program, Statement
from shardc.ir.sharding import Array, Sharding, spell
from shardc.lowering.flow import untyped_along
from shardc.machines.run import run
from shardc.proving import Verdict, prove
from shardc.rules.placements import placements

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from traced import called_otherwise

pytestmark = pytest.mark.devices

F32 = DTYPES["f32"]
KINDS = (jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto)


def exchanged(mesh, shape, before, after):
    """The exchange alone, whatever else would do it."""
    dims = ("I", "J", "K")[: len(shape)]
    arrays = tuple(Array("A", dims, shape, sharding, F32) for sharding in (before, after))
    patterns = [Pattern.exactly(sharding) for sharding in (before, after)]
    statement = Statement("A", dims, patterns[1], Use("A", dims, patterns[0], F32), F32, f"A{spell(dims, after)}")
    program = Program(
        mesh, tuple(zip(dims, shape, strict=True)), F32, (Input("A", dims, patterns[0], F32),), (statement,)
    )
    move = uneven_exchange(before, after.dims, mesh)
    return Schedule(program, Block(arrays, (0,), (1,), (Step(move, (0,), (1,), 0, StepCost()),)))


def drawn(seed, count):
    """Exchanges on up to eight devices: of each two shardings by whichever axes, with idle axes too."""
    chosen, found = random.Random(f"uneven {seed}"), []
    while len(found) < count:
        sizes = chosen.choice([(2, 3), (3, 2), (2, 4), (2, 2, 2), (2, 3, 1), (7,), (3, 1, 2)])
        mesh, rank = Mesh.of(zip("XYZ", sizes, strict=False)), chosen.randint(1, 3)
        every = list(placements(mesh.names, rank))
        before, after = Sharding(chosen.choice(every)), Sharding(chosen.choice(every))
        if uneven_exchange(before, after.dims, mesh) is not None:
            pairs = zip(before.blocks(mesh), after.blocks(mesh), strict=True)
            found.append((mesh, tuple(math.lcm(*pair) * chosen.choice([1, 2]) for pair in pairs), before, after))
    return found


def shards_equal(result, whole, ulps=0):
    for shard in result.addressable_shards:
        np.testing.assert_array_max_ulp(np.asarray(shard.data), whole[shard.index].astype(np.float32), ulps)


def check(case, kind):
    """NumPy's block is left on every device; the gradient is the identity's, lying as it; the source says so too."""
    mesh, shape, before, after = case
    schedule = exchanged(*case)
    assert not list(faults_of(schedule))
    whole = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    weights = np.random.default_rng(0).integers(-5, 6, shape).astype(np.float32)
    given = jax.make_mesh(mesh.sizes, mesh.names, axis_types=(kind,) * len(mesh.names))
    with jax.set_mesh(given):
        x = jax.device_put(whole, jax.NamedSharding(given, spec_of(before)))
        w = jax.device_put(weights, jax.NamedSharding(given, spec_of(after)))
        program = CompiledProgram(schedule)
        found = program(x)
        assert found.sharding.is_equivalent_to(jax.NamedSharding(given, spec_of(after)), len(shape))
        shards_equal(found, whole)
        gradient = jax.jit(jax.grad(lambda v: (program(v) * program(v) * w).sum()))(x)
        assert gradient.sharding.is_equivalent_to(jax.NamedSharding(given, spec_of(before)), len(shape))
        # Equal blocks get a share each, in thirds or sevenths: a share too few, or twice, is a quarter at least.
        shards_equal(gradient, 2 * whole * weights, ulps=2)
    assert not called_otherwise(schedule, source(schedule, "v5p"), given)


@pytest.mark.parametrize("case", drawn(1, 6), ids=lambda case: f"{case[0]} {case[2].dims} {case[3].dims}")
def test_every_shard_and_every_gradient(case):
    check(case, KINDS[len(case[1]) % 2])


def of_whole_blocks():
    """Beside an axis that stays, and of two dims."""
    cube = Mesh.of({"X": 2, "Y": 2, "Z": 2})
    yield cube, (4, 4), Sharding.of(["ZX", ""]), Sharding.of(["ZY", ""])
    yield cube, (4, 4), Sharding.of(["X", "Y"]), Sharding.of(["Y", "Z"])


@pytest.mark.parametrize("case", list(of_whole_blocks()), ids=["beside another", "two dims"])
def test_blocks_that_stay_whole_are_sent_in_one_permute_without_tables(case):
    text = source(exchanged(*case), "v5p")
    assert text.count("ppermute") == 1 and "take" not in text
    check(case, KINDS[0])


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(4))
def test_every_shard_and_every_gradient_of_many(seed):
    for number, case in enumerate(drawn(f"many {seed}", 4)):
        check(case, KINDS[number % 2])


def test_some_results_are_equal_where_their_type_varies():
    """`A[I_X] → A[I_Y]` leaves what is equal along X; `A[I_X, J_Y] → A[I_Y, J_X]` does not: both kinds are drawn."""
    mesh = Mesh.of({"X": 2, "Y": 3})
    along = untyped_along(exchanged(mesh, (6,), Sharding.of(["X"]), Sharding.of(["Y"])).block)
    assert along == (frozenset(), frozenset("X"))
    along = untyped_along(exchanged(mesh, (6, 6), Sharding.of(["X", "Y"]), Sharding.of(["Y", "X"])).block)
    assert along == (frozenset(), frozenset())
    kinds = {any(untyped_along(exchanged(*case).block)) for case in drawn(1, 6)}
    assert kinds == {True, False}


@pytest.mark.parametrize("kind", KINDS, ids=["explicit", "auto"])
def test_what_is_equal_and_cannot_say_so_is_left_where_axes_are_cut_too(kind, monkeypatch):
    """`A[I_X] → A[I_W]` over X0·X1 of X, where no exchange is short enough: block, gradient, text and proof."""
    monkeypatch.setattr(uneven, "MAX_NUMBERS", 2)
    plan = shardc.plan("A[I_X] → A[I_W]", mesh="W=2,X=4", dims="I=4", dtype="f32", chip="v5p", objective="bytes")
    schedule = plan.schedule
    assert schedule.by is not None and untyped_along(schedule.block)[schedule.outputs[0]]
    assert prove(schedule, source(schedule, "v5p")).verdict is Verdict.PROVED
    whole = np.arange(4, dtype=np.float32)
    mesh = jax.make_mesh((2, 4), ("W", "X"), axis_types=(kind,) * 2)
    with jax.set_mesh(mesh):
        x, w = (jax.device_put(whole, jax.NamedSharding(mesh, jax.P(axis))) for axis in "XW")
        program = CompiledProgram(schedule)
        shards_equal(program(x), whole)
        gradient = jax.jit(jax.grad(lambda v: (program(v) * program(v) * w).sum()))(x)
        assert gradient.sharding.is_equivalent_to(jax.NamedSharding(mesh, jax.P("X")), 1)
        shards_equal(gradient, 2 * whole * whole, ulps=2)
    assert not called_otherwise(schedule, source(schedule, "v5p"), mesh)


@pytest.mark.parametrize("kind", KINDS, ids=["explicit", "auto"])
def test_reshard_takes_it_eagerly_and_under_jit(kind):
    whole = np.arange(36.0 * 4, dtype=np.float32).reshape(6, 24)
    with jax.set_mesh(jax.make_mesh((2, 3), ("X", "Y"), axis_types=(kind,) * 2)):
        x = jax.device_put(whole, jax.P("X", "Y"))
        target = jax.P("Y", "X")
        for found in (shardc.reshard(x, target), jax.jit(lambda v: shardc.reshard(v, target))(x)):
            shards_equal(found, whole)


def test_a_plan_that_leaves_what_cannot_be_typed_is_refused_inside_a_shard_map():
    mesh = Mesh.of({"X": 2, "Y": 3})
    program = CompiledProgram(exchanged(mesh, (6,), Sharding.of(["X"]), Sharding.of(["Y"])))
    with jax.set_mesh(jax.make_mesh((1, 2, 3), ("V", "X", "Y"))), pytest.raises(ShardcError) as caught:
        x = jax.device_put(np.arange(6.0, dtype=np.float32), jax.P("X"))
        jax.shard_map(program, in_specs=jax.P(), out_specs=jax.P(), axis_names={"V"})(x)
    assert caught.value.code == "SHC306"


USED = [  # what is equal along X, and of a varying type, read by every kind of step
    "x[I_Y, J] = A[I_X, J]; C[I_Y, J] = softmax_J(relu(x)); return C, x",
    "x[I_Y, J_Z] = A[I_X, J_Z]; C[I_Y, K_Z] = x · B[J_Z, K]; return C, x",
    "x[I_Y, J_Z] = A[I_X, J_Z]; s[J_Z] = sum_I(x); return s, x",
    "x[I_Y, J] = A[I_X, J]; C[I_Y, J_X] = x; D[I_Y, J]{U_Z} = x; return C, D",
    "x[I_Y, J] = A[I_X, J]; z[I_Z, J] = x; return z, x",
    "x[I_Y, J] = A[I_X, J]; C[I_Y, J] = where(x > 0, x, B[I_Y, J]); g[J] = sum_I(C); return C, g",
    "x[I_Y, J] = A[I_X, J]; C[K_X, J] = B[K_X, I_Y] · x; return C",
]


@pytest.mark.parametrize("text", USED)
def test_what_a_plan_sends_to_an_idle_axis_is_used_as_it_should_be(text):
    """At sizes where it is sent so: every shard equals NumPy's."""
    dims = {dim: 512 for dim in "IJK" if dim in text}
    plan = shardc.plan(text, mesh="X=2,Y=2,Z=2", dims=dims, topology="v5p:2x2x2", dtype="f32")
    assert any(isinstance(step.op, UnevenExchange) for step in plan.schedule.steps)
    assert run(plan.schedule).ok
