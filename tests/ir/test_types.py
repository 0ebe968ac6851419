"""What the table of element types says, held against what NumPy and JAX say of the same types."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from shardc.ir.dtypes import DTYPES, Kind, promoted


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


def in_jax(left, right):
    with jax.enable_x64():
        try:
            return jnp.promote_types(left.jax, right.jax).name
        except (TypeError, ValueError):  # "no available implicit dtype promotion path"
            return None


def test_two_types_have_together_what_jax_gives_them():
    for left, right in itertools.product(DTYPES.values(), repeat=2):
        found = promoted(left, right)
        assert (found and found.jax) == in_jax(left, right), (left, right)
