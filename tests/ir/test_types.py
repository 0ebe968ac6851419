"""What the table of element types says, held against what NumPy says of the same types."""

import jax.numpy as jnp
import numpy as np

from shardc.ir.dtypes import DTYPES, Kind


def test_a_type_is_as_wide_as_numpys_of_its_name():
    assert {row.name: row.bytes for row in DTYPES.values()} == {
        row.name: jnp.dtype(row.jax).itemsize for row in DTYPES.values()
    }


def test_numbers_are_computed_with_but_for_the_narrowest_and_those_of_two_parts():
    computes = {row.name for row in DTYPES.values() if not row.moves}
    assert computes >= {row.name for row in DTYPES.values() if row.kind is Kind.INT and "4" not in row.name[:5]}
    assert {"bf16", "f16", "f32", "f64"} <= computes and computes.isdisjoint({"int4", "uint4", "bool", "c64", "c128"})


def test_a_float_rounds_by_half_of_numpys_eps_and_begins_at_its_lowest():
    for row in (row for row in DTYPES.values() if row.kind is Kind.FLOAT):
        known = jnp.finfo(row.jax) if row.name != "f64" else np.finfo(np.float64)
        assert row.unit == float(known.eps) / 2, row
        assert row.lowest == (0.0 if row.moves else float(known.min)), row
