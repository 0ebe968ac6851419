"""What the table of element types says, held against what NumPy says of the same types."""

import jax.numpy as jnp
import numpy as np
import pytest

from shardc.ir.dtypes import DTYPES, Kind

EVERY = [pytest.param(row, id=row.name) for row in DTYPES.values()]
FLOATS = [pytest.param(row, id=row.name) for row in DTYPES.values() if row.kind is Kind.FLOAT]
ONLY_MOVE = {"int4", "uint4", "bool", "c64", "c128", "f4_e2m1fn", "f8_e8m0fnu"}


@pytest.mark.parametrize("row", EVERY)
def test_a_type_is_numpys_of_that_name_and_only_some_types_can_do_no_more_than_move(row):
    assert row.bytes == jnp.dtype(row.jax).itemsize and row.moves == (row.name in ONLY_MOVE)


@pytest.mark.parametrize("row", FLOATS)
def test_a_float_rounds_by_half_of_numpys_eps_and_begins_at_its_lowest(row):
    known = jnp.finfo(row.jax) if row.name != "f64" else np.finfo(np.float64)
    assert row.unit == float(known.eps) / 2 and row.lowest in (float(known.min), 0.0)
