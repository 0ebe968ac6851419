"""A table in columns is what `tabulate` draws of it."""

from hypothesis import given
from hypothesis import strategies as st
from tabulate import tabulate

from shardc.report.columns import columns

CELL = st.text("ab, │×·→µ–Σ'0", max_size=9).map(str.strip)
TABLES = st.integers(1, 4).flatmap(
    lambda width: st.tuples(
        st.lists(CELL.filter(bool), min_size=width, max_size=width),
        st.lists(st.lists(CELL, min_size=width, max_size=width), max_size=4),
    )
)


@given(TABLES)
def test_columns_are_laid_as_tabulate_lays_them(table):
    headers, rows = table
    drawn = tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True)
    assert columns(headers, rows) == "\n".join(line.rstrip() for line in drawn.split("\n"))
