"""Uses of `shardc.testing` that are wrong, or that would prove nothing: none is silent, none is a bare traceback."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from shardc.errors import ShardcError
from shardc.ir.collectives import AllGather, Slice
from shardc.ir.mesh import Mesh
from shardc.testing import (
    Moves,
    assert_cost_model,
    assert_matches_reference,
    assert_rewrite,
    conditions,
    found_when,
)
from shardc.testing.rewrites import axes_in

X2, PRODUCT = Mesh.of({"X": 2}), "A[I_X, J] · B[J, K] → C[I_X, K]"
DOUBLED, ONCE = "B[I] = A[I_X] * 2", "B[I] = AllGather_X(A[I_X])"


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("S[B_X, T] = softmax_T(Q[B_X, T])", "X"),
        ("C[I, J_X] = ReduceScatter_{X,J}(A[I, J]{U_X})", "X"),
        ("C[I, K]{U_X} = A[I, J_X] ·_LOCAL B[J_X, K]", "X"),
        ("C[I] = A[I, J] ·_J B[J]; D[I] = AllReduce_XY(C[I])", "XY"),
        ("A[I_{XY}, J]{U_Z} → A[I, J_X]{U.W}", "WXYZ"),
    ],
)
def test_a_dim_along_which_something_is_done_is_no_axis(text, axes):
    assert axes_in([text]) == tuple(axes)


def test_the_mesh_of_a_failure_has_no_axis_that_is_a_dim():
    with pytest.raises(AssertionError, match=r"on mesh X=1; B=1, T=1: device \(X=0\)"):
        assert_rewrite("S[B_X] = sum_T(Q[B_X, T])", "S[B_X] = sum_T(Q[B_X, T]) * 2")


REFUSED = {
    "no rewrite": lambda: assert_rewrite([], "A[I_X] → A[I]"),
    "no device an axis": lambda: assert_rewrite(DOUBLED, ONCE, max_size=0),
    "no device an axis, asked when": lambda: conditions(DOUBLED, ONCE, max_size=0),
    "a mesh that is a number": lambda: assert_rewrite(DOUBLED, ONCE, mesh=4),
    "a move that is a word": lambda: Moves("A[I_X]", "AllGather"),
    "an array that is a number": lambda: Moves(7),
    "no meshes": lambda: found_when("AllGather_p(d)", "AllGather_p(d)", []),
    "no function": lambda: assert_matches_reference(3, PRODUCT),
    "prices on one device": lambda: assert_cost_model(lambda move, size: float(size), Mesh.of({"X": 1})),
    "prices of no bytes": lambda: assert_cost_model(lambda move, size: -1.0, X2, sizes=()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_prove_nothing_is_refused(name):
    with pytest.raises(ShardcError) as caught:
        REFUSED[name]()
    assert caught.value.help


@pytest.mark.parametrize("found", [None, "1", True, float("nan")])
def test_a_price_that_is_no_number_is_named(found):
    with pytest.raises(AssertionError, match=r"a price is .*(nan|'1'|None|True)"):
        assert_cost_model(lambda move, size: found, {"X": 2})


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_price_of_one_move_that_is_no_number_of_seconds_is_named(number):
    with pytest.raises(AssertionError, match="Slice"):
        assert_cost_model(lambda move, size: number if isinstance(move, Slice) else 0.0, X2)


@pytest.mark.parametrize("found", [None, np.zeros((2, 4))])
def test_a_result_that_is_no_array_of_jax_is_named(found):
    with pytest.raises(AssertionError, match=r"on mesh X=1; .*: result 0 is (NoneType|ndarray)"):
        assert_matches_reference(lambda a, b: found, PRODUCT)


def test_one_text_of_inputs_is_one_input():
    def twice(a):
        return a + a

    with pytest.raises(AssertionError, match="1 before, 2 after"):
        assert_rewrite(lambda a: a, twice, inputs="A[I_X]")
    assert_rewrite(jax.jit(lambda a: 2 * a), twice, inputs="A[I_X]")


def test_a_difference_on_one_device_or_before_sizes_are_known_is_said_so():
    with pytest.raises(AssertionError, match=r"^on one device; I=1: device"):
        assert_rewrite("B[I] = A[I] * 2", "B[I] = A[I]")
    with pytest.raises(AssertionError, match=r"^on mesh X=1, Y=1: the axes"):
        assert_rewrite(Moves("A[I_X]", AllGather(("Y",), 0)), Moves("A[I_X]"))


ALONE = """
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 1)
from shardc.errors import ShardcError
from shardc.testing import assert_matches_reference, assert_rewrite
uses = (
    lambda: assert_rewrite(lambda a: a, lambda a: a, inputs=["A[I_X]"]),
    lambda: assert_matches_reference(lambda a, b: a @ b, "A[I_X, J] · B[J, K] → C[I_X, K]"),
)
for use in uses:
    try:
        use()
    except ShardcError as error:
        assert "jax_num_cpu_devices" in error.help
    else:
        raise SystemExit("passed on one device")
"""


def test_functions_are_not_compared_on_one_device_alone():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
