"""Eight simulated devices, started before any test of this folder touches JAX."""

import jax
import pytest

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(autouse=True)
def no_mesh_is_left_behind():
    yield
    assert jax.sharding.get_abstract_mesh().empty, "a test left a mesh in force"
