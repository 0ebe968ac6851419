"""What is drawn for rewrites, of every type: elements are told apart, and what is right in a type passes in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardc import simulate
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Sharding
from shardc.testing import Moves, assert_rewrite
from shardc.testing.values import drawn, draws_of

MESH = Mesh.of({"X": 4})


def of(name, axes=(), unreduced=()):
    return Array("A", ("I", "J"), (8, 16), Sharding((axes, ()), frozenset(unreduced)), DTYPES[name])


@pytest.mark.instant
@pytest.mark.parametrize("name", DTYPES)
def test_no_two_elements_of_all_inputs_are_alike_in_all_draws(name):
    arrays = [of(name)] * 3
    draws = [
        np.concatenate([drawn(array, place, draw).reshape(-1) for place, array in enumerate(arrays)])
        for draw in range(draws_of(arrays))
    ]
    assert len(set(zip(*draws, strict=True))) == 3 * 8 * 16
    assert all(len(set(each)) > 1 for each in draws)


@pytest.mark.instant
@pytest.mark.parametrize("name", DTYPES)
def test_what_is_drawn_is_exact_in_its_type_and_so_are_its_parts(name):
    array, parts = of(name), of(name, unreduced="X")
    for draw in range(draws_of([array])):
        whole = drawn(array, 0, draw)
        with jax.enable_x64(True):
            kept = np.asarray(jnp.asarray(whole, jnp.dtype(array.dtype.jax))).astype(whole.dtype)
        assert np.array_equal(kept, whole), name
        if array.dtype.adds and not name.startswith("u"):  # whose parts go past 0, and come back
            blocks = simulate.scatter(whole, parts, MESH, draw)
            with jax.enable_x64(True):
                kept = np.asarray(jnp.asarray(blocks, jnp.dtype(array.dtype.jax))).astype(blocks.dtype)
            assert np.array_equal(kept, blocks), name


def gathered(order):
    def local(a):
        return jax.lax.all_gather(a, order, tiled=True)

    def function(a):
        return jax.shard_map(local, in_specs=jax.P(("X", "Y")), out_specs=jax.P(), check_vma=False)(a)

    return function


BOOLS = {  # two functions of true and false that are not the same
    "or, and": ("or(M: bool[I_X], N: bool[I_X])", "and(M: bool[I_X], N: bool[I_X])"),
    "not, as it is": ("not(M: bool[I_X])", "M: bool[I_X]"),
    "the first, the second": ("M: bool[I_X]; D[I_X] = N: bool[I_X]", "N: bool[I_X]; D[I_X] = M: bool[I_X]"),
}


@pytest.mark.parametrize("name", BOOLS)
def test_functions_of_true_and_false_are_told_apart(name):
    before, after = BOOLS[name]
    with pytest.raises(AssertionError, match=r": [01] before, [01] after"):
        assert_rewrite(f"C[I_X] = {before}", f"C[I_X] = {after}")


@pytest.mark.devices
def test_the_order_of_axes_is_seen_in_true_and_false():
    assert_rewrite(gathered(("X", "Y")), gathered(("X", "Y")), inputs=["M: bool[I_XY]"], max_size=2)
    with pytest.raises(AssertionError, match=r"^on mesh X=2, Y=2; I=4"):
        assert_rewrite(gathered(("X", "Y")), gathered(("Y", "X")), inputs=["M: bool[I_XY]"])


@pytest.mark.devices
@pytest.mark.instant
@pytest.mark.parametrize("name", [name for name, kind in DTYPES.items() if not kind.is_wide])
def test_nothing_done_is_nothing_done_in_every_type(name):
    assert_rewrite(Moves(f"A: {name}[I_X]"), lambda a: a, max_size=2)
