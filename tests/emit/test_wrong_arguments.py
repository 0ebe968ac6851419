"""The Python interface given values of the wrong types: a result, or a coded error with a remedy, and nothing else.

Every argument of every function is tried: their names are read from the signatures.
"""

import inspect
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc import api
from shardc.errors import ShardcError

pytestmark = pytest.mark.devices

TEXT = "A[I_X, J] · B[J, K] → C[I_X, K]"
SIZES = {"I": 8, "J": 8, "K": 8}
ARRAY = np.arange(64, dtype=np.float32).reshape(8, 8)


class Odd:
    """Has no order, no hash, no length, and is equal to nothing."""

    __hash__ = None

    def __eq__(self, other):
        raise TypeError("not to be compared")


WRONG = [
    *(None, True, 0, -1, 3, 2**70, 1.5, float("nan"), float("inf"), 1j, "", "x", "X=2", "\0", "é", b"X=2", b""),
    *(
        [],
        ["A"],
        [[1], [1, 2]],
        (),
        ("X",),
        (1, 2),
        {},
        {"X": 2},
        {1: 2},
        {"X": "2"},
        {"X": None},
        {None: 1},
        {"X": 2.0},
    ),
    *({"X"}, frozenset(), range(3), len, int, object(), Odd(), Ellipsis, slice(2), iter(())),
    *(
        np.float32,
        np.dtype("V3"),
        np.zeros(0),
        np.zeros((2, 3)),
        np.array("x"),
        np.array([None]),
        np.datetime64("2020"),
    ),
    *(jax.P(), jax.P("X"), jax.P("nope"), jax.P(("X", "X")), jax.P(None, None, None), jax.P(jax.P.UNCONSTRAINED)),
    *(jax.ShapeDtypeStruct((8, 8), jnp.float32), jax.sharding.AbstractMesh((2,), ("X",)), ValueError("x")),
    jax.random.key(0),
]


def named(function):
    """What a function takes by name alone, options that are typed together among them; not whom it tells what it does,
    which is a function of the caller's."""
    found = []
    for name, each in inspect.signature(function).parameters.items():
        if each.kind is each.KEYWORD_ONLY and name != "say":
            found.append(name)
        elif each.kind is each.VAR_KEYWORD:
            found += typing.get_type_hints(getattr(api, each.annotation.removeprefix("Unpack[").removesuffix("]")))
    return found


wrong = st.sampled_from(WRONG)


def plan(**options):
    return shardc.plan(TEXT, **({"mesh": {"X": 2}, "dims": SIZES} | options))


PLANNED = plan(dtype="f32")

CALLS = {
    "parse(text)": lambda one, two: shardc.parse(one),
    "check(text)": lambda one, two: shardc.check(one),
    "plan(text)": lambda one, two: shardc.plan(one, mesh=two),
    "einsum(text)": lambda one, two: shardc.einsum(one, two),
    "einsum(array)": lambda one, two: shardc.einsum(TEXT, one, ARRAY),
    "einsum(arrays)": lambda one, two: shardc.einsum(TEXT, one, two),
    "reshard(array)": lambda one, two: shardc.reshard(one, jax.P("X")),
    "reshard(spec)": lambda one, two: shardc.reshard(ARRAY, one),
    "reshard(both)": lambda one, two: shardc.reshard(one, two),
    "compile(mesh)": lambda one, two: PLANNED.compile(one)(ARRAY, ARRAY),
    "compiled": lambda one, two: PLANNED.compile()(one, two),
    "compiled(array)": lambda one, two: PLANNED.compile()(ARRAY, one),
    "simulate": lambda one, two: PLANNED.simulate(one, two),
    "simulate(array)": lambda one, two: PLANNED.simulate(ARRAY, one),
    "reference": lambda one, two: PLANNED.reference(ARRAY, one),
    "pareto": lambda one, two: PLANNED.pareto(one),
    "picture": lambda one, two: PLANNED.picture(one),
    "table": lambda one, two: PLANNED.table(one),
    "to_json": lambda one, two: PLANNED.to_json(one),
    "explain": lambda one, two: shardc.explain(one, two),
    "sweep(text)": lambda one, two: shardc.sweep(one, "I=8..16", mesh={"X": 2}, dims=SIZES),
    "sweep(swept)": lambda one, two: shardc.sweep(TEXT, one, mesh={"X": 2}, dims=SIZES),
    "sweep(both)": lambda one, two: shardc.sweep(TEXT, one, two, mesh={"X": 2}, dims=SIZES),
    "grad(program)": lambda one, two: shardc.grad(one),
    "grad(wrt)": lambda one, two: shardc.grad(PLANNED.program, one),
}
WITH = {
    "plan": (shardc.plan, lambda **options: plan(**options)),
    "plan(parsed)": (shardc.plan, lambda **options: shardc.plan(PLANNED.program, **options)),
    "parse": (shardc.parse, lambda **options: shardc.parse(TEXT, **options)),
    "check": (shardc.check, lambda **options: shardc.check(TEXT, **({"mesh": {"X": 2}} | options))),
    "explain": (shardc.explain, lambda **options: shardc.explain(len, **options)),
    "einsum": (type(shardc.einsum).__call__, lambda **options: shardc.einsum(TEXT, ARRAY, ARRAY, **options)),
    "einsum.plan": (shardc.einsum.plan, lambda **options: shardc.einsum.plan(TEXT, ARRAY, ARRAY, **options)),
    "reshard": (shardc.reshard, lambda **options: shardc.reshard(ARRAY, jax.P("X"), **options)),
    "grad": (shardc.grad, lambda **options: shardc.grad(PLANNED.program, **options)),
    "sweep": (shardc.sweep, lambda **options: shardc.sweep(TEXT, "I=8..16", **({"mesh": {"X": 2}} | options))),
    "page": (shardc.Plan.page, lambda **options: PLANNED.page(**options)),
}
CALLS |= {
    f"{what}({name}=)": lambda one, two, name=name, call=call: call(**{name: one})
    for what, (function, call) in WITH.items()
    for name in named(function)
}


@pytest.fixture(params=["with a mesh", "without"])
def in_force(request):
    if request.param == "without":
        yield
        return
    with jax.set_mesh(jax.make_mesh((2,), ("X",), devices=jax.devices()[:2])):
        yield


def is_told(call, one, two=None):
    try:
        CALLS[call](one, two)
    except ShardcError as error:
        assert error.help, error
        assert error.code != "SHC900"


@pytest.mark.parametrize("call", CALLS)
def test_one_wrong_argument(call, in_force):
    for one in WRONG:
        is_told(call, one)


@settings(max_examples=60)
@given(st.sampled_from(list(CALLS)), wrong, wrong)
def test_two_wrong_arguments(call, one, two):
    with jax.set_mesh(jax.make_mesh((2,), ("X",), devices=jax.devices()[:2])):
        is_told(call, one, two)


@pytest.mark.parametrize(
    ("call", "one"), [("einsum(text)", ["A"]), ("reshard(array)", "x"), ("reshard(array)", {}), ("einsum(array)", "x")]
)
def test_what_was_once_a_raw_error(call, one, in_force):
    with pytest.raises(ShardcError) as caught:
        CALLS[call](one, ARRAY)
    assert caught.value.help
