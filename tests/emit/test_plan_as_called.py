"""`shardc.einsum.plan` takes what `shardc.einsum` takes, and refuses what it refuses, with the same code."""

import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc

sys.path.insert(0, str(Path(__file__).parent))
from test_wrong_arguments import WRONG

pytestmark = pytest.mark.devices

EXPLICIT, AUTO = jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto
KINDS = {"explicit": (EXPLICIT, EXPLICIT), "auto": (AUTO, AUTO), "mixed": (EXPLICIT, AUTO), "turned": (AUTO, EXPLICIT)}
TEXTS = (
    "A[I_X, J] · B[J, K_Y] → C[I_X, K_Y]",
    "A[I, J_X] · B[J_X, K] → C[I, K]{U_X}",
    "A[I_XY, J] · B[J, K] → C[I_XY, K]",
    "A[I_X, J] · B[J, K] → C[I_YX, K]",
    "A[I_X, J]{U_Y} · B[J, K] → C[I_X, K]",
    "A: f64[I_X, J] · B[J, K] → C[I_X, K]",
    "C: f64[I_X, K] = A[I_X, J] · B[J, K]",
    "mesh X=4; A[I_X, J] · B[J, K] → C[I_X, K]",
    "A[I_X, J] ⊙ b[] → C[I_X, J]",
    "A[I_Z, J] · B[J, K] → C[I_Z, K]",
)
SPECS = (jax.P(), jax.P("X"), jax.P(None, "X"), jax.P("X", "Y"), jax.P(("X", "Y")), jax.P("Y"))


def mesh_of(kind, sizes=(2, 2)):
    return jax.make_mesh(sizes, ("X", "Y"), axis_types=KINDS[kind])


def lying(shape, dtype, kind, sizes, spec):
    spec = spec if len(spec) <= len(shape) else jax.P()
    return jax.device_put(np.ones(shape, dtype), jax.NamedSharding(mesh_of(kind, sizes), spec))


SHAPES = st.sampled_from([(8, 8), (8, 8), (8, 8), (8, 6), (6, 8), (8,), ()])
DTYPES = st.sampled_from(["float32", "float32", "float16", "int8", "bool", "float64", "int64"])
ARRAYS = st.one_of(
    st.builds(np.ones, SHAPES, DTYPES),
    st.builds(jnp.ones, SHAPES, st.sampled_from(["float32", "int8"])),
    st.builds(
        lying, st.sampled_from([(8, 8), (8, 8), (8,)]), st.sampled_from(["float32", "int8"]), st.sampled_from([*KINDS]),
        st.sampled_from([(2, 2), (2, 2), (2, 2), (4, 2), (2, 1)]), st.sampled_from(SPECS),
    ),
    st.builds(lambda shape: jax.device_put(np.ones(shape, np.float32), jax.devices()[1]), SHAPES),
    st.sampled_from([1, 2.5, 300, 2**40, 1e300, True, np.float64(2), np.int64(2**40), np.full((8, 8), 2**40)]),
    st.sampled_from([each for each in WRONG if not isinstance(each, jax.ShapeDtypeStruct)]),
)  # fmt: skip


def outcome(call, *arrays):
    try:
        call(*arrays)
    except shardc.ShardcError as error:
        return error.code
    return "fine"


def eagerly(call, arrays):
    return outcome(call, *arrays)


def traced(call, arrays):
    """As arguments of a jitted function; what is none is a constant in it."""
    places = [place for place, array in enumerate(arrays) if isinstance(array, np.ndarray | jax.Array)]
    found = []

    def function(*some):
        replaced = dict(zip(places, some, strict=True))
        found.append(outcome(call, *(replaced.get(place, array) for place, array in enumerate(arrays))))

    try:
        jax.eval_shape(function, *(arrays[place] for place in places))
    except (TypeError, ValueError, OverflowError) as error:
        return f"JAX's own {type(error).__name__}"  # of arguments that it does not take
    return found[-1]


def mapped(call, arrays):
    """Inside a shard_map over X."""
    found = []

    def function():
        found.append(outcome(call, *arrays))
        return jnp.zeros(())

    jax.eval_shape(jax.shard_map(function, in_specs=(), out_specs=jax.P(), axis_names={"X"}))
    return found[-1]


def same(text, arrays, kind, within):
    with jax.set_mesh(mesh_of(kind)) if kind else nullcontext():
        return [within(partial(call, text), arrays) for call in (shardc.einsum, shardc.einsum.plan)]


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(TEXTS),
    st.lists(ARRAYS, min_size=1, max_size=3).filter(lambda arrays: len(arrays) == 2) | st.lists(ARRAYS, max_size=3),
    st.sampled_from([*KINDS, None]),
    st.sampled_from([eagerly, traced, mapped]),
)
def test_the_plan_is_refused_as_the_call_is(text, arrays, kind, within):
    if within is mapped and kind is None:
        within = eagerly
    called, planned = same(text, arrays, kind, within)
    assert planned == called
