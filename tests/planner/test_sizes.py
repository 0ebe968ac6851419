"""Sizes of dims that the user gave none."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc.ir.dtypes import DTYPES
from shardc.ir.program import every_statement
from shardc.planner.program.sizes import LEAST, PLANNED, large

COUNTED = 2**63  # bytes of an array, and no more
COMPUTED = [name for name in ("bf16", "f16", "f32", "f64") if name in DTYPES]


@pytest.mark.instant
@settings(max_examples=100)
@given(st.integers(1, 12), st.sampled_from(sorted(COMPUTED)), st.integers(1, 12))
def test_missing_sizes_are_the_largest_of_which_the_bytes_are_counted(rank, dtype, inner):
    """Of each array, a result with more dims than any input among them."""
    left, right = (", ".join(f"{name}{number}" for number in range(of)) for name, of in (("D", rank), ("E", inner)))
    text = f"C[{left}, {right}] = A[{left}] · B[{right}]"
    found = large(shardc.parse(text, mesh={"X": 2}, dtype=dtype))
    sizes = dict(found.sizes)
    (size,) = {*sizes.values()}
    most = max(
        math.prod(sizes[dim] for dim in array.dims) * array.dtype.bytes
        for array in (*found.inputs, *every_statement(found))
    )
    assert size == LEAST or most < COUNTED
    assert size == PLANNED or most * 2 ** (rank + inner) >= COUNTED
