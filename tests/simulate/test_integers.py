"""Integers past the end of their type: the reference, the steps in NumPy and the compiled program have what JAX has."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardc
from shardc.ir.dtypes import DTYPES, Kind
from shardc.ir.functions import FUNCTIONS, NAMED, Function, Gives
from shardc.machines.run import run

TYPES = [row for row in DTYPES.values() if row.kind is Kind.INT and not row.moves and not row.is_wide]
INTEGERS = [row for row in FUNCTIONS.values() if row.integers and row.gives is not Gives.ASKED and row.arity]
JAX = {"relu": jax.nn.relu, "again": lambda x: x, "max": jnp.max, "min": jnp.min}


def spelled(row: Function, arguments: list[str]) -> str:
    """How the notation writes a function of these."""
    if row.over_dims:
        return f"{row.name}_I({arguments[0]})"
    if row.name == "mul":
        return f"{arguments[0]} ⊙ {arguments[1]}"
    if row.sign:
        return f" {row.sign} ".join(arguments) if row.arity == 2 else row.sign + arguments[0]
    return f"{row.name}({', '.join(arguments)})"


def of_jax(row: Function):
    return JAX.get(row.name) or getattr(jnp, row.jax.removeprefix("jnp."))


def extremes(kind) -> np.ndarray:
    """Ends, and what lies beside them and zero."""
    ends = np.iinfo(kind)
    return np.unique([ends.min, ends.min + 1, -1 if ends.min else 1, 0, 2, 100, ends.max // 2, ends.max - 1, ends.max])


def cases(kind):
    """Every integer function of arrays, and of an array and a number: its text, JAX's own, and the arguments."""
    row, wholes = DTYPES[kind], extremes(DTYPES[kind].jax)
    pairs = [np.array(each).ravel() for each in np.meshgrid(wholes, wholes)]
    for function in (each for each in INTEGERS if each.name != "full"):
        names = "ABC"[-function.arity :] if function.name != "where" else "BC"
        given = [f"{name}: {row}[I]" for name in names]
        call = of_jax(function)
        if function.name == "where":
            yield (
                f"where(B > 0, {', '.join(['B', given[1]])})".replace("B >", f"{given[0]} >"),
                lambda x, y: jnp.where(x > 0, x, y),
                pairs,
            )
        elif function.arity == 1:
            yield spelled(function, given), call, [wholes]
        elif function.name != "mul":  # of arrays it is a product, and SHC215
            yield spelled(function, given), call, pairs
        for number in (2, 100) if function.arity == 2 else ():
            for place in (0, 1):
                texts = [str(number), given[0]] if place == 0 else [given[0], str(number)]
                yield spelled(function, texts), _beside(call, number, place), [wholes]


def _beside(call, number, place):
    return lambda x: call(*((number, x) if place == 0 else (x, number)))


@pytest.mark.parametrize("row", TYPES, ids=str)
def test_integers_past_the_end_of_their_type_are_jaxs(row):
    for text, call, wholes in cases(row.name):
        plan = shardc.plan(f"{text} → y", mesh="X=2", dims={"I": len(wholes[0])})
        expected = np.asarray(call(*(jnp.asarray(each.astype(row.jax)) for each in wholes))).astype(np.int64)
        for found in (plan.reference(*wholes), plan.simulate(*wholes)):
            np.testing.assert_array_equal(np.asarray(found).astype(np.int64), expected, text)


@pytest.mark.devices
@pytest.mark.parametrize("row", TYPES, ids=str)
def test_so_they_are_on_devices(row):
    for text, _, wholes in cases(row.name):
        plan = shardc.plan(f"{text} → y", mesh="X=2", dims={"I": len(wholes[0])})
        found = plan.compile()(*(each.astype(row.jax) for each in wholes))
        np.testing.assert_array_equal(np.asarray(found).astype(np.int64), plan.reference(*wholes), text)


@pytest.mark.parametrize("row", TYPES, ids=str)
def test_a_cast_between_integers_is_jaxs(row):
    wholes = extremes(row.jax)
    for other in TYPES:
        plan = shardc.plan(f"{other}(A: {row}[I] + 1) → y", mesh="X=2", dims={"I": len(wholes)})
        expected = np.asarray((jnp.asarray(wholes.astype(row.jax)) + 1).astype(other.jax)).astype(np.int64)
        for found in (plan.reference(wholes), plan.simulate(wholes)):
            np.testing.assert_array_equal(np.asarray(found).astype(np.int64), expected, str(other))


@pytest.mark.parametrize(
    "text", ["sum_J(A: int32[I, J_X]) → y[I]", "A: int32[I, J_X] · B: int32[J_X, K] → y[I, K]{U_X}"]
)
def test_sums_between_devices_are_jaxs(text):
    """Sums past the end of int32, of partial sums that are past it too."""
    plan = shardc.plan(text, mesh="X=2", dims={"I": 4, "J": 8, "K": 4})
    wholes = [np.full(plan.program.shape(each.dims), 2**31 - 7 - k) for k, each in enumerate(plan.program.inputs)]
    expected = wholes[0].astype(np.int32)
    expected = expected.sum(1, dtype=np.int32) if len(wholes) == 1 else expected @ wholes[1].astype(np.int32)
    np.testing.assert_array_equal(plan.reference(*wholes), expected)
    np.testing.assert_array_equal(plan.simulate(*wholes), expected)


@pytest.mark.devices
@pytest.mark.parametrize(
    "text",
    [
        "y: int32[I] = sum_K(A: int8[I, J] ·_J B: int8[J_X, K])",  # once K was summed in int8
        "y: int32[I] = A: int8[I, J] · B: int8[J, K_X]",
        "y: int32[I] = A: int8[I, J] ·_J sum_K(B: int8[J, K_X])",
    ],
)
def test_narrow_integers_are_summed_in_the_wider_type_that_is_declared(text):
    plan = shardc.plan(text, mesh="X=2", dims={"I": 2, "J": 8, "K": 16})
    wholes = [np.full(plan.program.shape(each.dims), 100 + k, np.int8) for k, each in enumerate(plan.program.inputs)]
    expected = np.full(2, 8 * 16 * 100 * 101)
    for found in (plan.reference(*wholes), plan.simulate(*wholes), plan.compile()(*wholes)):
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_a_sum_that_is_done_before_its_product_is_as_wide():
    """In bf16 between both, 1 and 2⁻⁸ of 255 make 1.9921875 and not 1.99609375; int32 of int64 wraps."""
    plan = shardc.plan("y: f32[I] = A: bf16[I, J] · B: bf16[J, K]", mesh="X=2", dims={"I": 2, "J": 2, "K": 256})
    row = np.where(np.arange(256) == 0, 1.0, 2.0**-8)
    wholes = [np.eye(2), np.stack([row, row])]
    for found in (plan.reference(*wholes), plan.simulate(*wholes)):
        np.testing.assert_array_equal(np.asarray(found, float), [1 + 255 / 256] * 2)
    assert "bfloat16)" not in plan.source().partition("def program")[2]


@pytest.mark.devices
def test_what_is_run_and_proved_is_the_reference():
    plan = shardc.plan("y[B_X] = square(a: int8[B_X]) + 100", mesh="X=4", dims={"B": 8})
    assert plan.reference(np.full(8, 100)).tolist() == [16 + 100] * 8
    assert run(plan.schedule).ok


def test_every_integer_function_is_among_the_cases():
    texts = [text for text, _, _ in cases("int8")]
    for row in INTEGERS:
        written = (
            f"{row.name}(" if row.name in NAMED and not row.over_dims else f"{row.name}_" if row.over_dims else row.sign
        )
        assert row.name == "full" or any(written in text for text in texts), row.name
