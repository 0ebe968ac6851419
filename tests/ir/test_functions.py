"""The table of functions: what a row says beside its meaning in NumPy is read off that meaning, field by field."""

import inspect
import itertools

import numpy as np
import pytest

import shardc
from shardc.ir.functions import FUNCTIONS, MADE_OF_NONE, Gives

OF_ARRAYS = [pytest.param(row, id=row.name) for row in FUNCTIONS.values() if row.name != "index"]
OVER_DIMS = [pytest.param(row, id=row.name) for row in FUNCTIONS.values() if row.over_dims and row.name != "index"]
NO_INTEGERS = {"floor": "JAX's gives floats", "shift": "exponents are floats"}  # though NumPy's would give integers
CASTS = ("cast", "widen", "narrow")


def called(row, arrays):
    with np.errstate(all="ignore"):
        return row.numpy(np, *arrays, **({"axis": (1,)} if row.over_dims else {}))


def drawn(row, seed, dtype=np.float64):
    """With zeros, halves, either sign, and some alike at one place; a condition is 0 or 1, the same for each seed."""
    generator = np.random.default_rng(seed)
    values = (np.arange(24) % 7 - 3) / (2 if dtype is np.float64 else 1)
    found = [generator.permutation(values).astype(dtype).reshape(4, 6) for _ in range(row.arity)]
    return [np.arange(24).reshape(4, 6) % 2 if place in row.conditions else x for place, x in enumerate(found)]


def is_linear_in(row, places):
    """Whether, of these arguments together, what is given of a sum is the sum of what is given."""
    one, other = drawn(row, 1), drawn(row, 2)
    other = [there if place in places else here for place, (here, there) in enumerate(zip(one, other, strict=True))]
    both = [a + b if place in places else a for place, (a, b) in enumerate(zip(one, other, strict=True))]
    left, right, whole = (called(row, arrays) for arrays in (one, other, both))
    with np.errstate(invalid="ignore"):
        return np.allclose(left + right, whole, rtol=1e-9, equal_nan=row.name == "div")


@pytest.mark.instant
@pytest.mark.parametrize("row", OF_ARRAYS)
def test_it_is_linear_where_it_says(row):
    places = set(range(row.arity)).difference(row.conditions)
    every = [some for count in range(1, row.arity + 1) for some in itertools.combinations(sorted(places), count)]
    found = [places for places in every if is_linear_in(row, places)]
    if row.name in MADE_OF_NONE:
        assert not row.linear  # a number of the text, of which nobody asks
    elif row.name == "cast":
        assert found == [(0,)] and not (row.linear or row.scales)  # it rounds, as NumPy's, in one precision, does not
    elif row.scales:
        assert found == [(0,), (1,)] and not row.linear
    else:
        assert found == ([row.linear] if row.linear else [])


@pytest.mark.instant
@pytest.mark.parametrize("row", OF_ARRAYS)
def test_it_takes_what_it_says(row):
    """As many arguments; dims; and of a condition nothing but whether it is true."""
    names = list(inspect.signature(row.numpy).parameters)
    if "arguments" not in names:
        assert row.arity == len(names) - 1 - row.over_dims
    assert row.over_dims == ("axis" in names)
    assert row.over_dims or (row.keeps_dims and not row.across and not row.reduces)
    values = [*np.array([*itertools.product([-2.0, -1, 0, 1, 2, 3], repeat=row.arity)]).T.reshape(row.arity, -1, 6)]
    truths = [[1.0 * (x != 0) if n == place else x for n, x in enumerate(values)] for place in range(row.arity)]
    if row.name not in CASTS:
        alike = [np.array_equal(called(row, values), called(row, some), equal_nan=True) for some in truths]
        assert row.conditions == tuple(place for place, same in enumerate(alike) if same)


@pytest.mark.instant
@pytest.mark.parametrize("row", OF_ARRAYS)
def test_it_gives_what_it_says(row):
    of_integers, of_floats = (called(row, drawn(row, 1, dtype)).dtype.kind for dtype in (np.int64, np.float64))
    takes_some = len(row.conditions) < row.arity
    assert row.integers == (of_integers == "i" and takes_some and row.name not in NO_INTEGERS)
    assert (row.gives is Gives.BOOL) == (of_floats == "i")
    assert row.truths == (not takes_some or row.name in ("cast", "again"))  # of `grad`, which makes masks again too
    assert (row.gives is Gives.ASKED) == (row.name in CASTS) and (row.gives is Gives.FLOAT) == (row.name == "div")


@pytest.mark.instant
@pytest.mark.parametrize("row", OVER_DIMS)
def test_over_a_dim_it_leaves_what_it_says(row):
    """Its dims; what two parts give of which it says how they are one; and so many AllReduces where it is sharded."""
    (x,) = drawn(row, 1)
    whole, left, right = (called(row, [part]) for part in (x, x[:, :3], x[:, 3:]))
    assert row.keeps_dims == (whole.shape == x.shape)
    joined = {} if row.keeps_dims else {"max": np.maximum(left, right), "min": np.minimum(left, right)}
    assert row.reduces == next((how for how, found in joined.items() if np.array_equal(found, whole)), "")
    if row.name == "shift":
        assert not row.across  # it is a step of others alone
        return
    text = f"{row.name}_J(A[I, J_X]) → C[I{', J_X' if row.keeps_dims else ''}]"
    plan = shardc.plan(text, mesh={"X": 2}, dims={"I": 8, "J": 4096}, objective="bytes")
    assert [step.op for step in plan.steps if step.axes] == ["AllReduce"] * row.across


def test_positions_are_of_no_array_and_whole():
    row = FUNCTIONS["index"]
    assert row.arity == 0 and row.over_dims and row.keeps_dims and row.integers
    assert row.numpy(np, 3).tolist() == [0, 1, 2]
    assert not (row.linear or row.scales or row.truths or row.reduces or row.across or row.conditions)


# x, then 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), in decimals of forty digits.
GELU = [(-2.0, -0.0454023059), (-1.0, -0.1588080094), (0.5, 0.3457140098), (1.0, 0.8411919906), (3.0, 2.9963626079)]


@pytest.mark.instant
@pytest.mark.parametrize(("x", "y"), GELU)
def test_gelu_is_that_of_its_paper(x, y):
    """NumPy has none, so that it is nobody else's: a cube that is a square is 0.06 off at 3."""
    assert FUNCTIONS["gelu"].numpy(np, np.float64(x)) == pytest.approx(y, abs=1e-9)


@pytest.mark.instant
@pytest.mark.parametrize("dtype", ["f32", "int32", "bf16"])
def test_again_takes_any_type_that_computes(dtype):
    assert shardc.parse(f"B[I_X] = again(A: {dtype}[I_X])", mesh={"X": 2}).results[0].dtype.name == dtype
