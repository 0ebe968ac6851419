"""Numbers that the notation writes, and types: against NumPy's of the same name."""

import itertools
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from jax import dtypes

from shardc.errors import ShardcError
from shardc.ir.calls import holds
from shardc.ir.dtypes import DTYPES, Kind
from shardc.ir.functions import FUNCTIONS, Gives
from shardc.ir.scalars import Folded, Literal, number

OF_NUMBERS = [
    row
    for row in FUNCTIONS.values()
    if not row.over_dims and row.gives is not Gives.BOOL and row.name not in ("where", "cast", "widen", "again")
]
VALUES = ["0", "1", "2", "0.25", "3", "0.7", "100", "1000", "1e-3", "4", "inf"]


@pytest.mark.instant
@pytest.mark.parametrize("row", OF_NUMBERS, ids=lambda row: row.name)
def test_a_function_of_numbers_is_numpys(row):
    """Whole and exact where it can be, and else the nearest float; what is no number is refused."""
    for sign, texts in itertools.product((1, -1), itertools.product(VALUES, repeat=row.arity)):
        below = [Folded("neg", (Literal(text),)) if sign < 0 else Literal(text) for text in texts]
        with np.errstate(all="ignore"):
            expected = row.numpy(np, *(0 + sign * np.float64(text) for text in texts))  # of zeros one
        try:
            found = float(number(Folded(row.name, tuple(below)), {}))
        except ShardcError:
            assert np.isnan(expected) or (row.name, texts[-1]) == ("div", "0"), texts
        else:
            assert found == pytest.approx(expected, rel=1e-12, abs=1e-15, nan_ok=True), (sign, texts)


def test_what_no_float_holds_is_infinite_of_its_sign_and_exact_on_the_way():
    large = Literal("1e400")
    assert number(large, {}) == np.inf and number(Folded("neg", (large,)), {}) == -np.inf
    assert number(Folded("div", (large, Literal("1e399"))), {}) == 10


def test_fractions_are_exact_up_to_4096_bits_and_floats_of_more():
    """Two to the 4095th has as many; divided by itself it is 1, and what no float holds is not a number."""
    half = Literal("2")
    for _ in range(11):
        half = Folded("square", (half,))  # two to the 2048th
    large, most = Folded("square", (half,)), Folded("mul", (half, Folded("div", (half, Literal("2")))))
    assert number(Folded("div", (most, most)), {}) == number(Folded("div", (half, half)), {}) == 1
    with pytest.raises(ShardcError, match="not a number"):
        number(Folded("div", (large, large)), {})


@pytest.mark.instant
@pytest.mark.parametrize("row", DTYPES.values(), ids=str)
def test_a_type_is_what_jax_has_by_its_name(row):
    kinds = {Kind.FLOAT: jnp.floating, Kind.INT: jnp.integer, Kind.COMPLEX: jnp.complexfloating, Kind.BOOL: np.bool_}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # finfo looks for subnormals
        dtype = np.dtype(getattr(jnp, row.jax))
        assert row.bytes == dtype.itemsize and jnp.issubdtype(dtype, kinds[row.kind])
        assert row.is_wide == (dtypes.canonicalize_dtype(dtype) != dtype)  # as it is without 64 bits
        assert row.unit == (float(jnp.finfo(dtype).eps) / 2 if row.kind is Kind.FLOAT else 0)


@pytest.mark.instant
@pytest.mark.parametrize("row", [row for row in DTYPES.values() if not row.moves], ids=str)
def test_a_type_holds_what_numpys_does(row):
    """Integers up to both ends and none beyond; of floats it is not asked."""
    if row.kind is Kind.INT:
        ends = jnp.iinfo(row.jax)
        assert all(holds(row, int(number)) for number in (ends.min, 0, ends.max))
        assert not any(holds(row, number) for number in (int(ends.min) - 1, int(ends.max) + 1))
    else:
        assert holds(row, 10**400) and holds(row, -(10**400))
    assert holds(row, 1e300)
