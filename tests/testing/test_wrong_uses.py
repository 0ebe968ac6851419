"""Uses of `shardc.testing` that are wrong, or that would prove nothing: none is silent, none is a bare traceback."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, find, settings

from shardc.errors import ShardcError
from shardc.ir.collectives import (
    AllGather,
    AllToAll,
    DirectExchange,
    JointExchange,
    JointGather,
    JointScatter,
    ReduceScatter,
    Slice,
    UnevenExchange,
)
from shardc.ir.mesh import Mesh
from shardc.testing import (
    IDENTITIES,
    LAWS,
    Law,
    Moves,
    all_shardings,
    assert_cost_model,
    assert_equivalent,
    assert_matches_reference,
    assert_rewrite,
    assert_same_module,
    assert_schedule_legal,
    backward_programs,
    conditions,
    counterexample,
    found_when,
    holds_on,
    is_transpose,
    loops,
    matmuls,
    meshes,
    partial_programs,
    paths,
    programs,
    reshards,
    shardings,
)
from shardc.testing.rewrites import axes_in

X2, PRODUCT = Mesh.of({"X": 2}), "A[I_X, J] · B[J, K] → C[I_X, K]"
DOUBLED, ONCE = "B[I] = A[I_X] * 2", "B[I] = AllGather_X(A[I_X])"


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("S[B_X, T] = softmax_T(Q[B_X, T])", "X"),
        ("C[I, J_X] = ReduceScatter_{X,J}(A[I, J]{U_X})", "X"),
        ("C[I, K]{U_X} = A[I, J_X] ·_LOCAL B[J_X, K]", "X"),
        ("C[I] = A[I, J] ·_J B[J]; D[I] = AllReduce_XY(C[I])", "XY"),
        ("A[I_{XY}, J]{U_Z} → A[I, J_X]{U.W}", "WXYZ"),
        ("mesh X=2, Y=3\nB[I] = A[I_X]; C[I] = B", "XY"),
    ],
)
def test_a_dim_along_which_something_is_done_is_no_axis(text, axes):
    assert axes_in([text]) == tuple(axes)


def test_axes_of_a_mesh_that_a_text_declares_are_tried_whatever_their_names():
    """They were passed over, and all was compared on one device."""
    text = "mesh data=2\nB[I_data] = A[I_data]"
    assert axes_in([text, "mesh model=4, data=2; B[I] = A[I]"]) == ("data", "model")
    wrong = lambda a: a * jax.sharding.get_abstract_mesh().size  # noqa: E731
    with pytest.raises(AssertionError, match=r"^on mesh data=2; I=2: device \(data=[01]\)"):
        assert_rewrite(text, wrong)
    with pytest.raises(AssertionError, match=r"^on mesh data=2; I=4: device \(data=[01]\)"):
        assert_matches_reference(wrong, text)


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
    "prices of a word": lambda: assert_cost_model(lambda move, size: 0.0, X2, sizes=("1",)),
    "prices that are no function": lambda: assert_cost_model(1.0, X2),
    "prices of an array of no dims": lambda: assert_cost_model(lambda move, size: 0.0, X2, rank=0),
    "a move that is a class": lambda: Moves("A[I_X]", AllGather),
    "axes that are a word": lambda: Moves("A[I_X]", AllGather("X", 0)),
    "axes that are a list": lambda: Moves("A[I_X]", AllGather(["X"], 0)),
    "a dim that is a word": lambda: Moves("A[I_X]", AllGather(("X",), "I")),
    "a dim that is a truth value": lambda: Moves("A[I, J_X]", AllGather(("X",), True)),
    "parts that are no pairs": lambda: Moves("A[I_X, J_Y]", JointGather((0, 1))),
    "more devices than there are numbers": lambda: assert_rewrite(DOUBLED, ONCE, max_size="4"),
    "half a device": lambda: assert_rewrite(DOUBLED, ONCE, max_size=2.5),
    "inputs that are numbers": lambda: assert_rewrite(abs, abs, inputs=[3]),
    "functions that leave nothing": lambda: assert_rewrite(lambda a: None, lambda a: None, inputs="A[I_X]"),
    "a mesh that is a number, asked when": lambda: conditions(DOUBLED, ONCE, mesh=3),
    "a mesh with sizes, asked when": lambda: conditions(DOUBLED, ONCE, mesh={"X": 2}),
    "a mesh with sizes as text, asked when": lambda: conditions(DOUBLED, ONCE, mesh="X=2"),
    "a mesh, asked when": lambda: conditions(DOUBLED, ONCE, mesh=X2),
    "a mesh of JAX, asked when": lambda: conditions(DOUBLED, ONCE, mesh=jax.sharding.AbstractMesh((2,), ("X",))),
    "functions without inputs, asked when": lambda: conditions(abs, abs),
    "functions without inputs, on one mesh": lambda: holds_on(abs, abs, {"X": 2}),
    "inputs that are numbers, asked when": lambda: conditions(abs, abs, inputs=[3]),
    "sizes that are a number": lambda: holds_on(DOUBLED, ONCE, 7),
    "sizes that are names": lambda: holds_on(DOUBLED, ONCE, ["X"]),
    "a law of numbers": lambda: Law(3, 4),
    "a law of no moves": lambda: Law("", ""),
    "a law of a move misspelled": lambda: Law("AllRedce_p", "AllReduce_p"),
    "a law of another letter": lambda: Law("AllReduce_x", "AllReduce_x"),
    "a law of no letter": lambda: Law("AllReduce", "AllReduce"),
    "a law of a gather along no dim": lambda: Law("AllGather_p", "AllReduce_p"),
    "a law of a gather along two dims": lambda: Law("AllGather_p(d,e)", "AllReduce_p"),
    "a law of a bracket left open": lambda: Law("AllGather_p(d", ""),
    "a law of statements": lambda: Law("B[I] = AllGather_X(A[I_X])", ""),
    "a law of a permute of one group": lambda: Law("CollectivePermute_p(d)", ""),
    "a law of an exchange from nowhere": lambda: Law("JointExchange_pq(d,e)", ""),
    "a law of a gather of three groups": lambda: Law("JointGather_pqr(d,e)", ""),
    "a law where nothing known holds": lambda: Law("AllReduce_p", "AllReduce_p", when="it rains"),
    "a law where letters are that it has not": lambda: Law("AllReduce_p", "AllReduce_p", when="p = q"),
    "a law that is text": lambda: counterexample("AllReduce_p"),
    "a law that is none": lambda: counterexample(None),
    "a law that is an identity": lambda: counterexample(IDENTITIES[0]),
    "a law on no meshes": lambda: counterexample(LAWS[0], []),
    "a law on a mesh": lambda: counterexample(LAWS[0], X2),
    "a law on sizes alone": lambda: counterexample(LAWS[0], {"X": 2}),
    "a law of arrays of no dims": lambda: counterexample(LAWS[0], rank=0),
    "a law of arrays of five dims": lambda: counterexample(LAWS[0], rank=5),
    "a law that is legal nowhere": lambda: counterexample(Law("AllReduce_p; AllReduce_p", "")),
    "a law where it is never legal": lambda: counterexample(Law("AllToAll_p(d,e)", "", when="d = e")),
    "when, of numbers": lambda: found_when(3, 4),
    "when, of no move": lambda: found_when("AllGather_p(d)", "Foo"),
    "a transpose of numbers": lambda: is_transpose(3, 4),
    "a transpose that is no move": lambda: is_transpose("AllGather_p(d)", "Foo"),
    "a transpose of other letters": lambda: is_transpose("AllGather_p(d)", "ReduceScatter_q(d)"),
    "modules without text": lambda: assert_same_module("", ""),
    "modules that are none": lambda: assert_same_module(None, None),
    "modules that are words": lambda: assert_same_module("hello", "hello"),
    "modules without a function": lambda: assert_same_module("module {\n}", "module {\n}"),
    "modules that are cut off": lambda: assert_same_module(MODULE[:-10], MODULE[:-10]),
    "modules that return nothing": lambda: assert_same_module(*[MODULE.replace("return %0 :", "return :")] * 2),
    "modules that return what is not there": lambda: assert_same_module(*[MODULE.replace("n %0", "n %9")] * 2),
    "equivalent numbers": lambda: assert_equivalent(3, PRODUCT),
    "equivalents of a seed that is a word": lambda: assert_equivalent(PRODUCT, PRODUCT, seed="s"),
    "functions and no axes": lambda: assert_rewrite(abs, abs, inputs="A[I]"),
    "a function and a program without axes": lambda: assert_matches_reference(abs, "A[I] → A[I]"),
    "a schedule that is a number": lambda: assert_schedule_legal(3),
    "shardings of fewer dims than none": lambda: list(all_shardings(X2, -1)),
    "a program that is a number": lambda: assert_matches_reference(abs, 3),
}
MODULE = """module attributes {mhlo.num_partitions = 2 : i32} {
  func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {
    return %0 : tensor<4xf32>
  }
}"""


@pytest.mark.instant
@pytest.mark.parametrize("name", REFUSED)
def test_what_would_prove_nothing_is_refused(name):
    with pytest.raises(ShardcError) as caught:
        REFUSED[name]()
    assert caught.value.help


@pytest.mark.instant
@pytest.mark.parametrize("found", [None, "1", True, float("nan")])
def test_a_price_that_is_no_number_is_named(found):
    with pytest.raises(AssertionError, match=r"a price is .*(NaN|'1'|None|True)"):
        assert_cost_model(lambda move, size: found, {"X": 2})


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_price_of_one_move_that_is_no_number_of_seconds_is_named(number):
    with pytest.raises(AssertionError, match="Slice"):
        assert_cost_model(lambda move, size: number if isinstance(move, Slice) else 0.0, X2)


@pytest.mark.parametrize("found", [None, np.zeros((2, 4))])
def test_a_result_that_is_no_array_of_jax_is_named(found):
    with pytest.raises(AssertionError, match=r"on mesh X=1; .*: result 0 is (NoneType|ndarray)"):
        assert_matches_reference(lambda a, b: found, PRODUCT)


@pytest.mark.parametrize("found", [3, np.zeros(2)])
def test_a_result_of_a_rewrite_that_is_no_array_of_jax_is_named(found):
    with pytest.raises(AssertionError, match=r"on mesh X=1; I=1: result 0 is (int|ndarray), and no array"):
        assert_rewrite(lambda a: found, lambda a: a, inputs="A[I_X]")


def test_one_text_of_inputs_is_one_input():
    def twice(a):
        return a + a

    with pytest.raises(AssertionError, match="1 before, 2 after"):
        assert_rewrite(lambda a: a, twice, inputs="A[I_X]")
    assert_rewrite(jax.jit(lambda a: 2 * a), twice, inputs="A[I_X]")


def test_a_difference_on_one_device_or_before_sizes_are_known_is_said_so():
    with pytest.raises(AssertionError, match=r"^on one device; I=1: device"):
        assert_rewrite("B[I] = A[I] * 2", "B[I] = A[I]")
    with pytest.raises(
        AssertionError, match=r"^on mesh X=1, Y=1: AllGather\(axes=\('Y',\), dim=0\) of A\[I_X\]: the axes"
    ):
        assert_rewrite(Moves("A[I_X]", AllGather(("Y",), 0)), Moves("A[I_X]"))


XY = ("X", "Y")
NO_DIMS = {  # what is given, the move, what it lacks
    "a gather": ("A[I_X, J]", AllGather(("X",), 5), "no dim 5"),
    "a gather of the last": ("A[I, J_X]", AllGather(("X",), -1), "no dim -1"),
    "a slice": ("A[I, J]", Slice(("X",), 2), "no dim 2"),
    "a slice of the last": ("A[I, J]", Slice(("X",), -1), "no dim -1"),
    "a scatter": ("A[I, J]{U_X}", ReduceScatter(("X",), 7), "no dim 7"),
    "an exchange to nowhere": ("A[I_X, J]", AllToAll(("X",), 0, 2), "no dim 2"),
    "an exchange to the last": ("A[I_X, J]", AllToAll(("X",), 0, -1), "no dim -1"),
    "an exchange from the last but one": ("A[I_X, J]", AllToAll(("X",), -2, 1), "no dim -2"),
    "a gather of two dims": ("A[I_X, J_Y]", JointGather(((0, ("X",)), (5, ("Y",)))), "no dim 5"),
    "a scatter of two dims": ("A[I, J]{U_XY}", JointScatter(((-1, ("X",)), (1, ("Y",)))), "no dim -1"),
    "an exchange of too few dims": ("A[I_XY, J, K]", JointExchange(XY, ((), XY)), "not of 2 dims"),
    "pieces of too few dims": ("A[I_X, J_Y]", DirectExchange(XY, (("Y", "X"),), 2), "not of 1 dim"),
    "unequal pieces of too many dims": ("A[I_X]", UnevenExchange(XY, (("Y",), ()), 2, (2,)), "not of 2 dims"),
    "an axis of no mesh": ("A[I_X, J]", Slice(("Q",), 0), "no axis `Q`"),
    "an axis of no mesh, of a dim": ("A[I_X]", UnevenExchange(("X",), (("Q",),), 1, (1,)), "no axis `Q`"),
    "an axis twice": ("A[I_X, J]", Slice(("Y", "Y"), 0), "an axis twice"),
}


@pytest.mark.instant
@pytest.mark.parametrize("name", NO_DIMS)
def test_a_move_along_what_is_not_there_is_illegal_and_says_of_what(name):
    source, move, lacks = NO_DIMS[name]
    with pytest.raises(AssertionError) as caught:
        assert_rewrite(Moves(source, move), Moves(source), mesh={"X": 2, "Y": 2})
    said = str(caught.value)
    assert said.startswith(f"on mesh X=2, Y=2: {move} of {source}: ") and lacks in said, said


def test_the_array_that_an_illegal_move_is_given_is_the_one_that_moves_before_it_leave():
    moves = Moves("A[I_XY]", AllGather(("Y",), 0), AllGather(("Y",), 0))
    with pytest.raises(AssertionError, match=r"dim=0\) of A\[I_X\]: the axes are not the minor axes"):
        assert_rewrite(moves, Moves("A[I_XY]"))


def fails(*given):
    raise ZeroDivisionError("of one's own")


RAISING = {  # a use, and what the note says
    "a function beside a text": (lambda: assert_rewrite(fails, ONCE), "in fails, on mesh X=1; I=1, given A[I_X]"),
    "a text beside a function": (lambda: assert_rewrite(ONCE, fails), "in fails, on mesh X=1; I=1, given A[I_X]"),
    "when": (lambda: conditions(fails, ONCE), "in fails, on mesh X=1; I=1, given A[I_X]"),
    "a function beside a program": (
        lambda: assert_matches_reference(fails, PRODUCT, mesh={"X": 2}, dims={"I": 2, "J": 3, "K": 4}),
        "in fails, on mesh X=2; I=2, J=3, K=4, given A[I_X, J], B[J, K]",
    ),
    "a price": (
        lambda: assert_cost_model(fails, X2),
        "in fails, of Slice(axes=('X',), dim=0) and 4 bytes, on mesh X=2",
    ),
}


@pytest.mark.instant
@pytest.mark.parametrize("name", RAISING)
def test_an_exception_of_a_users_function_is_noted_with_its_mesh_and_sizes(name):
    use, note = RAISING[name]
    with pytest.raises(ZeroDivisionError, match="of one's own") as caught:
        use()
    assert note in caught.value.__notes__


ODD = {  # a strategy, and what its refusal says
    "no axes": (lambda: meshes(max_axes=0), "max_axes is 0"),
    "more axes than a mesh has": (lambda: paths(max_axes=9), "max_axes is 9"),
    "axes that are a word": (lambda: matmuls(max_axes="2"), "max_axes is '2'"),
    "axes that are a mesh": (lambda: paths(X2), "max_axes is Mesh"),
    "no devices": (lambda: programs(max_size=0), "max_size is 0"),
    "devices without end": (lambda: reshards(max_size=None), "max_size is None"),
    "more devices than a mesh has": (lambda: loops(max_axes=8, max_size=9), "43046721 devices"),
    "more axes at least than at most": (lambda: meshes(min_axes=4), "max_axes is 3"),
    "more devices at least than at most": (lambda: meshes(min_size=5), "max_size is 4"),
    "no device at least": (lambda: meshes(min_size=0), "min_size is 0"),
    "no dims of a path": (lambda: paths(max_rank=0), "max_rank is 0"),
    "more dims than have names": (lambda: reshards(max_rank=5), "max_rank is 5"),
    "dims without end": (lambda: paths(max_rank=None), "max_rank is None"),
    "fewer moves than none": (lambda: paths(max_moves=-1), "max_moves is -1"),
    "no statements": (lambda: partial_programs(max_statements=0), "max_statements is 0"),
    "no devices of partial sums": (lambda: partial_programs(max_devices=0), "max_devices is 0"),
    "many devices of partial sums": (lambda: partial_programs(max_devices=10**6), "max_devices is 1000000"),
    "axes of partial sums": (lambda: partial_programs(max_axes=9), "max_axes is 9"),
    "a mesh that is text": (lambda: backward_programs(mesh=2), "mesh is a int"),
    "a sharding of no mesh": (lambda: shardings(None, 2), "None is no mesh"),
    "no dims of a sharding": (lambda: shardings(X2, -1), "rank is -1"),
    "dims that are a word": (lambda: shardings(X2, "2"), "rank is '2'"),
    "an axis that is forbidden and not there": (lambda: shardings(X2, 2, forbidden=["Q"]), "`Q` is forbidden"),
    "what is forbidden is a number": (lambda: shardings(X2, 2, forbidden=3), "forbidden is 3"),
    "nowhere for an axis": (lambda: shardings(X2, 0, unreduced=False, copies=False), "no dim for `X`"),
}
ONCE_ONLY = settings(max_examples=1, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.instant
@pytest.mark.parametrize("name", ODD)
def test_what_no_strategy_can_draw_is_refused(name):
    made, said = ODD[name]
    with pytest.raises(ShardcError) as caught:
        find(made(), lambda _: True, settings=ONCE_ONLY)
    assert said in caught.value.message and caught.value.help, caught.value


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
