"""Small parts of the planner, by hand."""

import math
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardc
from shardc.cost import CHIPS
from shardc.cost.rate import picoseconds
from shardc.errors import ShardcError
from shardc.ir.collectives import AllGather
from shardc.ir.digits import Reshape
from shardc.ir.dtypes import DTYPES
from shardc.ir.expressions import Pattern
from shardc.ir.mesh import Mesh
from shardc.ir.plan import Apply, Step, StepCost
from shardc.ir.program import For
from shardc.ir.sharding import Array, Sharding, spell
from shardc.planner import Idle, Objective, plan_program
from shardc.planner.budget import Meter
from shardc.planner.options import Method, Options
from shardc.planner.paths.few import few_choices, fitted
from shardc.planner.paths.graph import sharding_graph
from shardc.planner.planned import Gap, Planning
from shardc.planner.problem import Problem
from shardc.planner.products.placing import Movable, few_ways
from shardc.planner.program.loops import planned_at_once
from shardc.planner.statement.copies import copied
from shardc.planner.statement.gaps import arithmetic, bound_of
from shardc.planner.statement.strategies import root_table, searched
from shardc.planner.whole import nodes, plan
from shardc.planner.whole.arrays import is_accumulated
from shardc.planner.whole.eliminate import Solved, solve
from shardc.planner.whole.plan import _Task
from shardc.planner.whole.prices import NEVER
from shardc.planner.whole.rewrites import Rewritten
from shardc.planner.whole.spaces import spaces_of
from shardc.testing import Case, matmuls, shardings

sys.path.insert(0, str(Path(__file__).parent))
from meaning import assert_means_the_program
from test_whole import model_of, parsed


@pytest.mark.instant
@pytest.mark.parametrize(("price", "bound", "ratio"), [(6, 4, 1.5), (4, 4, 1.0), (0, 0, 1.0), (5, 0, None)])
def test_a_gap_is_price_over_bound_and_unknown_where_none_is_proved(price, bound, ratio):
    gap = Gap("S", price, bound)
    assert gap.ratio == ratio and ("unknown" in str(gap)) == (ratio is None)


def test_an_open_dim_lies_on_no_axis_or_on_all_that_are_left():
    mesh, pattern = Mesh.of({"X": 2, "Y": 2, "Z": 2}), Pattern((("X",), None, None))
    found = [str(each.dims) for each in few_choices(pattern, mesh, ("X", "Y", "Z"))]
    wanted = [Sharding.of([["X"], [], []]), Sharding.of([["X"], ["Y", "Z"], []]), Sharding.of([["X"], [], ["Y", "Z"]])]
    assert found == [str(each.dims) for each in wanted]
    assert fitted(pattern, Sharding.of([["Y"], ["X", "Z"], []])) == Sharding.of([["X"], ["Z"], []])


@pytest.mark.instant
@pytest.mark.parametrize(("middle", "bytes_"), [(1, 128), (2, 128), (64, 4096)])
def test_what_is_summed_limits_the_rank_of_a_product_and_its_bound(middle, bytes_):
    """All of S on each of two devices, that have half of A's rows and half of C's: half of A · B is 32 · 64 numbers of
    two bytes; through a thin J less is enough."""
    text, dims = "S[I, L] = (A[I_X, J] · B[J, K]) · C[K_X, L]", {"I": 64, "J": middle, "K": 64, "L": 64}
    found = shardc.plan(text, mesh="X=2,Y=2", dims=dims, objective="bytes")
    assert found.bound.wire_bytes == bytes_ <= found.cost.wire_bytes
    full = text.replace("[J, K])", "[J, K] + E[I_X, K])")  # of full rank, however thin J is
    added = shardc.plan(full, mesh="X=2,Y=2", dims=dims, objective="bytes")
    assert added.bound.wire_bytes == added.cost.wire_bytes == 8192


def test_what_cannot_be_unreduced_is_refused_with_the_reason_and_the_remedy():
    with pytest.raises(ShardcError) as caught:
        shardc.plan("A[I, J] → A[I, J]{U_X}", mesh="X=2", dims={"I": 8, "J": 8})
    assert caught.value.note == "nothing makes the value unreduced over X"
    assert caught.value.help == "drop the `{U_…}`, or contract a dim that this axis shards"


@pytest.mark.instant
@pytest.mark.parametrize("objective", Objective)
def test_a_pruned_graph_has_the_same_least_price_and_none_below_what_is_known(objective, monkeypatch):
    mesh = Mesh.of({"X": 2, "Y": 2})
    program = parsed(
        "T = A[I_X, J_Y] · B[J, K]; U = relu(T); S[I, L_Y] = U · C[K_X, L]", mesh, dict.fromkeys("IJKL", 64)
    )
    problem, planning = (
        Problem(program, model_of(mesh), objective, mesh.names),
        Planning(objective, Idle.USE, planned_at_once),
    )
    task = _Task.of(problem, spaces_of(program, mesh.names), problem.model, planning)
    graph = task._graph(Rewritten.of(program))
    least = solve(graph.nodes.sizes, graph.nodes.factors).price
    monkeypatch.setattr(plan, "FEW", 0)
    assert plan._solved(graph).price == plan._solved(graph, known=least + 1).price == least
    assert plan._solved(graph, known=least // 2) == Solved((), NEVER, NEVER)


LINEAR = ("G", "neg(G)", "W[L, M, I]", "relu(W)", "(relu(W) - G)", "where(W > 0, G, W)")
OTHER = (
    "relu(G)",
    "relu(W + G)",
    "exp(neg(G))",
    "G ⊙ G",
    "neg(relu(W - G))",
    "where(G > 0, G, W)",
    "AllGather_X(G[I_X])",
)


@pytest.mark.instant
@pytest.mark.parametrize("most", [0, 10_000])
def test_a_use_is_priced_from_as_many_places_as_a_table_has_room_for(most, monkeypatch):
    """The first use of T is where it lies, later ones are from there or from a copy that is kept."""
    text = "T = A[I_X, J_Y] · B[J_Y, K]; S[I, L] = T · C[K_X, L]; R[I, M_Y] = T · D[K, M_Y]; Q[I, K_X] = relu(T)"
    program, objective = parsed(text, Mesh.of({"X": 2, "Y": 2}), dict.fromkeys("IJKLM", 64)), Objective.BYTES
    model, planning = model_of(program.mesh), Planning(objective, Idle.USE, planned_at_once)
    free = plan_program(program, model, objective)
    monkeypatch.setattr(nodes, "MOST_TOGETHER", most)
    problem, spaces = Problem(program, model, objective, program.mesh.names), spaces_of(program, program.mesh.names)
    graph = _Task.of(problem, spaces, model, planning)._graph(Rewritten.of(program))
    assert max(len(factor.nodes) for factor in graph.nodes.factors) == (3 if most else 2)
    found = plan_program(program, model, objective)
    assert found.price(objective) >= free.price(objective)
    assert_means_the_program(found.schedule)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(LINEAR), min_size=1, max_size=3),
    st.sampled_from((None, *OTHER)),
    st.booleans(),
    st.booleans(),
)
def test_what_a_loop_only_adds_to_is_accumulated(linear, other, is_named, is_inner):
    """Whether the sum has a name of its own, and in a loop in a loop as well."""
    terms = linear if other is None else [*linear, other]
    total = " + ".join(terms).replace("W[L, M, I]", "W").replace("W", "W[L, M, I]", 1)
    body = f"T = {total}; G = T" if is_named else f"G = {total}"
    text = f"G[I] = A[I]; for L {{ {f'for M {{ {body} }}' if is_inner else body.replace(', M', '')} }}; S[I] = G"
    program = parsed(text, Mesh.of({"X": 2}), {"I": 8, "L": 2, "M": 2})
    (loop,) = (each for each in program.statements if isinstance(each, For))
    if "G" in loop.carried:
        assert is_accumulated(program.inside(loop), "G") == (other is None)


def test_under_a_limit_below_the_plans_peak_each_statement_is_leaner_or_all_is_refused():
    text = "T[I_X, K] = A[I_X, J_Y] · B[J, K]; S[I, L_Y] = T · C[K_X, L]"
    asked = {"mesh": "X=2,Y=2", "dims": {"I": 64, "J": 32, "K": 128, "L": 64}, "objective": "bytes"}
    free = shardc.plan(text, **asked)
    limits, found = [free.cost.peak_bytes], []
    while limits:
        try:
            found.append(shardc.plan(text, memory=limits.pop() - 1, **asked).cost)
            limits.append(found[-1].peak_bytes)
        except ShardcError as error:
            assert error.code == "SHC410"
    peaks, wires = [[free.cost.peak_bytes, *(cost.peak_bytes for cost in found)], [cost.wire_bytes for cost in found]]
    assert found and peaks == sorted(peaks, reverse=True) and wires == sorted(wires)


@pytest.mark.instant
@settings(max_examples=10)
@given(matmuls(max_axes=2), st.sampled_from(Objective))
@example(  # of one axis after another neither gains
    Case("A[I, J] · B[J, K] → C[I, K]{U_XY}", Mesh.of({"X": 2, "Y": 2}), dict.fromkeys("IJK", 8)), Objective.BYTES
)
def test_without_a_search_a_plan_means_the_program_and_costs_no_less(case, objective):
    program = shardc.parse(case.text, mesh=case.mesh, dims=case.dims, dtype="bf16")
    model = model_of(case.mesh)
    asked = (Options(method=how, idle=False) for how in (Method.SEARCH, Method.ROUTES))
    searched, routed = (planned_at_once(program, model, objective, options) for options in asked)
    assert objective.first(routed.price(objective)) >= objective.first(searched.price(objective))
    assert_means_the_program(routed.schedule)


@pytest.mark.instant
@pytest.mark.parametrize(
    "text",
    [
        "S[I_X, J] = A[I, J_Y] + B[I_X, J]",
        "S[I_?, J_?] = A[I, J_Y] + B[I_X, J]",
        "S[I_?, K] = A[I_X, J_Y] · B[J_Y, K]",
        "T = A[I_X, J] · B[J, K_Y]; S[I, K] = relu(T) + C[I, K_Y]",
    ],
)
def test_without_a_search_functions_and_open_shardings_are_planned_too(text):
    mesh = Mesh.of({"X": 2, "Y": 2})
    program = parsed(text, mesh, dict.fromkeys("IJK", 8))
    found = planned_at_once(program, model_of(mesh), Objective.BYTES, Options(method=Method.ROUTES, idle=False))
    assert_means_the_program(found.schedule)


@pytest.mark.instant
@settings(max_examples=20)
@given(st.data(), st.booleans())
def test_few_ways_are_the_cheapest_of_all_that_were_looked_at(data, is_open):
    """Up to the goal, if there is one; else of each result's sharding one, and few of these. Prices are any at all."""
    mesh, prices = Mesh.of({"X": 2, "Y": 2}), data.draw(st.integers(0, 1 << 30))

    def movable(name, dims, *lies):
        around = sharding_graph(mesh, len(dims), mesh.names)
        return Movable(dims, lies, around, lambda n: Random(f"{prices} {name} {n}").choice([None, *range(40)]))

    a, b, goal = (data.draw(shardings(mesh, rank, unreduced=False)) for rank in (3, 3, 2))
    operands = [movable("A", ("I", "J", "L"), a), movable("B", ("J", "L", "K"), b)]  # J or L: the result lies alike
    result, seen = movable("C", ("I", "K"), *([] if is_open else [goal])), {}

    def product_price(way):
        below = [operand.price(at) for operand, at in zip(operands, way.at, strict=True)]
        seen[way] = own = sum(below) + Random(f"{prices} {way}").randrange(40)
        return own - sum(below)

    found = few_ways(operands, result, product_price, Meter.unlimited())
    totals = {
        way: price + result.price(way.result) for way, price in seen.items() if result.price(way.result) is not None
    }
    least = {way.result: min(t for w, t in totals.items() if w.result == way.result) for way in totals}
    assert [totals[way] for way, _ in found] == sorted(least.values())[: 4 if is_open else 1]
    assert all(price == seen[way] for way, price in found)


@pytest.mark.instant
@settings(max_examples=25)
@given(st.data(), st.sampled_from(("sum", "max", "softmax", "logsumexp", "relu")), st.sampled_from(Objective))
def test_what_a_search_adds_up_is_what_its_steps_are_priced(data, function, objective):
    """With the AllReduces of a function over a sharded dim, which the search takes for a part of the function."""
    mesh, dims = Mesh.of({"X": 2, "Y": 4}), ("I", "J")
    left = ("I",) if function in ("sum", "max", "logsumexp") else dims
    before, after = (data.draw(shardings(mesh, len(names), unreduced=False)) for names in (dims, left))
    called = function if function == "relu" else f"{function}_J"
    text = f"{called}(A{spell(dims, before)}) → S{spell(left, after)}"
    program, model = parsed(text, mesh, {"I": 1024, "J": 4096}), model_of(mesh)
    ((given_array,), (statement,)) = program.inputs, program.statements
    array = Array("A", dims, program.shape(dims), before, given_array.dtype)
    problem = Problem(program, model, objective, mesh.names)
    root, goal = searched(problem.given(problem.environment.with_value(array)), statement)
    planned = planned_at_once(program, model, objective, Options(idle=True))
    own, steps = (objective.measures(each) for each in (root.paths(goal).price[goal], planned.price(objective)))
    assert own[1] == steps[1] and abs(own[0] - steps[0]) <= len(planned.schedule.steps)  # each a picosecond up or down


@pytest.mark.instant
@settings(max_examples=20)
@given(st.data(), st.sampled_from(("A{0} + B{0}", "where(A{0} > 0, B{0}, C{0})", "softmax_K(A{0} - B{0})")))
def test_without_a_search_what_lies_alike_is_not_moved(data, text):
    """Nor the one that lies as nothing forbids: the dims over which a function goes are whole."""
    mesh, dims = Mesh.of({"X": 2, "Y": 2}), ("I", "J", "K")
    lies = data.draw(shardings(mesh, 2, unreduced=False))
    spelled = spell(dims, Sharding((*lies.dims, ())))
    program = parsed(f"S{spelled} = {text.format(spelled)}", mesh, dict.fromkeys(dims, 8))
    found = planned_at_once(program, model_of(mesh), Objective.BYTES, Options(method=Method.ROUTES, idle=False))
    assert found.cost.wire_bytes == 0


@pytest.mark.instant
@pytest.mark.parametrize(
    ("dims", "shape", "copies"), [("abJ", (2, 4, 8), [0]), ("abJ", (1, 4, 8), []), ("aJb", (2, 8, 4), [])]
)
def test_a_digit_that_is_gathered_below_another_is_laid_anew_to_be_joined(dims, shape, copies):
    """`A[a, b_X, J]` gathered over X, joined to A[I, J], and read: there is something above b, and something below."""
    mesh, at = Mesh.of({"X": 2}), dims.index("b")
    lies = Sharding(tuple(("X",) if dim == "b" else () for dim in dims))
    arrays = [Array("A", tuple(dims), shape, each, DTYPES["bf16"]) for each in (lies, Sharding.replicated(3))]
    joined = Array("A", ("I", "J"), (shape[0] * shape[at], 8), Sharding.replicated(2), DTYPES["bf16"])
    ops = (AllGather(("X",), at), Reshape(((shape[0],), ()), joins=True), Apply("relu"))
    steps = [Step(op, (number,), (number + 1,), 0, StepCost()) for number, op in enumerate(ops)]
    found = copied(steps, 0, {1, 2, 3}, None, [*arrays, joined, joined], model_of(mesh))
    assert [place for place, _ in found] == copies


@pytest.mark.instant
@pytest.mark.parametrize("text", ["relu(A[I, J] · B[J, K]) · C[K, L]", "(A[I, J] · B[J, K]) · C[K, L]"])
def test_a_statement_takes_at_least_the_time_of_its_products_shared_by_all_devices(text):
    program = parsed(f"{text} → D[I, L]", Mesh.of({"X": 2, "Y": 4}), {"I": 4096, "J": 64, "K": 8192, "L": 512})
    problem = Problem(program, model_of(program.mesh), Objective.TIME, program.mesh.names)
    written, best = (
        sum(picoseconds(2 * math.prod(sizes) // 8 / CHIPS["v5p"].flops) for sizes in products)
        for products in (((4096, 64, 8192), (4096, 8192, 512)), ((64, 8192, 512), (4096, 64, 512)))
    )
    assert arithmetic(problem, program.statements[0].expr) == written
    found = bound_of(problem, program.statements[0], root_table(problem, program.statements[0]))
    assert Objective.TIME.first(found) == (written if "relu" in text else best)
