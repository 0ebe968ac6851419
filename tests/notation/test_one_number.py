"""`h[B, D] = 0`: an array of one number, by the dims and the type that are said of it."""

import jax.numpy as jnp
import pytest

import shardc
from shardc.ir.program import every_statement

MESH = {"X": 2, "Y": 2}
SIZES = {"L": 2, "B": 4, "D": 8}


def types(text):
    program = shardc.parse(text, mesh=MESH, dims=SIZES, dtype="bf16")
    return {each.name: (each.dims, each.dtype.name) for each in every_statement(program)}


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "dims", "dtype"),
    [
        ("h[B_X, D] = 0", ("B", "D"), "bf16"),
        ("h: f32[B, D_?] = 1e-6", ("B", "D"), "f32"),
        ("h: int32[B] = 3", ("B",), "int32"),
        ("h[] = sqrt(|D|)", (), "bf16"),
        ("h[B] = -inf", ("B",), "bf16"),
        ("h[B] = 2 · (1 + |D|)", ("B",), "bf16"),
        ("h: f32[B] = 1; for L { h = 0 }", ("B",), "f32"),  # in a loop of the type of what is carried
        ("for L { h[L, B] = 0 }", ("B",), "bf16"),
    ],
)
def test_its_dims_and_its_type_are_those_that_are_said(text, dims, dtype):
    assert types(text)["h"] == (dims, dtype)


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("h = 0", "SHC222", "say them, as `h[B, D] = 0` does"),
        ("h: int32[B] = 0.5", "SHC214", "the number is not whole"),
        ("h: int8[B] = 128", "SHC214", "int8 has no room for 128"),
        ("h: int8[B] = |B| · 64", "SHC214", "int8 has no room for 256"),
        ("h: bool[B] = 1", "SHC214", "declare a type to compute in"),
        ("h: c64[B] = 1", "SHC214", "declare a type to compute in"),
        ("h[B] = 1 / 0", "SHC108", "divides by zero"),
        ("h[B] = 0; h[B, D] = 0", "SHC218", "bound to another array"),
        ("full(A[B]) → C[B]", "SHC222", "unknown function"),
        ("C[B] = A[B] + relu(2 < 3)", "SHC222", "of numbers alone"),
    ],
)
def test_what_is_no_array_of_one_number_is_told(text, code, told):
    with pytest.raises(shardc.ShardcError) as caught:
        shardc.plan(text, mesh=MESH, dims=SIZES, dtype="bf16")
    assert caught.value.code == code and told in str(caught.value)


def test_a_type_of_its_own_is_printed_where_it_is_bound_and_read_again():
    text = "h: f32[B_X, D] = 0\nC[B_X, D] = A: f32[B_X, D] + h"
    once = shardc.parse(text, mesh=MESH, dims=SIZES, dtype="bf16")
    assert text in str(once) and shardc.parse(str(once)) == once


@pytest.mark.parametrize(
    "function",
    [
        "where(A > 0, 1.0, 0.5) ⊙ A",
        "A · where(A > 0, 1.0, 0.5)",
        "A - where(A > 0, 1.0, 0)",
        "maximum(where(A > 0, 1.0, 0.5), A)",
        "where(A > 0, 1, 0) ⊙ A",
        "where(A > 0, 1.0, 0.5)",
        "where(A > 0, 1, 0)",
        "where(A > 0, 1.0, 0.5) + where(A > 1, 1.0, 0.5)",
    ],
)
@pytest.mark.parametrize("dtype", ["bf16", "f32", "f16", "int32"])
def test_what_is_of_numbers_meets_an_array_as_in_jax(function, dtype):
    """Numbers chosen by a condition take the type of the float that they meet, as a number does."""
    text = function.replace("A", "A[B]", 1)
    found = shardc.parse(f"C[B] = {text}", mesh=MESH, dims=SIZES, dtype=dtype)
    a = jnp.ones(4, found.inputs[0].dtype.jax)
    spelt = function.replace("where", "jnp.where").replace("maximum", "jnp.maximum").replace("⊙", "*").replace("·", "*")
    assert next(every_statement(found)).dtype.jax == str(eval(spelt, {"jnp": jnp, "A": a}).dtype)


@pytest.mark.parametrize("numbers", ["0, -inf", "1.0, 0.5", "1, 0", "0.1, -1e9"])
@pytest.mark.parametrize("way", ["{} + {}", "{} ⊙ {}", "{} · {}", "maximum({}, {})", "{} / {}"])
@pytest.mark.parametrize("dtype", ["bf16", "f32", "f16", "f64"])
def test_a_name_changes_no_type(numbers, way, dtype):
    """A mask with a name of its own made attention f32: the scores that it was added to."""
    chosen = f"where(index_B >= 2, {numbers})"
    here, *named = (
        [statement.dtype for statement in every_statement(shardc.parse(text, mesh=MESH, dims=SIZES, dtype=dtype))][-1]
        for one, other in (("A[B]", "{}"), ("{}", "A[B]"))
        for text in (
            f"C[B] = {way.format(one, other).format(chosen)}",
            f"M = {chosen}; C[B] = {way.format(one, other).format('M')}",
            f"M = {chosen}; for L {{ S[L, B] = {way.format(one, other).format('M')} }}",
        )
    )
    assert {here, *named} == {here} and str(here) == dtype


@pytest.mark.instant
@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("M: f32[B] = where(index_B >= 2, 0, -inf); C[B] = A[B] + M", "f32"),  # of the type that it is declared
        ("M[B] = where(index_B >= 2, 0, -inf); for L { M = M + A[B] }; C = M ⊙ 1", "f32"),  # which is bound again
        ("M[B] = where(index_B >= 2, 0, -inf); N[B] = where(A[B] > 0, 1.0, 0.5); C = M + N", "f32"),  # both
        ("M[B] = where(index_B >= 2, 0, -inf); C[B] = n: int32[B] + M", "f32"),
    ],
)
def test_but_a_type_that_is_said_or_none_that_is_met(text, dtype):
    found = shardc.parse(text, mesh=MESH, dims=SIZES | {"L": 2}, dtype="bf16")
    assert str(found.results[found.outputs[-1]].dtype) == dtype


def test_what_is_of_numbers_has_the_type_that_is_declared():
    assert types("M: bf16[B] = where(A[B] > 0, 1.0, 0.5)")["M"] == (("B",), "bf16")
    with pytest.raises(shardc.ShardcError):
        types("M: int32[B] = where(A[B] > 0, 1.0, 0.5)")
