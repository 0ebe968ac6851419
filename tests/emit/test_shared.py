"""Einsums that differ in names alone are planned once, and each speaks of its own arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import shardc
from shardc.api import planned as planned_by
from shardc.emit.call import transforms
from shardc.ir.naming import by_place, named
from shardc.notation import parse
from shardc.testing import programs

pytestmark = pytest.mark.devices

TEXTS = [f"x[B_X, D] · W{name}[D, H_Y] → {name}[B_X, H_Y]" for name in "qkv"]


@pytest.fixture
def planned(monkeypatch):
    """The programs that are planned from here on."""
    transforms._einsum.cache_clear()
    transforms._shared.cache_clear()
    transforms._halves.cache_clear()
    found, chosen = [], transforms._chosen

    def counted(program, here, planner):
        found.append(program)
        return chosen(program, here, planner)

    monkeypatch.setattr(transforms, "_chosen", counted)
    yield found
    transforms._einsum.cache_clear()
    transforms._shared.cache_clear()
    transforms._halves.cache_clear()


def test_projections_of_equal_shapes_are_planned_once_with_their_gradients(planned):
    def loss(x, *weights):
        return sum(shardc.einsum(text, x, w).sum() for text, w in zip(TEXTS, weights, strict=True))

    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        x = jax.device_put(jnp.arange(8.0 * 6).reshape(8, 6), jax.P("X", None))
        weights = [jax.device_put(jnp.arange(6.0 * 4).reshape(6, 4) + n, jax.P(None, "Y")) for n in range(3)]
        value, gradients = jax.value_and_grad(loss, argnums=(0, 1, 2, 3))(x, *weights)
    dense = np.arange(48.0).reshape(8, 6), *(np.arange(24.0).reshape(6, 4) + n for n in range(3))
    assert value == sum((dense[0] @ w).sum() for w in dense[1:])
    assert np.array_equal(gradients[0], sum(np.ones((8, 4)) @ w.T for w in dense[1:]))
    assert all(np.array_equal(dw, dense[0].T @ np.ones((8, 4))) for dw in gradients[1:])
    assert len(planned) == transforms._halves.cache_info().misses == 1


def test_another_shape_sharding_or_type_is_another_plan(planned):
    square = jnp.ones((8, 8))
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)):
        given = (("H_Y", square), ("H", square), ("H_Y", square.astype("bfloat16")), ("H_Y", jnp.ones((16, 8))))
        for written, x in given:
            shardc.einsum(f"x[B_X, D] · W[D, {written}] → q[B_X, {written}]", x, square)
    assert len(planned) == len({*planned}) == 4


def test_each_text_names_its_own_arrays(planned):
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        x = jax.device_put(jnp.ones((8, 6)), jax.P("X", None))
        for text, name in zip(TEXTS, "qkv", strict=True):
            shardc.einsum(text, x, jax.device_put(jnp.ones((6, 4)), jax.P(None, "Y")))
            with pytest.raises(shardc.ShardcError, match=f"W{name}"):
                shardc.einsum(text, x, jax.device_put(jnp.ones((6, 4)), jax.P("Y", None)))
    assert len(planned) == 1


@given(programs())
def test_a_plan_by_place_is_the_plan_under_the_names_of_the_text(case):
    """What is planned under other names, and named again, is what is planned at once: steps, values and text."""
    program = parse(case.text, mesh=case.mesh, dims=case.dims)
    placed, names = by_place(program)
    assert names and not {array.name for array in placed.inputs} & {array.name for array in program.inputs}
    once, shared = (planned_by(each).schedule for each in (program, placed))
    again = named(shared, program, names)
    assert (again.block, again.by, again.together) == (once.block, once.by, once.together)
    assert str(again.program) == str(once.program)


def test_a_program_with_a_loop_keeps_its_names():
    program = parse("for N { h[B, D] = relu(h[B, D]) }", dims={"N": 3, "B": 4, "D": 4})
    placed, names = by_place(program)
    assert placed is program and not names
