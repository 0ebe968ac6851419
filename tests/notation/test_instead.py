"""What is told to write instead of another library's function parses, and is what that function gives in NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shardc
from shardc.notation.instead import _OF_OTHERS, LOOKUP, POWER
from shardc.simulate.reference import reference

SIZES = {"I": 3, "J": 5, "K": 5, "V": 7, "D": 2}
A = np.random.default_rng(3).permutation(np.linspace(-2.3, 2.4, 15)).reshape(3, 5)
B = np.abs(A[::-1]) + 0.5
M = np.array([[1, 1, 1, 1, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
E = np.arange(14.0).reshape(7, 2)
TOK = np.array([6, 0, 3])
GIVEN = {"A": ("[I, J]", A), "B": ("[I, J]", B), "M": (": bool[I, J]", M), "E": ("[V, D]", E)}
GIVEN |= {"Tok": (": int32[I]", TOK)}
RANKS = (A[:, None, :] > A[:, :, None]).sum(-1)
LAST = 4 - np.argmax((A.max(1, keepdims=True) == A)[:, ::-1], 1)
WRITTEN_OUT = {"layernorm", "pow", "power", "transpose"}  # told in words

# What each recipe of a function is in NumPy, one behind the other.
MEANING = {
    "logsoftmax": [A - np.log(np.exp(A).sum(1, keepdims=True))],
    "clip": [np.clip(A, 0, 1)],
    "clamp": [np.clip(A, 0, 1)],
    "argmax": [A.max(1, keepdims=True) == A, LAST],
    "argmin": [A.min(1, keepdims=True) == A, np.argmin(A, 1)],
    "topk": [np.argsort(np.argsort(-A, 1), 1) < 2],
    "cumsum": [np.cumsum(A, 1)],
    "rmsnorm": [A / np.sqrt((A**2).mean(1, keepdims=True) + 1e-6)],
    "norm": [np.linalg.norm(A, axis=1)],
    "var": [np.var(A, 1)],
    "variance": [np.var(A, 1)],
    "std": [np.std(A, 1)],
    "prod": [np.prod(B, 1), np.prod(A, 1)],
    "any": [M.any(1)],
    "all": [M.all(1)],
    "take": [E[TOK]],
    "embedding": [E[TOK]],
    "onehot": [np.eye(7)[TOK]],
    "softplus": [np.logaddexp(A, 0)],
    "leakyrelu": [np.where(A > 0, A, 0.01 * A)],
    "elu": [np.where(A > 0, A, np.expm1(A))],
    "relu6": [np.clip(A, 0, 6)],
    "round": [np.round(A)],
    "ceil": [np.ceil(A)],
    "mod": [np.mod(A, B)],
    "expm1": [np.expm1(A)],
    "tan": [np.tan(A)],
}


def recipes(name: str) -> list[str]:
    """What stands in backticks, but for the dims of an array that is spoken of."""
    return re.findall("`(.*?)`", _OF_OTHERS[name])


def programs():
    for name in MEANING:
        yield from ((name, recipe, wanted) for recipe, wanted in zip(recipes(name), MEANING[name], strict=True))


def with_inputs(recipe: str) -> tuple[str, list[str]]:
    """A recipe as a program: each input has its dims where it is met first."""
    used = [name for name in GIVEN if re.search(rf"(?<![\w.]){name}(?![\w])", recipe)]
    for name in used:
        if f"{name}[" not in recipe:
            recipe = re.sub(rf"(?<![\w.]){name}(?!\w)", name + GIVEN[name][0], recipe, count=1)
    return (recipe if "for " in recipe else f"y = {recipe}"), used


@pytest.mark.instant
@pytest.mark.parametrize("name, recipe, wanted", [*programs()], ids=[f"{name}: {text}" for name, text, _ in programs()])
def test_a_recipe_is_what_numpy_has(name, recipe, wanted):
    positive = name == "prod" and "log" in recipe
    text, used = with_inputs(recipe.replace("A", "B") if positive else recipe)
    program = shardc.plan(text, mesh={"X": 1}, dims=SIZES, dtype="f64").program
    wholes = [GIVEN[array.name][1] for array in program.inputs]
    assert {array.name for array in program.inputs} == set(used)
    (found,) = reference(program, wholes)
    dims = program.results[program.outputs[0]].dims
    order = sorted(range(len(dims)), key=lambda place: "IJKVD".index(dims[place]))
    np.testing.assert_allclose(found.transpose(order), wanted, rtol=1e-9)


def test_every_recipe_has_its_meaning():
    assert set(_OF_OTHERS) == set(MEANING) | WRITTEN_OUT


@pytest.mark.instant
@pytest.mark.parametrize(
    "name", ["log_softmax_D", "var_D", "top_k", "leaky_relu", "norm_D", "any_D", "one_hot", "prod_D"]
)
def test_a_function_of_others_is_told_its_recipe(name):
    with pytest.raises(shardc.ShardcError) as refused:
        shardc.parse(f"y = {name}(A[I_X, D])", mesh={"X": 2})
    head, _, dim = name.rpartition("_") if name.endswith("_D") else (name, "", "")
    told = _OF_OTHERS[head.replace("_", "")]
    assert refused.value.code == "SHC222"
    assert refused.value.help == (re.sub(r"(_|for )J\b", rf"\g<1>{dim}", told) if dim else told)


@pytest.mark.instant
@pytest.mark.parametrize(
    "text, told",
    [
        ("y[B_X, D] = E[Tok: int32[B_X], D]", LOOKUP),
        ("y[B_X, D] = E[Tok[B_X], D]", LOOKUP),
        ("y[B_X]: f32 = x[B_X]", "a type stands between the name and the dims: `y: f32[B_X]`"),
        ("y = a[B] + relu(x[B_X]: bf16)", "a type stands between the name and the dims: `x: bf16[B_X]`"),
        ("y[B_X]: other = x[B_X]", "an array is written `A[I, J_X]`, a statement `A[I, J] · B[J, K] → C[I, K]`"),
        ("y[B_X] = E[V: X]", "an axis is a subscript of its dim: `V_X`"),
    ],
)
def test_a_type_where_none_stands(text, told):
    with pytest.raises(shardc.ShardcError) as refused:
        shardc.parse(text, mesh={"X": 2})
    assert refused.value.code == "SHC101" and refused.value.help == told


@pytest.mark.instant
@pytest.mark.parametrize("result", ["C[I_X, J]", "C[J, I_X]", "C[I, J, K_X]"])
@pytest.mark.parametrize("array", ["a[I]", "a[I_X]", "relu(a[I])"])
def test_an_array_is_repeated_as_is_told(result, array):
    with pytest.raises(shardc.ShardcError) as refused:
        shardc.parse(f"{result} = {array}", mesh={"X": 1}, dims=SIZES)
    (told,) = re.findall("to repeat an array along .* write `(.*)`", refused.value.help or "")
    program = shardc.plan(f"{result} = {told}", mesh={"X": 1}, dims=SIZES, dtype="f64").program
    (found,) = reference(program, [np.arange(3.0)])
    dims = program.results[0].dims
    shape = [SIZES[dim] if dim == "I" else 1 for dim in dims]
    np.testing.assert_array_equal(found, np.broadcast_to(np.arange(3.0).reshape(shape), program.shape(dims)))


def test_a_power_is_a_product():
    assert "`A ⊙ A`" in POWER


@pytest.mark.instant
@pytest.mark.parametrize(
    "between", ["", "p = relu(s); ", "p = s / 2; r = p ⊙ p; "], ids=["at once", "later", "two statements later"]
)
def test_what_an_earlier_product_summed_is_kept_where_the_error_says(between: str) -> None:
    """It advised to repeat the array along B alone, which adds up all sequences."""
    made, last = "q[B_X, T, E] · k[B_X, S, E]", {"": "s", "p = relu(s); ": "p"}.get(between, "r")
    with pytest.raises(shardc.ShardcError) as refused:
        shardc.parse(f"s = {made}; {between}o[B, T, S] = softmax_S({last})", mesh="X=2")
    assert refused.value.code == "SHC207"
    told = (refused.value.help or "").split("`")
    assert told[1] == "s" and told[3] == "s[B_?, T_?, S_?] = …"
    followed = told[3].replace("…", made)
    assert shardc.parse(f"{followed}; {between}o[B, T, S] = softmax_S({last})", mesh="X=2")
    kept = shardc.parse(f"s[T, S] = sum_B(q[B_X, T, S]); {between}", mesh="X=2")
    with pytest.raises(shardc.ShardcError, match="is on no operand") as other:
        shardc.parse(f"s[T, S] = sum_B(q[B_X, T, S]); {between}o[B, T, S] = softmax_S({last})", mesh="X=2")
    assert kept and (other.value.help or "").startswith("the operands have"), "a sum that is written is meant"
