"""Under jax.jit along Auto axes: JAX does not say where an array lies, and XLA brings it to where a program wants it.

What XLA puts before a program it joins with the program's own first moves. From every sharding of two dims over two
axes, to each other, by way of some that the program takes for given.
"""

import itertools

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

import shardc
from shardc.ir.sharding import Sharding, spell

ORDERS = [(), ("X",), ("Y",), ("X", "Y"), ("Y", "X")]
SHARDINGS = [Sharding.of(dims) for dims in itertools.product(ORDERS, ORDERS) if not set(dims[0]) & set(dims[1])]
HOST = np.arange(64, dtype=np.float32).reshape(8, 8)


def said(sharding):
    return spell(("I", "J"), sharding)


def placed(mesh, sharding):
    return jax.device_put(HOST, jax.NamedSharding(mesh, jax.P(*(axes or None for axes in sharding.dims))))


def mesh_of(*kinds):
    return jax.make_mesh((2, 2), ("X", "Y"), axis_types=kinds, devices=jax.devices()[:4])


@pytest.mark.parametrize("source", SHARDINGS, ids=said)
@pytest.mark.parametrize("kinds", [(AxisType.Explicit, AxisType.Auto), (AxisType.Auto, AxisType.Explicit)], ids=str)
def test_an_array_is_resharded_along_both(kinds, source):
    explicit = "XY"[kinds.index(AxisType.Explicit)]
    mesh = mesh_of(*kinds)
    with jax.set_mesh(mesh):
        for target in SHARDINGS:
            if any(explicit in axes[1:] for axes in target.dims):
                continue  # refused: JAX's types put Explicit axes first
            spec = jax.P(*(axes or None for axes in target.dims))
            found = jax.jit(lambda x, spec=spec: shardc.reshard(x, spec))(placed(mesh, source))
            assert found.sharding.is_equivalent_to(jax.NamedSharding(mesh, spec), 2), said(target)
            assert np.array_equal(found, HOST), said(target)


@pytest.mark.parametrize("source", SHARDINGS, ids=said)
def test_a_program_takes_an_array_that_lies_elsewhere(source):
    mesh = mesh_of(AxisType.Auto, AxisType.Auto)
    with jax.set_mesh(mesh):
        for given, target in itertools.islice(itertools.product(SHARDINGS[::3], SHARDINGS), 0, None, 2):
            if given != target:
                text = f"A{said(given)} → C{said(target)}"
                program = shardc.plan(text, mesh="X=2,Y=2", dims="I=8,J=8", dtype="f32").compile()
                assert np.array_equal(jax.jit(program)(placed(mesh, source)), HOST), text
