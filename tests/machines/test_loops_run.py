"""Loops on simulated devices: equal to NumPy on every shard, as source too, with their gradients; and as compiled."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import shardc
from shardc import simulate
from shardc.compiled.hlo.collectives import Reader
from shardc.compiled.hlo.text import read_hlo
from shardc.compiled.verify import match
from shardc.emit.call.placing import make_mesh
from shardc.machines.run import run

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))
from traced import called_otherwise

pytestmark = pytest.mark.devices

TWO = {"X": 4, "Y": 2}
DIMS = {"L": 3, "M": 2, "B": 16, "D": 16, "F": 32}
LAYERS = """
    for L {
        H = x[B_X, D] ·_D Win[L, D_X, F_Y]
        x = x + relu(H) ·_F Wout[L, F_Y, D]
        S[L, B_X] = sum_D(x)
    }
    Out[B, D] = exp(x)
"""
TEXTS = {
    "layers": LAYERS,
    "micro-batches": "for M {\n dW[D, F_Y] = A[M, B_X, D] ·_B dH[M, B_X, F_Y]\n G[D, F_Y] = G[D, F_Y] + dW\n}",
    "gathered in each trip": """for L {
        W[L, D, F] = AllGather_XY(W[L, D_XY, F])
        x[B_X, D] = x[B_X, D] ·_D W ·_F V[F, D]
    }""",
    "carried elsewhere": """x[B, D] = relu(y[B, D])
    for L { x[B_X, D] = relu(x ·_D W[L, D, F_Y] ·_F V[F_Y, D]) }
    Out[B, D_X] = x""",
    "partial sums": "for L { x[B, D]{U_X} = x[B, D]{U_X} + A[L, B, F_X] ·_F V[F_X, D] }\nOut[B_X, D] = x",
    "added to partial sums": """y = relu(x[B, D])
    for M { y = y + A[M, B, F_X] ·_F V[F_X, D] }
    Out[B_X, D] = y""",
    "the dim last": "for L { x[B_X, D] = x[B_X, D] + A[B, D_Y, L]; S[B_X, L] = sum_D(x) }",
    "nested": "for L { for M { x[B_Y, D] = x[B_Y, D] + relu(W[L, M, D_X]) ⊙ x\n S[L, M, B] = sum_D(x) } }",
    "the other way round": "for -L { for -M { x[B_Y, D] = relu(x[B_Y, D] - W[L, M, D_X])\n S[L, M, B] = sum_D(x) } }",
    "only repeated": "for L { x[B_X, D] = relu(x[B_X, D] ·_D W[D_Y, F] ·_F V[F, D_Y]) }",
}


def planned(text, dtype="f32"):
    return shardc.plan(text, mesh=TWO, dims=DIMS, dtype=dtype, chip="v5e")


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", TEXTS)
def test_every_shard_equals_numpy(name, dtype):
    report = run(planned(TEXTS[name], dtype).schedule)
    assert report.verdict.value == "equal", str(report)


@pytest.mark.parametrize("name", TEXTS)
def test_the_source_does_what_the_callable_does(name):
    plan = planned(TEXTS[name])
    assert not called_otherwise(plan.schedule, plan.source(), make_mesh(plan.schedule.given_mesh))


def test_a_loop_is_one_scan_however_many_trips():
    few, many = (planned(LAYERS).source().replace("length=3", ""), None)
    many = shardc.plan(LAYERS, mesh=TWO, dims=DIMS | {"L": 100}, dtype="f32", chip="v5e").source()
    assert many.count("jax.lax.scan") == 1 and many.replace("length=100", "") == few


@pytest.mark.exhaustive
def test_the_gradient_through_a_loop_is_that_of_its_trips():
    plan = planned(LAYERS.replace("relu", "tanh"))
    wholes = [np.asarray(whole, "float32") for whole in simulate.sample_inputs(plan.program)]
    program = plan.compile()

    def ours(*arrays):
        rows, out = program(*arrays)
        return (rows**2).sum() + out.sum()

    def plain(x, w, v):
        total = 0.0
        for turn in range(3):
            x = x + jax.numpy.tanh(x @ w[turn]) @ v[turn]
            total += (x.sum(1) ** 2).sum()
        return total + jax.numpy.exp(x).sum()

    mesh = make_mesh(plan.schedule.mesh)
    with jax.set_mesh(mesh):
        from shardc.machines.run import placed

        small = [whole * 0.05 for whole in wholes]
        found = jax.jit(jax.grad(ours, argnums=(0, 1, 2)))(*placed(plan.schedule, small, mesh))
    names = [array.name for array in plan.program.inputs]
    by_name = dict(zip(names, small, strict=True))
    wanted = jax.grad(plain, argnums=(0, 1, 2))(*(by_name[name] for name in ("x", "Win", "Wout")))
    order = dict(zip(("x", "Win", "Wout"), wanted, strict=True))
    for name, one in zip(names, found, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(order[name]), rtol=2e-4, atol=1e-4, err_msg=name)


def test_the_gradient_of_what_is_kept_among_zeros_reaches_every_copy():
    plan = planned(TEXTS["added to partial sums"])
    assert "Mask" in [step.op for step in plan.steps] and plan.source().count("psum_scatter") == 1
    wholes = [np.asarray(whole, "float32") for whole in simulate.sample_inputs(plan.program)]
    program, mesh = plan.compile(), make_mesh(plan.schedule.mesh)
    with jax.set_mesh(mesh):
        from shardc.machines.run import placed

        given = placed(plan.schedule, wholes, mesh)
        found = jax.jit(jax.grad(lambda *arrays: (program(*arrays) ** 2).sum(), argnums=(0, 1, 2)))(*given)
    plain = lambda x, a, v: ((jax.nn.relu(x) + jax.numpy.einsum("mbf,fd->bd", a, v)) ** 2).sum()  # noqa: E731
    for one, other in zip(found, jax.grad(plain, argnums=(0, 1, 2))(*wholes), strict=True):
        for shard in one.addressable_shards:
            np.testing.assert_allclose(shard.data, np.asarray(other)[shard.index], rtol=1e-5, atol=1e-4)


def test_what_is_compiled_moves_what_is_planned_in_every_trip():
    plan = planned(TEXTS["gathered in each trip"], "i32")  # f32 would be sent as bf16 on a TPU
    mesh = make_mesh(plan.schedule.mesh)
    with jax.set_mesh(mesh):
        from shardc.machines.tpu import arguments_of

        compiled = plan.compile().lower(*arguments_of(plan.schedule, mesh)).compile()
    found = Reader(read_hlo(compiled.as_text()), plan.schedule.mesh).all()
    matches, left = match(plan.schedule, found)
    assert not left and [one.kind for one in matches] == ["AllGather"] and all(one.agrees for one in matches)
    assert sum(one.compiled_bytes for one in matches) == plan.cost.wire_bytes > 0
