"""What is worked out once, and kept, is what would be worked out each time it is asked for."""

import sys
from itertools import islice, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shardc.api import parse
from shardc.cost.legs import block_cut
from shardc.interface.hardware import Hardware
from shardc.ir.dtypes import DTYPES
from shardc.ir.operations import Kind
from shardc.ir.sharding import Sharding
from shardc.lowering.scatters import LocalBlock
from shardc.planner.digits import products
from shardc.planner.digits.bounds import _legs
from shardc.planner.options import Objective
from shardc.planner.paths.graph import EdgeCosts, Graph
from shardc.planner.paths.tables import Applied
from shardc.planner.problem import Problem
from shardc.planner.statement import strategies
from shardc.planner.statement.nodes import few_calls
from shardc.planner.whole.prices import NEVER, _close
from shardc.rules.digit_products import digits_of_dims
from shardc.rules.placements import placements

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmark"))

SLICE = {"mesh": "X=4,Y=2,Z=2", "topology": "v5e:4x4"}


def on_slice():
    program = parse("A[I_X, J] → A[I, J_X]", **SLICE)
    return program, Hardware().model(program)


@pytest.mark.instant
@pytest.mark.parametrize("array", [None, LocalBlock((32, 256), DTYPES["bf16"])], ids=["any", "small"])
def test_the_rate_of_each_move_is_that_of_what_is_emitted_for_it(array):
    """Whatever moves equal to it were met first: of a permute whose blocks go other ways, of a smaller block."""
    program, model = on_slice()
    graph = Graph(program.mesh, 2, program.mesh.names)
    costs = EdgeCosts(graph, model, array)
    every = [Sharding(dims) for dims in placements(("X", "Y", "Z"), 2)]
    for before in (*every, *(Sharding(dims, frozenset("Z")) for dims in placements(("X", "Y"), 2))):
        found = costs.edges(graph.number(before))
        for target, price, (move,) in found.moves:
            block = array and block_cut(array, before.blocks(program.mesh))
            block = block if move.facts.kind is Kind.SCATTER else None
            assert found.prices[price][0] == model.emitted(move, block, before), (before, move)
            assert graph.shardings[target] == move.leaves(before)


@pytest.mark.instant
@given(st.data(), st.integers(0, 4), st.integers(0, 4))
def test_tables_close_as_by_way_of_every_sharding_in_turn(data, whole, others):
    size = whole + others
    prices = st.sampled_from([1, 2, 3, 20, NEVER])
    found = data.draw(arrays.arrays(np.int64, (size, size), elements=prices, fill=st.nothing()))
    found[:whole, whole:] = NEVER  # nothing leads from whole values to partial sums
    np.fill_diagonal(found, 0)
    wanted = found.copy()
    for middle in range(size):
        wanted = np.minimum(wanted, wanted[:, middle, None] + wanted[None, middle, :])
    _close(found, whole)
    assert (np.minimum(found, NEVER) == np.minimum(wanted, NEVER)).all()


TEXTS = (
    "C[I_Y, K] = relu(A[I_X, J] · B[J, K_Y]) ⊙ D[I, K_X]",
    "C[I, K_X] = A[I_X, J_Y] · B[J, K] + D[I_Y, K] + D[I_Y, K]",
    "S[I_Y, K] = softmax_K(A[I_X, J] · B[J_X, K] ⊙ D[I, K_X])",
)


@pytest.mark.instant
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("objective", Objective)
def test_strategies_of_functions_are_those_found_anew_each_time(text, objective, monkeypatch):
    def anew(self, expr, tables):
        every = few_calls(self.problem, expr, tables, self._whole.search)
        return [(number, price, Applied(tables, at)) for number, price, at in every]

    program = parse(text, mesh="X=2,Y=2", dims="I=64,J=64,K=64", dtype="bf16", chip="v5p")
    (statement,) = program.statements

    def listed():
        problem = Problem(program, Hardware().model(program), objective, program.mesh.names)
        found = islice(strategies.cheapest_first(problem, statement.expr, [], statement), 40)
        return [(root.seeds, goal, root.paths(goal).price[goal]) for root, goal in found]

    kept = listed()
    monkeypatch.setattr(strategies._Strategies, "_called", anew)
    assert kept == listed()
    assert len(kept) > 5


def test_nothing_needs_digits_between_what_has_one_axis_a_dim_nor_to_partial_sums():
    program, _ = on_slice()
    graph = Graph(program.mesh, 2, program.mesh.names)
    sums = [Sharding(dims, frozenset("Z")) for dims in placements(("X", "Y"), 2)]
    every = [graph.number(lies) for lies in (*map(Sharding, placements(program.mesh.names, 2)), *sums)]
    need = [pair for pair in product(every, every) if graph.needs_digits(*pair)]
    assert need
    assert not any(graph.flat.issuperset(pair) or graph.shardings[pair[1]].unreduced for pair in need)


@pytest.mark.instant
@pytest.mark.parametrize("text", ["A[I_XY, J] · B[J_Z, K] → C[I_Z, K_XY]", "A[I_Z, J_XY] · B[J_YX, K_Z] → C[I_XYZ, K]"])
def test_a_bound_in_digits_is_that_of_its_code(text):
    """Worked out for one choice of places, or for all together."""
    program = parse(text, dims="I=64,J=96,K=48", dtype="bf16", **SLICE)
    problem = Problem(program, Hardware().model(program), Objective.TIME, program.mesh.names)
    expr = program.statements[0].expr
    uses = [*expr.operands, program.statements[0]]
    placed = tuple((use.dims, use.pattern.exact) for use in uses)
    task = products._Task.of(problem, expr, placed, digits_of_dims(placed, program.mesh))
    every = products._every(placed, program.mesh, program.mesh.names)
    for moves in task.bounds(every.choices.axes):
        of_codes = [moves.bound(*one) for one in zip(every.chosen, moves.joined(every.choices.places), strict=True)]
        assert of_codes == [
            moves.bound(chosen, *moves.joined(tuple((place,) for place in chosen))) for chosen in every.chosen
        ]
        assert len(set(of_codes)) > 5
        for code, price in moves.prices.items():  # kept for whatever else an array of this shape is priced for
            legs = _legs(moves.search.model, every.choices.axes, code, moves.search.may_exchange)
            assert price == moves.search.price_of(legs, steps=0)
