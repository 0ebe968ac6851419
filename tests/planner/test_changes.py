"""What is best at each of many prices: lines, of which the least is asked for at few of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.planner.whole.changes import changes

LINES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=8)
PRICES = range(-6, 9)


def least(lines, power):
    """Of what costs so much, and holds so many bytes, each at a price, the best; of equals what holds least."""
    return min(lines, key=lambda line: (line[0] + line[1] * 2.0**power, line[1]))


def asked(lines):
    """What is found, and the powers that were asked for."""
    powers = []

    def best(power):
        powers.append(power)
        return least(lines, power)

    return [*changes(best, PRICES, lambda one, other: one == other)], powers


@pytest.mark.instant
@given(LINES)
def test_each_change_is_found_in_order_and_no_price_is_asked_for_twice(lines):
    found, powers = asked(lines)
    every = [least(lines, power) for power in PRICES]
    assert found == [line for place, line in enumerate(every) if place == 0 or line != every[place - 1]]
    assert len(powers) == len(set(powers)) and set(powers) <= {*PRICES}


def test_where_nothing_changes_few_prices_are_asked_for():
    assert asked([(1, 1)]) == ([(1, 1)], [-6, -5, -3, 1, 8])


def test_a_change_is_searched_by_halves():
    assert asked([(0, 2), (8, 0)])[1] == [-6, -5, -3, 1, 8, 4, 2]


def test_what_is_asked_for_first_is_found_first():
    every = changes(lambda power: power, PRICES, lambda one, other: one == other)
    assert [next(every), next(every)] == [-6, -5]
