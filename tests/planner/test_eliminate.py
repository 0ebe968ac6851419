"""Sums of tables, minimised over all states: against every assignment; bounds, and what pruning leaves."""

from itertools import product
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardc.planner.whole import eliminate
from shardc.planner.whole import prune as pruning
from shardc.planner.whole.eliminate import Factor, _size_without, _Tables, easier, improved, improved_at_once, solve
from shardc.planner.whole.prices import NEVER
from shardc.planner.whole.prune import prune, solve_pruned


@st.composite
def sums(draw):
    """Up to six nodes of up to four states, and tables between up to three of them, with entries that cannot be."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    factors = []
    for _ in range(draw(st.integers(1, 8))):
        order = draw(st.permutations(range(len(sizes))))
        nodes = tuple(order[: draw(st.integers(1, min(3, len(sizes))))])
        shape = [sizes[node] for node in nodes]
        count = int(np.prod(shape))
        entries = draw(st.lists(st.sampled_from([0, 1, 2, 5, 9, NEVER]), min_size=count, max_size=count))
        factors.append(Factor(nodes, np.array(entries, dtype=np.int64).reshape(shape)))
    return sizes, factors


def least(sizes, factors):
    every = product(*map(range, sizes))
    return min(NEVER, min(sum(int(f.table[tuple(each[n] for n in f.nodes)]) for f in factors) for each in every))


@pytest.mark.parametrize("large", [1, eliminate.LARGE])
@settings(max_examples=200, deadline=None)
@given(case=sums())
def test_elimination_finds_the_least_sum(large, case):
    """Tables made at once, and for one state of a node after another."""
    sizes, factors = case
    with mock.patch.object(eliminate, "LARGE", large):
        found, best = solve(sizes, factors), least(*case)
    assert found.price == found.bound == best


@settings(max_examples=200, deadline=None)
@given(sums(), st.integers(1, 8))
def test_where_tables_are_too_large_the_bound_is_a_bound_and_the_price_an_assignments(case, most):
    """And no other state of one node alone is better."""
    (sizes, factors), (found, best) = case, (solve(*case, max_entries=most), least(*case))
    assert found.bound <= best <= found.price
    for node, size in enumerate(sizes):
        other = [tuple(slice(None) if n == node else found.states[n] for n in f.nodes) for f in factors]
        every = sum((f.table[at] for f, at in zip(factors, other, strict=True)), np.zeros(size, dtype=np.int64))
        assert found.price <= every.min()


@settings(max_examples=200, deadline=None)
@given(sums(), st.data())
def test_nodes_are_removed_as_if_each_time_what_all_would_leave_were_worked_out(case, data):
    """The node that leaves the smallest table, of such the first; whatever tables come in instead."""
    sizes, factors = case
    found, left, waiting = _Tables(sizes, factors), [*factors], {*range(len(sizes))}
    while waiting:
        own = {node: [each for each in left if node in each.nodes] for node in waiting}
        first = min((_size_without(node, tables, sizes), node) for node, tables in own.items())
        assert found.least == first[0]
        node, mine = found.next()
        assert (node, {*map(id, mine)}) == (first[1], {*map(id, own[node])})
        waiting.remove(node)
        left = [each for each in left if node not in each.nodes]
        around = sorted({other for each in mine for other in each.nodes} - {node})
        if around and data.draw(st.booleans()):
            left.append(Factor(tuple(around), np.zeros([sizes[each] for each in around], dtype=np.int64)))
            found.add(left[-1])


@settings(max_examples=200, deadline=None)
@given(sums(), st.data())
def test_an_assignment_is_improved_as_if_every_node_were_looked_at_each_time(case, data):
    """Those beside which nothing changed since would stay as they are."""
    sizes, factors = case
    states = [data.draw(st.integers(0, size - 1)) for size in sizes]
    found, better = improved([*states], factors, sizes), True
    while better:
        better = False
        for node, size in enumerate(sizes):
            at = [tuple(slice(None) if n == node else states[n] for n in f.nodes) for f in factors if node in f.nodes]
            own = [f.table for f in factors if node in f.nodes]
            costs = sum((table[place] for table, place in zip(own, at, strict=True)), np.zeros(size, dtype=np.int64))
            better = better or costs.min() < costs[states[node]]
            states[node] = int(costs.argmin())
    assert found == states


@settings(max_examples=100, deadline=None)
@given(sums(), st.integers(1, 60), st.data())
def test_the_likely_states_are_those_that_halving_finds_where_each_time_all_are_counted(case, most, data):
    sizes, factors = case
    costs = [data.draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)) for size in sizes]
    above = tuple(np.array(own, dtype=np.float64) - min(own) for own in costs)
    every = pruning.Pruned(tuple(map(np.arange, sizes)), above, 0.0, (), NEVER)
    with mock.patch.object(pruning, "LIKELY", most):
        found = pruning._likely(every, factors)
    low, high = 0.0, float(max(map(max, above)))
    for _ in range(pruning.HALVED):
        middle = (low + high) / 2
        few = every.with_at_most(middle).entries(factors) <= most
        low, high = (middle, high) if few else (low, middle)
    assert [own.tolist() for own in found.kept] == [own.tolist() for own in every.with_at_most(low).kept]


@pytest.mark.instant
@pytest.mark.parametrize(("most", "kept"), [(1, [[0], [0]]), (2, [[0, 1], [0]]), (3, [[0, 1], [0]])])
def test_as_many_states_are_likely_as_there_may_be(most, kept):
    above = (np.array([0.0, 1.0]), np.array([0.0, 4.0]))
    every = pruning.Pruned((np.arange(2), np.arange(2)), above, 0.0, (), NEVER)
    with mock.patch.object(pruning, "LIKELY", most):
        found = pruning._likely(every, [Factor((0, 1), np.zeros((2, 2), dtype=np.int64))])
    assert [own.tolist() for own in found.kept] == kept


@settings(max_examples=200, deadline=None)
@given(sums(), st.integers(1, 8), st.data())
def test_all_nodes_but_a_few_at_once_are_no_dearer_and_of_a_chain_the_best(case, most, data):
    """Of tables of one node, or of two next to each other, no node need keep its state."""
    sizes, factors = case

    def price(states, tables):
        return sum(int(f.table[tuple(states[n] for n in f.nodes)]) for f in tables)

    states = [data.draw(st.integers(0, size - 1)) for size in sizes]
    assert price(improved_at_once(states, factors, sizes, most), factors) <= price(states, factors)
    chain = [f for f in factors if len(f.nodes) == 1 or abs(f.nodes[0] - f.nodes[1]) == len(f.nodes) - 1 == 1]
    assert min(NEVER, price(improved_at_once(states, chain, sizes, max(sizes)), chain)) == least(sizes, chain)


@settings(max_examples=200, deadline=None)
@given(sums(), st.integers(0, 8))
def test_without_the_nodes_that_leave_small_tables_the_least_sum_is_the_same(case, most):
    """And the states that are found for them cost what is said."""
    sizes, factors = case
    left = easier(sizes, factors, most)
    found = left.with_states(solve(left.sizes, left.factors))
    assert found.price == found.bound == least(*case)
    assert min(NEVER, sum(int(f.table[tuple(found.states[n] for n in f.nodes)]) for f in factors)) == found.price


@settings(max_examples=200, deadline=None)
@given(sums())
def test_pruning_keeps_a_best_assignment(case):
    pruned = prune(*case)
    assert (NEVER if pruned is None else solve(pruned.sizes, pruned.factors(case[1])).price) == least(*case)


@pytest.mark.exhaustive
@settings(max_examples=300, deadline=None)
@given(sums(), st.integers(0, 40), st.integers(1, 30), st.integers(0, 30))
def test_where_too_many_states_are_left_the_bound_is_a_bound_and_the_price_an_assignments(case, left, likely, known):
    """And of what is known to be dearer than the best, nothing is said to be cheaper."""
    (sizes, factors), best = case, least(*case)
    with mock.patch.multiple(pruning, MOST_LEFT=left, LIKELY=likely, TURNS=4, LOOKED=2, FEW=0):
        found = solve_pruned(sizes, factors)
        given = solve_pruned(sizes, factors, known)
    assert found.bound <= best <= found.price
    if found.states:
        assert min(NEVER, sum(int(f.table[tuple(found.states[n] for n in f.nodes)]) for f in factors)) == found.price
    assert given.price >= best and (given.states or best >= known or given.price == NEVER)


def test_pruning_leaves_out_what_is_too_dear():
    unit = 1 << 30  # far above what sums of floats may lose
    chain = [Factor((node, node + 1), np.where(np.eye(4), 0, 100 * unit).astype(np.int64)) for node in range(3)]
    first = Factor((0,), unit * np.array([0, 50, 900, 900], dtype=np.int64))
    assert prune([4] * 4, [*chain, first]).sizes == [1, 1, 1, 1]


def test_what_is_met_by_more_than_sixty_four_nodes_of_one_state_is_minimised():
    """An array has no more than sixty-four dims."""
    factors = [Factor((0, node), np.array([[3], [node % 5]], dtype=np.int64)) for node in range(1, 90)]
    sizes = [2, *([1] * 89)]
    assert solve(sizes, factors).price == least(sizes, factors)
    assert easier(sizes, factors).price == least(sizes, factors)


@pytest.mark.instant
@settings(deadline=None)
@given(sums())
@example(([1, 1], [Factor((n,), np.array([NEVER])) for n in (0, 1)]))
def test_what_cannot_be_costs_no_more_where_it_is_in_two_tables(drawn):
    """Of two parts that have nothing in common either alone cannot be; what is left of a known price is never less than
    nothing."""
    assert easier(*drawn).price <= NEVER
