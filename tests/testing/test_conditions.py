"""When a rewrite holds: what a side is refused with is an answer, what a user's function raises is none."""

import jax
import pytest

import shardc
from shardc.errors import ShardcError
from shardc.ir.collectives import AllGather
from shardc.ir.operations import IllegalMove
from shardc.simulate import IllegalStep
from shardc.testing import Moves, assert_rewrite, conditions, holds_on

AS_IT_IS = Moves("A[I_X]")
ASKED = {  # ways to ask of two sides
    "assert_rewrite": assert_rewrite,
    "conditions": conditions,
    "holds_on": lambda before, after: holds_on(before, after, {"X": 2}),
}
ILLEGAL = {
    "text": "B[I] = AllGather_Y(A[I_X])",
    "moves": Moves("A[I_X]", AllGather(("Y",), 0)),
}
LEGAL = {"text": "B[I] = A[I_X]", "moves": AS_IT_IS, "a function": lambda a: a}


@pytest.mark.devices
@pytest.mark.instant
@pytest.mark.parametrize("legal", LEGAL)
@pytest.mark.parametrize("illegal", ILLEGAL)
def test_a_side_that_is_never_legal_never_holds(illegal, legal):
    assert conditions(ILLEGAL[illegal], LEGAL[legal]) == "never"
    assert conditions(LEGAL[legal], ILLEGAL[illegal]) == "never"
    with pytest.raises(AssertionError, match=r"^on mesh X=1, Y=1"):
        assert_rewrite(ILLEGAL[illegal], LEGAL[legal])


@pytest.mark.devices
@pytest.mark.parametrize("asked", ["assert_rewrite", "conditions"])
def test_a_function_that_keeps_its_mesh_is_told_what_to_do(asked):
    """It was said to hold where X = 1, the only mesh that it was run on."""
    kept = jax.shard_map(lambda a: a, in_specs=jax.P("X"), out_specs=jax.P("X"))
    with pytest.raises(ShardcError) as caught:
        ASKED[asked](AS_IT_IS, kept)
    assert caught.value.code == "SHC306" and "inside the function" in caught.value.help


RAISED = {
    "a refusal": ShardcError("SHC204", "of one's own"),
    "an illegal move": IllegalMove("of one's own"),
    "an illegal step": IllegalStep("of one's own"),
    "a number": ZeroDivisionError("of one's own"),
}


@pytest.mark.devices
@pytest.mark.instant
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", RAISED)
def test_what_a_users_function_raises_is_passed_on_whatever_it_is(name, asked):
    def fails(a):
        raise RAISED[name]

    for sides in ((fails, AS_IT_IS), (AS_IT_IS, fails), ("B[I_X] = A[I_X]", fails)):
        with pytest.raises(type(RAISED[name]), match="of one's own") as caught:
            ASKED[asked](*sides)
        assert "in fails, on mesh X=" in caught.value.__notes__[-1]


def gathered(order):
    def function(a):
        specs = {"in_specs": jax.P(("X", "Y")), "out_specs": jax.P(), "check_vma": False}
        return jax.shard_map(lambda a: jax.lax.all_gather(a, order, tiled=True), **specs)(a)

    return function


@pytest.mark.devices
def test_two_functions_are_told_what_they_take():
    right, wrong = gathered(("X", "Y")), gathered(("Y", "X"))
    assert conditions(right, wrong, inputs=["A[I_XY]"], max_size=2) == "X = 1 or Y = 1"
    assert conditions(right, right, inputs="A[I_XY]", max_size=2) == "always"
    for sizes, holds in (({"X": 2, "Y": 2}, False), ({"X": 4, "Y": 1}, True)):
        assert holds_on(right, wrong, sizes, inputs=["A: bool[I_XY]"]) == holds


def test_axes_that_are_named_are_tried_and_no_others():
    assert conditions("B[I] = A[I_data]", "B[I] = AllGather_data(A[I_data])", mesh=["data"]) == "always"
    assert conditions("B[I_data] = A[I_data]", "B[I_data] = A[I_data] * 2", mesh=["data"]) == "never"


MISTAKEN = {  # a text that is one on no mesh, and its code
    "an unknown function": ("B[I] = softmx_I(A[I_X])", "SHC222"),
    "an unknown type": ("B[I] = A: f33[I_X]", "SHC213"),
    "an array that is not there": ("C[I_X] = A[I_X]; B[I] = D", "SHC217"),
    "a dim of no input": ("B[I, J] = A[I_X]", "SHC207"),
    "types that do not meet": ("B[I] = A: f8_e5m2[I_X] + C: f32[I_X]", "SHC214"),
    "an open bracket": ("B[I = A[I_X]", "SHC103"),
}


@pytest.mark.devices
@pytest.mark.instant
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", MISTAKEN)
def test_a_mistake_in_a_text_is_its_writers_on_whichever_side(name, asked):
    text, code = MISTAKEN[name]
    for other in LEGAL.values():
        for sides in ((text, other), (other, text)):
            with pytest.raises(ShardcError) as caught:
                ASKED[asked](*sides)
            assert caught.value.code == code


FORBIDDEN = {  # what shardings do not allow
    "an axis twice": ("SHC202", "B[I_X, J_X] = A[I_X, J]"),
    "a product of other shares": ("SHC211", "C[I, K] = A[I, J_X] ·_LOCAL B[J, K]"),
    "a sum that is not reduced": ("SHC212", "B[I] = relu(A[I]{U_X}); C[I]{U_X} = relu(A[I]{U_X})"),
    "a collective that leads elsewhere": ("SHC219", "B[I] = AllGather_Y(A[I_X])"),
}


@pytest.mark.instant
@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_shardings_do_not_allow_never_holds(name):
    code, text = FORBIDDEN[name]
    with pytest.raises(ShardcError) as caught:
        shardc.plan(text, mesh={"X": 2, "Y": 2}, dtype="int32")
    assert caught.value.code == code
    assert conditions(text, text, max_size=2) == "never"
