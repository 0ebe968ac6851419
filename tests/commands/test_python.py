"""What is given from Python: handed to another process, of NumPy's types, or of no type that is taken."""

import copy
import json
import os
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.ir.sharding import Sharding

TEXT = "A[I_X, J] · B[J, K_X] → C[I, K]; D = relu(C)"
IN_A_LOOP = "dims L=4; for L { x[B_X, D] = relu(x[B_X, D]) ⊙ W[L, D] }"


@pytest.mark.parametrize("text", [TEXT, IN_A_LOOP])
def test_plans_and_their_fronts_go_to_another_process(text):
    plan = shardc.plan(text, mesh={"X": 4})
    for given in (plan, plan.pareto()):
        found = pickle.loads(pickle.dumps(given))
        assert str(found) == str(given)
    found = pickle.loads(pickle.dumps(shardc.plan(text, mesh={"X": 4})))  # before its steps are worded
    assert found.to_json() == plan.to_json()
    assert pickle.loads(pickle.dumps(plan)).cost == plan.cost


ASKED = {
    "a product": (TEXT, {"mesh": {"X": 4}}),
    "a loop": (IN_A_LOOP, {"mesh": {"X": 4}}),
    "on a slice": ("A[I_X, J] → A[I, J_X]", {"mesh": {"X": 4, "Y": 2}, "topology": "v5e:4x2"}),
    "axes cut": ("A[I_X, J] · B[J, K_X] → C[I_X, K]", {"mesh": {"X": 8}, "objective": "bytes"}),
    "held to memory": ("A[I_X, J] · B[J, K_X] → C[I, K_X]", {"mesh": {"X": 4}, "memory": "1GB"}),
}
COPIES = {
    "pickled": lambda given: pickle.loads(pickle.dumps(given)),
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize(("text", "asked"), ASKED.values(), ids=ASKED)
def test_a_plan_is_equal_to_its_copies_and_to_no_other(text, asked, copied):
    plan = shardc.plan(text, **asked)
    assert (plan.schedule.by is not None) == (asked.get("objective") == "bytes")
    for given in (plan, plan.program, plan.schedule, plan.pareto(points=2)):
        found = copied(given)
        assert found == given
        assert hash(found) == hash(given)
    again = shardc.plan(text, **asked)
    assert copied(plan) == again
    assert copied(plan) in {again}
    for changed in ({"formula": "book"}, {"chip": "v6e", "topology": None}, {"overlap": "off"}, {"dtype": "f32"}):
        assert copied(plan) != shardc.plan(text, **asked | changed)
    assert plan != plan.program


def test_a_program_goes_to_another_process_without_the_hash_that_names_have_in_this_one():
    program = shardc.parse(TEXT, mesh={"X": 4})
    known = hash(program)
    found = pickle.loads(pickle.dumps(program))
    assert "_hash" in vars(program)
    assert "_hash" not in vars(found)
    assert found == program
    assert hash(found) == known == hash(shardc.parse(TEXT, mesh={"X": 4}))


ELSEWHERE = f"""
import pickle, sys, shardc
from shardc.ir.sharding import Sharding
plan = shardc.plan({TEXT!r}, mesh="X=4")
pickle.dump((plan, shardc.parse({TEXT!r}, mesh="X=4"), Sharding.of(["X", ""], "Y")), sys.stdout.buffer)
"""


def test_what_another_process_made_is_found_among_what_is_made_here():
    """There names have other hashes."""
    seeded = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    left = subprocess.run([sys.executable, "-c", ELSEWHERE], env=seeded, capture_output=True, check=True).stdout
    plan, program, sharding = pickle.loads(left)
    here = shardc.parse(TEXT, mesh="X=4")
    assert {program.mesh: 1, sharding: 2, program: 3} == {here.mesh: 1, Sharding.of(["X", ""], "Y"): 2, here: 3}
    assert plan.source() == shardc.plan(TEXT, mesh="X=4").source()
    assert plan.to_json() == shardc.plan(TEXT, mesh="X=4").to_json()


def test_an_error_comes_back_from_another_process():
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.parse("A[I_X, J] → B[")
    found = pickle.loads(pickle.dumps(caught.value))
    assert (str(found), found.code, found.exit_code) == (str(caught.value), "SHC103", caught.value.exit_code)


def test_whole_numbers_of_numpy_are_whole_numbers():
    sizes = {"I": np.int32(8), "J": np.int64(8), "K": np.uint8(16)}
    plan = shardc.plan(TEXT, mesh={"X": np.int64(4)}, dims=sizes, memory=np.int64(10**9))
    assert plan.to_json() == shardc.plan(TEXT, mesh="X=4", dims="I=8,J=8,K=16", memory=10**9).to_json()


@pytest.mark.parametrize(
    ("text", "mesh", "objective"),
    [
        ("A: f32[I, J_X] · B[J_X, K] → C[I_X, K]; n: int8[] → m[]; M: bool[I_X] → N[I]", "X=4,Y=2", "time"),
        ("A: f32[I, J_X]{U_Y} · B[J_X, K] → C[I, K_X]{U_Y}", "X=4,Y=2", "time"),
        ("A[I, J_X] · B[J_X, K] → C[I_X, K]", "X=8", "bytes"),  # on a finer mesh
    ],
)
def test_a_plan_says_which_arrays_it_takes_and_leaves(text, mesh, objective):
    """Whole arrays, which `jnp.ones` makes of what is said, whatever their parts."""
    plan = shardc.plan(text, mesh=mesh, dims="I=64,J=64,K=64", objective=objective)
    fields = json.loads(plan.to_json())
    for named, arrays in (("inputs", plan.inputs), ("outputs", plan.outputs)):
        for array, own in zip(arrays, fields[named], strict=True):
            assert (tuple(own["shape"]), own["dtype"]) == (array.shape, array.dtype)
            assert set(own) == {"name", "sharding", "shape", "dtype", "local_shape", "bytes"}
    given = [jnp.ones(array.shape, array.dtype) for array in plan.inputs]
    left = jax.tree.leaves(plan.compile()(*given))
    assert [(each.shape, each.dtype.name) for each in left] == [(each.shape, each.dtype) for each in plan.outputs]


def test_a_program_is_swept():
    program = shardc.parse(TEXT, mesh="X=4", dims="J=8,K=8")
    assert str(shardc.sweep(program, "I=8..16")) == str(shardc.sweep(str(program), "I=8..16"))


def test_names_of_inputs_may_be_one_text():
    program = shardc.parse(TEXT, mesh="X=4")
    assert str(shardc.grad(program, wrt="B, A")) == str(shardc.grad(program, wrt=["B", "A"]))


WRONG = {
    "what is swept is a int": lambda program: shardc.sweep(program, 3),
    "what is swept is a list": lambda program: shardc.sweep(program, ["I=1..2"]),
    "remat is 'x'": lambda program: shardc.grad(program, remat="x"),
    "remat is 3": lambda program: shardc.grad(program, remat=3),
    "whole is 'no'": lambda program: shardc.grad(program, whole="no"),
    "wrt is 3": lambda program: shardc.grad(program, wrt=3),
    "wrt is [3]": lambda program: shardc.grad(program, wrt=[3]),
    "rounds is 0": lambda program: shardc.plan(program).compare(rounds=0),
    "rounds is '3'": lambda program: shardc.plan(program).compare(rounds="3"),
    "mesh axis `X` = 4.0 is not a whole number": lambda program: shardc.plan(TEXT, mesh={"X": 4.0}),
    "mesh axis `X` = True is not a whole number": lambda program: shardc.plan(TEXT, mesh={"X": True}),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_of_no_type_that_is_taken_is_told(said):
    with pytest.raises(shardc.ShardcError) as caught:
        WRONG[said](shardc.parse(TEXT, mesh="X=4"))
    assert caught.value.message == said
