"""When a rewrite holds: what a side is refused with is an answer, what a user's function raises is none."""

import jax
import pytest

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
