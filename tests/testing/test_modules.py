"""Passes over StableHLO: those that change nothing pass, and what is planted is seen, in modules that JAX wrote."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.layout import Layout, with_layout_constraint

from shardc.errors import ShardcError
from shardc.testing import assert_same_module

pytestmark = pytest.mark.devices

P = jax.P
ROWS, COLUMNS = P("X"), P(None, "X")


def module(body, ins, outs):
    """What JAX lowers a function of 4×4 blocks to, on X=2, Y=2."""
    mesh = jax.make_mesh((2, 2), ("X", "Y"))
    with jax.set_mesh(mesh):
        mapped = jax.jit(jax.shard_map(body, in_specs=ins, out_specs=outs, check_vma=False))
        given = [jax.ShapeDtypeStruct((4, 4), jnp.float32, sharding=jax.NamedSharding(mesh, spec)) for spec in ins]
        return mapped.lower(*given).as_text()


def gathered_and_sliced(a):
    whole = jax.lax.all_gather(a, "X", axis=0, tiled=True)
    size = whole.shape[1] // 2
    return jax.lax.dynamic_slice_in_dim(whole, jax.lax.axis_index("X") * size, size, axis=1)


def scattered_and_gathered(a, b):
    part = jax.lax.psum_scatter(a @ b, "X", scatter_dimension=0, tiled=True)
    return jax.lax.all_gather(part, "X", tiled=True)


SAME = {
    "an AllGather and a Slice": (
        (gathered_and_sliced, (ROWS,), COLUMNS),
        (lambda a: jax.lax.all_to_all(a, "X", 1, 0, tiled=True), (ROWS,), COLUMNS),
    ),
    "an AllReduce in two": (
        (lambda a, b: jax.lax.psum(a @ b, "X"), (COLUMNS, ROWS), P()),
        (scattered_and_gathered, (COLUMNS, ROWS), P()),
    ),
    "a permute past a function": (
        (lambda a: jnp.tanh(jax.lax.ppermute(a, "X", [(0, 1), (1, 0)])), (ROWS,), ROWS),
        (lambda a: jax.lax.ppermute(jnp.tanh(a), "X", [(0, 1), (1, 0)]), (ROWS,), ROWS),
    ),
    "a maximum of maxima": (
        (lambda a: jax.lax.pmax(a, ("X", "Y")), (ROWS,), P()),
        (lambda a: jax.lax.pmax(jax.lax.pmax(a, "X"), "Y"), (ROWS,), P()),
    ),
    "a sum past a sum": (
        (lambda a, b: jax.lax.psum(a + b, "X"), (ROWS, ROWS), P()),
        (lambda a, b: jax.lax.psum(a, "X") + jax.lax.psum(b, "X"), (ROWS, ROWS), P()),
    ),
}
WRONG = {
    "a sum past a function": (
        (lambda a: jnp.tanh(jax.lax.psum(a, "X")), (ROWS,), P()),
        (lambda a: jax.lax.psum(jnp.tanh(a), "X"), (ROWS,), P()),
    ),
    "a sum twice": (
        (lambda a: jax.lax.psum(a, "X"), (ROWS,), P()),
        (lambda a: jax.lax.psum(jax.lax.psum(a, "X"), "X"), (ROWS,), P()),
    ),
    "over another axis": (
        (lambda a: jax.lax.psum(a, "X"), (P("X", "Y"),), P(None, "Y")),
        (lambda a: jax.lax.psum(a, "Y"), (P("X", "Y"),), P(None, "Y")),
    ),
    "a scale left out": ((lambda a: a * 0.125, (ROWS,), ROWS), (lambda a: a * 1.0, (ROWS,), ROWS)),
    "the other dim": (
        (lambda a: jax.lax.all_gather(a, "X", axis=0, tiled=True), (P("X", "Y"),), P(None, "Y")),
        (lambda a: jax.lax.all_gather(a, "X", axis=1, tiled=True), (P("X", "Y"),), P(None, "Y")),
    ),
    "the outputs lie otherwise": ((lambda a: a, (ROWS,), ROWS), (lambda a: a, (ROWS,), COLUMNS)),
}


@pytest.mark.parametrize("name", SAME)
def test_a_right_pass_is_passed(name):
    before, after = (module(*each) for each in SAME[name])
    assert_same_module(before, after)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_pass_is_seen(name):
    before, after = (module(*each) for each in WRONG[name])
    with pytest.raises(AssertionError, match=r"device|shape|lie") as caught:
        assert_same_module(before, after)
    said = str(caught.value)
    assert "outputs lie as" in said or ("\n  before: %" in said and "\n  after:  %" in said)


def test_what_is_told_how_to_lie_is_the_same():
    told = module(lambda a: with_layout_constraint(a * 2, Layout((0, 1))), (ROWS,), ROWS)
    assert "@LayoutConstraint" in told
    assert_same_module(module(lambda a: a * 2, (ROWS,), ROWS), told)
    with pytest.raises(AssertionError):
        assert_same_module(module(lambda a: a * 3, (ROWS,), ROWS), told)


def test_what_is_not_followed_is_refused():
    sorting = module(lambda a: jnp.sort(a), (ROWS,), ROWS)
    with pytest.raises(ShardcError, match="not followed") as caught:
        assert_same_module(sorting, sorting)
    assert caught.value.code == "SHC312"
