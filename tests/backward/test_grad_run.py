"""Backward programs on eight devices: every shard equal to NumPy's, and the gradients those of jax.grad, unsharded."""

import re
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

import shardc
from shardc import simulate
from shardc.machines.run import run

pytestmark = pytest.mark.devices


@pytest.fixture(autouse=True)
def optimized():
    """Here sums of floats are held against sums of floats: both in the order that a user's have."""
    jax.config.update("jax_disable_most_optimizations", False)


EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "layers": {"L": 3, "B": 8, "D": 8, "F": 16},
    "llama": {"L": 2, "B": 2, "T": 4, "D": 8, "F": 8, "E": 2},
    "llama_layer": {"B": 2, "T": 4, "D": 8, "F": 8, "E": 2},
    "mixture_of_experts": {"G": 4, "S": 4, "M": 4, "E": 4, "C": 2, "H": 4},
    "causal_attention": {"B": 2, "T": 4, "S": 4, "D": 8, "H": 4, "E": 2},
    "cross_entropy": {"B": 4, "D": 4, "V": 16},
    "micro_batches": {"M": 3, "B": 8, "D": 8, "F": 4},
}
EXACT = {"micro_batches"}  # of integers the sums are integers


def parsed(name, unsharded=False):
    text = (EXAMPLES / f"{name}.shard").read_text(encoding="utf-8")
    text = re.sub(r"_(data|model|X|Y)\b", "", text) if unsharded else text
    return shardc.parse(text, mesh={"Z": 1} if unsharded else None, dims=SMALL[name], dtype="f32")


def wholes_of(program, name):
    rng = np.random.default_rng(1)
    found = {}
    for array in program.inputs:
        shape = program.shape(array.dims)
        whole = rng.integers(-3, 4, shape) if name in EXACT else rng.normal(size=shape) / 2
        found[array.name] = (
            rng.integers(0, 16, shape).astype(np.int32) if array.dtype.name == "int32" else whole.astype(np.float32)
        )
    return found


@cache
def of_jax(name):
    """The gradients of the forward program without a sharding, by jax.grad."""
    wholes = wholes_of(shardc.grad(parsed(name), whole=True), name)
    program = parsed(name, unsharded=True)
    compiled = shardc.plan(program, chip="v5e").compile()
    inputs = [array.name for array in program.inputs]
    outputs = [program.results[number].name for number in program.outputs]

    def weighed(floats):
        found = compiled(*(floats.get(name, wholes[name]) for name in inputs))
        pairs = zip(outputs, found if len(outputs) > 1 else (found,), strict=True)
        return sum((wholes[f"d{name}"] * one).sum() for name, one in pairs if f"d{name}" in wholes)

    with jax.set_mesh(jax.make_mesh((1,), ("Z",))):
        floats = {name: jax.numpy.asarray(wholes[name]) for name in inputs if wholes[name].dtype == np.float32}
        found = jax.grad(weighed)(floats)
    return [(name, found[name]) for name in floats]


@pytest.mark.parametrize("name", SMALL)
def test_the_gradients_of_an_example_are_those_of_jax(name):
    """What is left out, doubled or of another sign is off by as much as it is large, and the tolerance is 1e-4."""
    whole = shardc.grad(parsed(name), whole=True)
    wholes = wholes_of(whole, name)
    found = simulate.reference(whole, [wholes[array.name] for array in whole.inputs])
    wanted = of_jax(name)
    for (array, gradient), one in zip(wanted, found[-len(wanted) :], strict=True):
        if name in EXACT:
            np.testing.assert_array_equal(one, np.asarray(gradient), err_msg=array)
        np.testing.assert_allclose(one, np.asarray(gradient), rtol=1e-4, atol=1e-4, err_msg=array)


@pytest.mark.parametrize(
    "name",
    [
        "micro_batches",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("layers", "cross_entropy", "causal_attention")),
    ],
)
def test_forward_and_backward_that_make_arrays_again_equal_numpy_on_eight_devices(name):
    report = run(shardc.plan(shardc.grad(parsed(name), whole=True, remat=True), chip="v5e").schedule)
    assert report.verdict.value == "equal", str(report)


@pytest.mark.parametrize(
    "name",
    ["micro_batches", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in SMALL if name != "micro_batches")],
)
def test_every_shard_on_eight_devices_is_of_jaxs_gradient(name):
    """Of forward and backward planned as one: what each of eight devices holds of each gradient, beside jax.grad of the
    unsharded function at the same place."""
    whole = shardc.grad(parsed(name), whole=True)
    wholes = wholes_of(whole, name)
    plan = shardc.plan(whole, chip="v5e")
    results = plan.compile()(*(wholes[array.name] for array in whole.inputs))
    wanted = of_jax(name)
    for (array, gradient), result in zip(wanted, results[-len(wanted) :], strict=True):
        assert len(result.addressable_shards) == 8
        for shard in result.addressable_shards:
            here = np.asarray(gradient)[shard.index]
            np.testing.assert_allclose(np.asarray(shard.data), here, rtol=1e-4, atol=1e-4, err_msg=array)
