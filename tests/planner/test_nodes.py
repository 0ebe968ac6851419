"""The tables between nodes of a program, entry by entry; and in which order a statement's strategies are listed."""

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Pattern
from shardc.ir.mesh import Mesh
from shardc.ir.program import For
from shardc.ir.sharding import Sharding
from shardc.planner import Objective
from shardc.planner.planned import PlannedStatement, Strategy, ranking
from shardc.planner.problem import Problem
from shardc.planner.whole.arrays import Entity, LoopLines, fresh
from shardc.planner.whole.factor_graph import FactorGraph
from shardc.planner.whole.nodes import Known, Nodes, TooWide, repeated
from shardc.planner.whole.prices import BITS, NEVER, Scale
from shardc.planner.whole.scale import scale_of
from shardc.planner.whole.spaces import spaces_of
from shardc.testing import loops, mixed_programs, programs

sys.path.insert(0, str(Path(__file__).parent))
from test_whole import model_of, parsed

FREE = Pattern.free(2)


@pytest.fixture(params=Objective)
def problem(request):
    program = parsed("A[I_X, J] → A[I, J_Y]", Mesh.of({"X": 2, "Y": 2}), {"I": 64, "J": 64})
    return Problem(program, model_of(program.mesh), request.param, program.mesh.names)


@pytest.fixture
def nodes(problem):
    program = problem.program
    return Nodes(scale_of(problem), spaces_of(program, program.mesh.names), Known())


def array(problem, nodes, dims):
    return Entity(
        problem.search_of(problem.program.shape(tuple(dims)), DTYPES["bf16"], False),
        "A",
        tuple(dims),
        DTYPES["bf16"],
        frozenset(),
        1,
        nodes.spaces.within(tuple(dims)),
    )


def sharding_at(entity, place):
    return entity.search.graph.shardings[entity.states.numbers[place]]


@pytest.mark.instant
def test_a_row_lies_as_all_rows_where_each_device_has_the_dim_and_nowhere_else(problem, nodes):
    whole, row = array(problem, nodes, "IJ"), array(problem, nodes, "J")
    lying = nodes.lying(whole, FREE, 1)
    rows = nodes.rows((whole, whole.dims), lying, row, "I")
    (factor,) = nodes.factors
    assert factor.nodes == (lying.node,) == (rows.node,)
    for place, at, price in zip(lying.places, rows.places, factor.table, strict=True):
        along, others = sharding_at(whole, place).dims
        assert price == (NEVER if along else 0)
        assert along or sharding_at(row, at).dims == (others,)


@pytest.mark.instant
def test_to_stay_costs_nothing_and_to_move_elsewhere_is_not_had(problem, nodes):
    entity = array(problem, nodes, "IJ")
    one, other = nodes.lying(entity, FREE, 1), nodes.lying(entity, FREE, 1)
    nodes.stay(one, one)
    assert not nodes.factors
    nodes.stay(one, other)
    assert (nodes.factors[0].table == np.where(np.eye(len(one.places), dtype=bool), 0, NEVER)).all()


@pytest.mark.instant
@pytest.mark.parametrize("times", [(1, 1), (3, 1), (1, 5)])
def test_a_move_is_from_the_cheapest_source_each_done_so_often(problem, nodes, times):
    entity = array(problem, nodes, "IJ")
    table = nodes.between(entity)
    one, other = (nodes.lying(entity, FREE, each) for each in times)
    to, fixed = nodes.lying(entity, FREE, 1), nodes.lying(entity, Pattern.exactly(Sharding.of([(), ("X",)])), 7)
    nodes.move(entity, [one, other, fixed], to)
    (factor,) = nodes.factors
    assert factor.nodes == (one.node, other.node, to.node)
    for at in product(*(range(len(each.places)) for each in (one, other, to))):
        first, second, end = (lying.places[n] for lying, n in zip((one, other, to), at, strict=True))
        ways = (times[0] * table[first, end], times[1] * table[second, end], 7 * table[fixed.places[0], end])
        assert factor.table[at] == min(*ways, NEVER)


@pytest.mark.instant
def test_a_copy_costs_more_where_something_moves_and_nothing_where_it_stays(problem, nodes):
    entity = array(problem, nodes, "IJ")
    table = nodes.between(entity)
    one, to = nodes.lying(entity, FREE, 1), nodes.lying(entity, FREE, 1)
    nodes.move(entity, [one], replace(to, more=np.arange(1, len(to.places) + 1) * 1000))
    (factor,) = nodes.factors
    for row, start in enumerate(one.places):
        for column, end in enumerate(to.places):
            price = table[start, end]
            assert factor.table[row, column] == (price + 1000 * (column + 1) if 0 < price < NEVER else price)


@pytest.mark.instant
@settings(max_examples=30)
@given(st.one_of(programs(), loops(), mixed_programs()))
def test_every_use_of_an_array_is_counted_and_a_loop_may_use_it_again(case):
    """Of each array as many uses are left when all statements are gone through as loops take it."""
    program = shardc.parse(case.text, mesh=case.mesh, dims=case.dims)
    problem = Problem(program, model_of(program.mesh), Objective.TIME, program.mesh.names)
    try:
        graph = FactorGraph.of(problem, scale_of(problem), spaces_of(program, program.mesh.names), Known())
    except TooWide:
        return
    entities = {id(entity): entity for entity in entities_of(graph.lines)}
    entities |= {id(entity): entity for entity, _ in graph.given.values()}
    assert sum(entity.left for entity in entities.values()) == sum(taken_by_loops(program))


@pytest.mark.instant
@pytest.mark.parametrize("text", ["y[{L}I, K] = A[{L}I, J] · W[J, K]", "y[{L}I, K] = W[I, J] · A[{L}J, K]"])
def test_what_a_trip_does_costs_so_often_as_there_are_trips(text):
    """Whichever operand is the same in all of them."""
    once, often = (ways_of(each) for each in (text.format(L=""), f"for L {{{{ {text} }}}}".format(L="L, ")))
    assert (often == repeated(once, 3)).all() and len(once) > 1


def ways_of(text):
    """The prices of the one product's ways."""
    program = parsed(text, Mesh.of({"X": 2, "Y": 2}), dict.fromkeys("IJK", 64) | ({"L": 3} if "for" in text else {}))
    problem = Problem(program, model_of(program.mesh), Objective.TIME, program.mesh.names)
    graph = FactorGraph.of(problem, scale_of(problem), spaces_of(program, program.mesh.names), Known())
    (found,) = (factor.table for factor in graph.nodes.factors if len(factor.nodes) == 1 and factor.table.any())
    return found


def entities_of(lines):
    for line in lines:
        if isinstance(line, LoopLines):
            yield from (entity for entity, _ in line.given)
            yield from entities_of(line.lines)
        else:
            yield line.entity


def taken_by_loops(program):
    for loop in (each for each in program.statements if isinstance(each, For)):
        yield len(loop.takes)
        yield from taken_by_loops(program.inside(loop))


@pytest.mark.instant
@given(st.lists(st.integers(0, NEVER), min_size=1, max_size=4), st.integers(1, 3) | st.integers(1, 1 << 20))
@example([5, NEVER], 1)
@example([5, NEVER], 2)
def test_what_is_repeated_costs_so_often_as_much_or_what_cannot_be(prices, times):
    found = repeated(np.array(prices, dtype=np.int64), times)
    assert found.tolist() == [price * times if price <= NEVER // times else NEVER for price in prices]


@pytest.mark.instant
@pytest.mark.parametrize("second", [0, 1, 2**24 - 1, 2**24, 2**40])
@pytest.mark.parametrize("first", [0, 1, 2**30, 2**31 - 1, 2**31, 2**53 - 1, 2**53, 2**54 - 1, 2**54, 2**55 - 1, 2**55])
def test_a_price_has_room_for_two_measures_as_long_as_a_word_holds_the_first(first, second):
    """The second keeps as many of its bits as there is room for, and changes no order of the first."""
    found = Scale.of(Objective.BYTES, second, first)
    if first >= 2**BITS // 2:
        assert found is None
        return
    most = int(found.of_arrays(np.array([second]), np.array([first]))[0])
    assert found.first(most) == first and most < 2**BITS
    assert found.unit == max(0, second.bit_length() - found.bits)
    assert found.bits == 24 or first << found.bits + 1 >= 2 ** (BITS - 1)


def test_a_fresh_name_is_borne_by_nothing_and_is_short():
    taken = {"A_1", "A_2"}
    assert [fresh("A", taken) for _ in range(2)] == ["A_3", "A_4"] and taken == {"A_1", "A_2", "A_3", "A_4"}
    assert fresh("A" * 70, taken) == "A" * 58 + "_1"


# --- strategies of a statement


def strategy(number, price):
    return Strategy((), (SimpleNamespace(op=number, operands=()),), price, float(price))


@pytest.mark.instant
@given(st.sampled_from([0, 3]), st.lists(st.integers(0, 9), min_size=1, max_size=7), st.integers(0, 8), st.data())
def test_strategies_are_listed_the_cheapest_first_and_the_plans_own_before_all(few, prices, count, data):
    """Those of a statement that uses an array twice are found in another order: a few are built first."""
    every = [strategy(number, price) for number, price in enumerate(prices if few else sorted(prices))]

    def ordered(strategies):
        return sorted(strategies, key=lambda each: each.wire_bytes)

    def statement():
        return PlannedStatement("S", {}, lambda: iter(every), ranking(Objective.BYTES), few)

    assert statement().cheapest(count) == tuple(ordered(every[: max(few, count)])[:count])
    assert statement().alternatives == statement().cheapest(None) == tuple(ordered(every))
    own = data.draw(st.sampled_from([*every, strategy(len(every), 5)]))
    others = [*ordered(every[:few]), *every[few:]] if few else every
    assert statement().led_by(own, None).cheapest(count) == (own, *(each for each in others if each != own))[:count]


@pytest.mark.instant
@pytest.mark.parametrize("nodes_of", [(0, 1, 0), (0, 0), (1, 0, 1, 0), (0, 1)])
def test_of_a_node_that_a_table_has_twice_it_is_the_diagonal(nodes, nodes_of):
    """As where what a loop carries is moved to the place that it lay at, among others."""
    table = np.random.default_rng(0).integers(0, 100, tuple((3, 2)[node] for node in nodes_of))
    nodes.add(nodes_of, table)
    (factor,) = nodes.factors
    assert sorted(factor.nodes) == sorted(set(nodes_of))
    for states in product(range(3), range(2)):
        assert factor.table[tuple(states[node] for node in factor.nodes)] == table[tuple(states[n] for n in nodes_of)]
