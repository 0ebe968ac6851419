"""What is drawn for rewrites, of every type: elements are told apart, and what is right in a type passes in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc import simulate
from shardc.errors import ShardcError
from shardc.ir.collectives import Slice
from shardc.ir.dtypes import DTYPES
from shardc.ir.mesh import Mesh
from shardc.ir.sharding import Array, Sharding
from shardc.testing import (
    Moves,
    assert_equivalent,
    assert_matches_reference,
    assert_rewrite,
    conditions,
    holds_on,
)
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


@pytest.mark.instant
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


WITH_NAN = {  # statements that leave NaN of some numbers, and the same in two
    "log": "log",
    "sqrt": "sqrt",
    "a reciprocal of a root": "rsqrt",
}


@pytest.mark.parametrize("name", WITH_NAN)
@pytest.mark.parametrize("kind", ["f32", "bf16", "f8_e4m3fn"])
def test_nan_beside_nan_is_the_same_and_beside_a_number_is_not(name, kind):
    function = WITH_NAN[name]
    once, in_two = f"B[I] = {function}(A: {kind}[I_X])", f"C[I] = A: {kind}[I_X]; B[I] = {function}(C[I])"
    assert_rewrite(once, in_two)
    assert conditions(once, in_two) == "always"
    with pytest.raises(AssertionError, match="before, nan after"):
        assert_rewrite(f"B[I] = {function}(abs(A: {kind}[I_X]))", once)


@pytest.mark.parametrize("kind", ["f8_e4m3fn", "f8_e5m2", "bf16", "f16"])
def test_numbers_of_several_inputs_fit_a_narrow_type(kind):
    assert_rewrite(f"C[I] = A: {kind}[I_X] + B: {kind}[I_X]", f"C[I] = B: {kind}[I_X] + A: {kind}[I_X]")


def clipped(bound):
    return f"D[I] = relu(A: f32[I_X] - {bound})"


SAID = r"every element of the results is (nan|0|0\.0), which tells nothing"
TELL_NOTHING = {  # what is compared is one value throughout
    "NaN": lambda: assert_rewrite("B[I] = log(-abs(A: f32[I_X]) - 1)", "B[I] = sqrt(-abs(A: f32[I_X]) - 1)"),
    "0": lambda: assert_rewrite(clipped(10**8), clipped(10**9)),
    "0, on a mesh": lambda: assert_rewrite(clipped(10**8), clipped(10**9), mesh={"X": 2}),
    "0, asked when": lambda: conditions(clipped(10**8), clipped(10**9)),
    "0, asked on a mesh": lambda: holds_on(clipped(10**8), clipped(10**9), {"X": 2}),
    "0 in two results": lambda: assert_rewrite(*[f"{clipped(10**n)}; E[I] = D[I]" for n in (8, 9)]),
    "0 of programs": lambda: assert_equivalent(clipped(10**8), clipped(10**9)),
}
TELL_NOTHING_ON_DEVICES = {
    "0 of functions": lambda: assert_rewrite(lambda a: jnp.minimum(a * a, 0), lambda a: a * 0, inputs="A[I_X]"),
    "0 of a function and a program": lambda: assert_matches_reference(
        lambda a: jax.nn.relu(a - 1e9), "D[I_X] = relu(A[I_X] - 100000000)"
    ),
    "NaN of a function and a program": lambda: assert_matches_reference(
        lambda a: jnp.sqrt(-jnp.abs(a) - 1), "D[I_X] = log(-abs(A[I_X]) - 1)"
    ),
}


@pytest.mark.parametrize("name", TELL_NOTHING)
def test_what_is_one_value_throughout_tells_nothing(name):
    with pytest.raises(ShardcError, match=SAID) as caught:
        TELL_NOTHING[name]()
    assert caught.value.code == "SHC001"


@pytest.mark.devices
@pytest.mark.instant
@pytest.mark.parametrize("name", TELL_NOTHING_ON_DEVICES)
def test_what_devices_leave_as_one_value_throughout_tells_nothing(name):
    with pytest.raises(ShardcError, match=SAID) as caught:
        TELL_NOTHING_ON_DEVICES[name]()
    assert caught.value.code == "SHC001"


@pytest.mark.devices
def test_one_number_that_depends_on_the_inputs_tells_something():
    assert_matches_reference(lambda a: a.sum(), "S[] = sum_I(A[I_X])")
    assert_rewrite("S[] = sum_I(A[I_X])", lambda a: a.sum())
    assert_equivalent("S[] = sum_I(A[I_X])", "B[I] = A[I_X]; S[] = sum_I(B[I])")
    assert_equivalent("S[] = sum_I(A[I_X])", shardc.plan("S[] = sum_I(A[I_X])", mesh={"X": 2}, dtype="f32", dims="I=4"))


LAID = jax.P("X")
TYPED = {  # a type said in the text, of an array or of all, for a side that says none
    "an array's, for a function": ("B[I_X] = A: {}[I]", lambda a: jax.reshard(a, LAID)),
    "all arrays', for a function": ("dtype {}; B[I_X] = A[I]", lambda a: jax.reshard(a, LAID)),
    "all arrays', for moves": ("dtype {}\nB[I_X] = A[I]", Moves("A[I]", Slice(("X",), 0))),
    "all arrays', for a text": ("dtype {}; B[I_X] = A[I]", "B[I_X] = A[I]"),
}


@pytest.mark.devices
@pytest.mark.parametrize("said", TYPED)
@pytest.mark.parametrize("name", DTYPES)
def test_the_type_that_a_text_says_is_that_of_the_side_beside_it(name, said):
    text, other = TYPED[said][0].format(name), TYPED[said][1]
    assert_rewrite(text, other, max_size=2)
    assert_rewrite(other, text, max_size=2)
    assert conditions(text, other, max_size=2) == "always"


@pytest.mark.devices
def test_inputs_of_other_types_are_other_inputs():
    with pytest.raises(AssertionError, match=r"the inputs differ: A: f32\[I_X\] before, A: bf16\[I_X\] after"):
        assert_rewrite("B[I] = A: f32[I_X]", lambda a: a, inputs="A: bf16[I_X]")
    with pytest.raises(AssertionError, match=r"the inputs differ: A: f32\[I_X\] before, A\[I_X\] after"):
        assert_rewrite("B[I] = A: f32[I_X]", Moves("A[I_X]"))
    with pytest.raises(AssertionError, match=r"the inputs differ: A: f32\[I_X\] before, A: f16\[I_X\] after"):
        assert_rewrite("dtype f32; B[I] = A[I_X]", "dtype f16; B[I] = A[I_X]")
